"""Which samples are held out for validation."""

import torch
from jaxtyping import Int64
from torch import Tensor


def split(
    count: int, *, validation_share: float = 0.1, seed: int
) -> tuple[Int64[Tensor, " train"], Int64[Tensor, " validation"]]:
    """Indices for training and for validation, drawn from `seed`, in random order.

    Validation gets floor(count x share): of CIFAR-10's 50,000 training images 5,000.
    """
    held = int(count * validation_share)
    if not 0 < held < count:
        raise ValueError(
            f"{count} samples cannot be split with {validation_share:g} of them for validation: "
            "both parts need at least one"
        )
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    return order[held:], order[:held]
