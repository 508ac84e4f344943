"""Decompositions carried from one snapshot to the next while the weights behind them stay the same.

Frozen weights are decomposed once. Their content decides, so a weight that somebody unfreezes,
merges or loads anew is decomposed again.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
from jaxtyping import Num
from torch import Tensor

Solve = Callable[..., dict[str, Any]]  # Svd, or Leading

# Even, so that factors are odd, and spread over 64 bits; portions bound the memory for the factors.
SPREAD = 0x1E3779B97F4A7C16
PORTION = 1 << 22


class Carried:
    """Decompositions by job, and the fingerprints of the tensors behind them."""

    def __init__(self) -> None:
        self._fingerprints: dict[str, int] = {}
        self._svds: dict[str, Any] = {}

    def around(
        self,
        solve: Solve,
        tensors: Mapping[str, Tensor],
        *,
        frozen: Collection[str],
        sources: Mapping[str, Collection[str]],
    ) -> Solve:
        """Return `solve`, except that jobs of unchanged frozen tensors are not solved again.

        sources: names of the tensors behind each job.
        """
        now = fingerprints({name: tensors[name] for name in frozen})
        same = {name for name in now if self._fingerprints.get(name) == now[name]}
        self._fingerprints = now

        def solve_changed(jobs: Mapping[str, Any], **options: Any) -> dict[str, Any]:
            known = {
                name: self._svds[name]
                for name in jobs
                if name in self._svds and same.issuperset(sources[name])
            }
            solved = solve({name: jobs[name] for name in jobs if name not in known}, **options)
            for name, svd in solved.items():
                if now.keys() >= set(sources[name]):
                    self._svds[name] = svd
            return {**known, **solved}

        return solve_changed


def fingerprint(tensor: Num[Tensor, "..."]) -> int:
    """64-bit sum of the stored numbers, each times an odd factor that depends on its position.

    Any change of one number changes it; other changes do with near certainty.
    """
    return fingerprints({"": tensor})[""]


def fingerprints(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """Return the fingerprint of each tensor; the host waits once for those of a device."""
    sums = {name: _sum(tensor) for name, tensor in tensors.items()}
    by_device: dict[torch.device, list[str]] = {}
    for name, total in sums.items():
        by_device.setdefault(total.device, []).append(name)
    return {
        name: number % 2**64
        for names in by_device.values()
        for name, number in zip(names, torch.stack([sums[n] for n in names]).tolist(), strict=True)
    }


def _sum(tensor: Tensor) -> Tensor:
    integer = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    flat = tensor.detach().contiguous().flatten().view(integer[tensor.dtype.itemsize])
    total = torch.zeros((), dtype=torch.int64, device=flat.device)
    for start in range(0, len(flat), PORTION):
        portion = flat[start : start + PORTION].long()
        positions = torch.arange(start, start + len(portion), device=flat.device)
        total += (portion * (SPREAD * positions + 1)).sum()
    return total
