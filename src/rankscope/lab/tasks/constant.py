"""Losses of predictors that ignore their input."""

import torch
from jaxtyping import Int
from torch import Tensor


def frequency_entropy(values: Int[Tensor, " n"]) -> float:
    """Entropy of the frequencies in nats, the cross-entropy of the best constant prediction."""
    frequency = torch.bincount(values).double() / len(values)
    return float(torch.special.entr(frequency).sum())
