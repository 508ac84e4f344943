"""Models that tests of interventions change."""

import numpy as np
import torch
from torch import nn


def drawn(model: nn.Module, seed: int = 0) -> nn.Module:
    """The model in float64 with every parameter drawn anew from a seed."""
    generator = torch.Generator().manual_seed(seed)
    model.double()
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.normal_(generator=generator)
    return model


def best_of_rank(W: np.ndarray, r: int) -> np.ndarray:
    U, S, Vh = np.linalg.svd(W, full_matrices=False)
    return (U[:, :r] * S[:r]) @ Vh[:r]
