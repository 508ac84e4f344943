"""Networks with Gaussian noise on every matrix."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from rankscope.interventions.rewriting import (
    plain_copy,
    replace_matrices,
    require_replaceable,
    require_whole,
)
from rankscope.matrices import View, views


def perturb(model: nn.Module, *, std: float, generator: torch.Generator) -> nn.Module:
    """Return a copy of `model` with Gaussian noise of deviation `std` added to every matrix."""
    return perturbed(model, lambda W: std, generator)


def perturb_relative(model: nn.Module, *, ratio: float, generator: torch.Generator) -> nn.Module:
    """Return a copy of `model` with Gaussian noise of `ratio` times each matrix's rms added."""
    return perturbed(model, lambda W: ratio * float(W.square().mean().sqrt()), generator)


def perturbed(
    model: nn.Module, scale: Callable[[Tensor], float], generator: torch.Generator
) -> nn.Module:
    """Return a copy of `model` with noise of deviation scale(W) added to every matrix W."""
    require_whole(model)
    changed, refused = plain_copy(model)
    matrices = views(changed)
    require_replaceable(matrices, refused)

    def replacement(view: View) -> Tensor:
        W = view.W.double()
        noise = torch.randn(W.shape, dtype=W.dtype, device=generator.device, generator=generator)
        return W + scale(W) * noise.to(W.device)

    replace_matrices(changed, matrices, replacement)
    return changed
