"""Random splits into training and validation samples."""

import torch
from jaxtyping import Int64
from torch import Tensor


def split(
    count: int, *, validation_share: float = 0.1, seed: int
) -> tuple[Int64[Tensor, " train"], Int64[Tensor, " validation"]]:
    """Draw indices for training and for validation, in random order.

    Validation gets floor(count x share) samples, 5,000 of CIFAR-10's 50,000 training images.
    """
    held_out = int(count * validation_share)
    if not 0 < held_out < count:
        raise ValueError(
            f"{count} samples cannot be split with {validation_share:g} of them for validation: "
            "both parts need at least one"
        )
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    return order[held_out:], order[:held_out]
