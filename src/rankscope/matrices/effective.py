"""Effective weights: what the forward pass multiplies by, computed from stored tensors.

Weight norm, spectral norm, pruning, adapters and quantization store parts instead of the weight
itself. An `Effective` is plain data that says how the parts make the weight, so model, state dict,
staged copy and manifest agree. Computing one changes nothing.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rankscope.matrices.reading import dotted

Formula = Callable[[Tensor, Sequence[Tensor], Sequence[float]], Tensor]


@dataclass(frozen=True)
class Step:
    """One operation on a weight.

    parts: names of the stored tensors that enter.
    module: name of the module whose forward pass is the operation, if no formula is known. For a
        layer with adapters this is the name of its base layer.
    """

    formula: str
    parts: tuple[str, ...] = ()
    numbers: tuple[float, ...] = ()
    module: str = ""


@dataclass(frozen=True)
class Effective:
    """Weight that readings call `parameter`: the stored tensor `base` after some steps.

    Without steps it is the stored tensor under another name.
    """

    parameter: str
    shape: tuple[int, ...]
    base: str
    steps: tuple[Step, ...] = ()

    def under(self, name: str, stored: str) -> "Effective":
        """Return the weight of the module `name`, whose parts are stored under `stored`."""
        steps = tuple(
            replace(
                step,
                parts=tuple(dotted(stored, part) for part in step.parts),
                module=step.module and dotted(stored, step.module),
            )
            for step in self.steps
        )
        return Effective(dotted(name, self.parameter), self.shape, dotted(stored, self.base), steps)

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the stored tensors that enter, each once."""
        names = (self.base, *(part for step in self.steps for part in step.parts))
        return tuple(dict.fromkeys(names))

    @property
    def described(self) -> str:
        """Description for coverage: "effective: weight norm of original1, original0"."""
        owner = self.parameter.rpartition(".")[0]
        names = ", ".join(_short(part, owner) for part in self.parts)
        formulas = " and ".join(dict.fromkeys(step.formula for step in self.steps))
        return f"effective: {formulas} of {names}" if formulas else f"stored as {names}"


def stored_parts(names: Iterable[str], effective: Iterable[Effective]) -> tuple[str, ...]:
    """Return the names of the stored tensors behind `names`, each once."""
    parts = {weight.parameter: weight.parts for weight in effective}
    return tuple(dict.fromkeys(part for name in names for part in parts.get(name, (name,))))


def _short(part: str, owner: str) -> str:
    """Return the name of a part without its module's name and torch's folder of originals."""
    inside = part.removeprefix(f"{owner}.") if owner else part
    return inside.removeprefix("parametrizations.").removeprefix("weight.")


def _weight_norm(W: Tensor, parts: Sequence[Tensor], numbers: Sequence[float]) -> Tensor:
    weight: Tensor = torch._weight_norm(W, parts[0], int(numbers[0]))
    return weight


def _spectral_norm(W: Tensor, parts: Sequence[Tensor], numbers: Sequence[float]) -> Tensor:
    """W over u^T W v with the stored u and v, as in eval mode."""
    u, v = parts
    matrix = W.movedim(int(numbers[0]), 0).flatten(1)
    return W / torch.vdot(u, torch.mv(matrix, v))


def _mask(W: Tensor, parts: Sequence[Tensor], numbers: Sequence[float]) -> Tensor:
    return parts[0].to(W.dtype) * W


def _lora(W: Tensor, parts: Sequence[Tensor], numbers: Sequence[float]) -> Tensor:
    A, B = parts
    return W + _update(W, A, B, numbers)


def _update(W: Tensor, A: Tensor, B: Tensor, numbers: Sequence[float]) -> Tensor:
    """scale B A in the shape of W, which is stored transposed if the second number says so."""
    scale, transposed = numbers[:2]
    # float64, since a user may allow reduced precision in float32 products.
    product = scale * (B.flatten(1).double() @ A.flatten(1).double())
    return (product.mT if transposed else product).reshape(W.shape).to(W.dtype)


def _dora(W: Tensor, parts: Sequence[Tensor], numbers: Sequence[float]) -> Tensor:
    """(W + scale B A) m / n, with n the norms of the base weight's rows after its update.

    W differs from the base where another adapter came before.
    """
    base, A, B, magnitude = parts
    update = _update(W, A, B, numbers)
    updated = base + update
    rows = updated.mT if numbers[1] else updated.flatten(1)
    factor: Tensor = magnitude.flatten() / torch.linalg.norm(rows, dim=1)
    shape = (1, -1) if numbers[1] else (-1, *[1] * (W.ndim - 1))
    return (W + update) * factor.reshape(shape)


def _adalora(W: Tensor, parts: Sequence[Tensor], numbers: Sequence[float]) -> Tensor:
    A, B, E, ranks = parts
    return W + _update(W, A, _adalora_factor(B, (E, ranks), ()), numbers)


def _adalora_factor(B: Tensor, parts: Sequence[Tensor], numbers: Sequence[float]) -> Tensor:
    """B diag(E) over the number of ranks left, without the scale."""
    E, ranks = parts
    return B * E.flatten() / (ranks + 1e-5)  # PEFT's guard against no ranks


def _expert_lora(W: Tensor, parts: Sequence[Tensor], numbers: Sequence[float]) -> Tensor:
    """W + scale B_e A_e for each expert e; rows of A are by expert, columns of B by rank first."""
    A, B = (part.double() for part in parts)
    scale, transposed = numbers
    experts = W.shape[0]
    A = A.reshape(experts, -1, A.shape[-1])  # (expert, rank, in)
    B = B.reshape(B.shape[0], -1, experts).permute(2, 0, 1)  # (expert, out, rank)
    product = scale * (B @ A)
    return W + (product.mT if transposed else product).to(W.dtype)


def _scaled(W: Tensor, parts: Sequence[Tensor], numbers: Sequence[float]) -> Tensor:
    """W times a scale for each block; the blocks of the last rows and columns may be smaller.

    numbers: size of a block along each axis.
    """
    scale = parts[0].to(W.dtype)
    scale = scale.reshape(*scale.shape, *[1] * (W.ndim - scale.ndim))
    for axis, (size, block) in enumerate(zip(W.shape, numbers, strict=True)):
        scale = scale.repeat_interleave(int(block), axis).narrow(axis, 0, size)
    return W * scale


FORMULAS: dict[str, Formula] = {
    "weight norm": _weight_norm,
    "spectral norm": _spectral_norm,
    "mask": _mask,
    "LoRA": _lora,
    "LoRA of experts": _expert_lora,
    "DoRA": _dora,
    "AdaLoRA": _adalora,
    "AdaLoRA factor": _adalora_factor,
    "dequantized": lambda W, parts, numbers: W,
    "scale": _scaled,
}
