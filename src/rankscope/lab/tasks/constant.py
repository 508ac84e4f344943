"""What a prediction costs that ignores its input."""

import torch
from jaxtyping import Int
from torch import Tensor


def frequency_entropy(values: Int[Tensor, " n"]) -> float:
    """In nats, of how often each value comes: the cross-entropy of the best constant prediction."""
    frequency = torch.bincount(values).double() / len(values)
    return float(torch.special.entr(frequency).sum())
