"""Find the head that an entry of a tensor depends on, in a few calls of the module.

Heads are numbered in binary. For each digit, the module is called twice with changed weights: once
those of all heads with a 1 there, once those with a 0. An entry that depends on one head changes
in one of the two, and the digits spell its number. An entry that depends on several heads changes
in both calls for some digit.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rankscope.verification.recording import Recording

ROUNDING = 1e-9  # a smaller change, relative to a typical entry, is none


@dataclass(frozen=True)
class Dependence:
    """Heads that each entry of a tensor depends on: any, several, and the number of one."""

    any: Tensor
    several: Tensor
    head: Tensor


def dependences(
    heads: Sequence[dict[str, Tensor]],
    changed: Callable[[dict[str, Tensor]], list[Tensor]],
) -> list[Dependence]:
    """Return the dependence of every recorded tensor on the weights of the heads.

    heads: the entries of each head's weights, by parameter.
    changed: says which entries of the recorded tensors change along with some weights.
    """
    digits = max(1, (len(heads) - 1).bit_length())
    results: list[Dependence] = []
    for digit in range(digits):
        with_one = [head for number, head in enumerate(heads) if number >> digit & 1]
        with_zero = [head for number, head in enumerate(heads) if not number >> digit & 1]
        zeros = changed(together(with_zero))
        ones = changed(together(with_one)) if with_one else [torch.zeros_like(z) for z in zeros]
        if not results:
            results = [Dependence(z | o, z & o, o.long()) for z, o in zip(zeros, ones, strict=True)]
            continue
        results = [
            Dependence(r.any | z | o, r.several | (z & o), r.head + (o.long() << digit))
            for r, z, o in zip(results, zeros, ones, strict=True)
        ]
    return results


def together(heads: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Return the entries of several heads as one set."""
    names = dict.fromkeys(name for head in heads for name in head)
    return {name: torch.cat([head[name] for head in heads if name in head]) for name in names}


def changes(before: Recording, after: Recording, output: str | None) -> list[Tensor]:
    """Return which entries differ, in logits, then products, then columns before the output."""
    pairs = [
        *zip(before.logits, after.logits, strict=True),
        *zip(before.products, after.products, strict=True),
    ]
    masks = [differs(first, second) for first, second in pairs]
    if output is not None:
        masks.append(_columns(before.operands[output], after.operands[output]))
    return masks


def _columns(before: list[Tensor], after: list[Tensor]) -> Tensor:
    """Return which inputs of the output projection differ anywhere."""
    masks = [differs(first, second).any(0) for first, second in zip(before, after, strict=True)]
    return torch.stack(masks).any(0) if masks else torch.zeros(0, dtype=torch.bool)


def differs(before: Tensor, after: Tensor) -> Tensor:
    """Return which entries differ by more than rounding."""
    # Masked logits are -inf or huge; their difference is NaN or rounding.
    size = before.abs().double()
    ordinary = size[(size < 1e6) & (size > 0)]
    typical = float(ordinary.median()) if ordinary.numel() else 0.0
    difference = (after.double() - before.double()).abs().nan_to_num(0.0)
    return (difference > ROUNDING * typical + 1e-12 * size.clamp(max=1e300)).cpu()
