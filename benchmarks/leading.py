"""Time and truncation error of the 64 leading directions of a 4096 x 4096 matrix in float32.

`python -m benchmarks leading`. Contenders take turns; times are medians. The excess of a truncation
is its Frobenius error over that of the exact one, less 1. The exact error comes from all singular
values in float64.
"""

import math
from collections.abc import Callable

import torch
from rich.console import Console
from torch import Tensor

from benchmarks.timing import by_turns, table
from rankscope.spectra import leading, singular_values

SIZE, RANK, ROUNDS = 4096, 64, 3

Truncation = tuple[Tensor, Tensor, Tensor]


def main(*, size: int = SIZE, rounds: int = ROUNDS) -> None:
    for name, W in matrices(size).items():
        compare(name, W, rounds)


def matrices(size: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)

    def orthonormal(columns: int) -> Tensor:
        return torch.linalg.qr(torch.randn(size, columns, generator=generator)).Q

    noise = torch.randn(size, size, generator=generator) / math.sqrt(size)
    power = torch.arange(1, size // 4 + 1) ** -1.0
    change = torch.linspace(30.0, 5.0, 16)
    return {
        "power law 1/i": (orthonormal(len(power)) * power) @ orthonormal(len(power)).mT,
        "rank 16 beside noise": (orthonormal(16) * change) @ orthonormal(16).mT + noise,
        "flat noise": noise,
    }


def compare(name: str, W: Tensor, rounds: int) -> None:
    ways = contenders(W)
    least = float(singular_values(W)[RANK:].norm())
    errors = {way: truncation_error(W, *run()) / least - 1 for way, run in ways.items()}
    # Medians of ratios within a round, in which every contender meets the same machine.
    times = {way: torch.tensor(values) for way, values in by_turns(ways, rounds=rounds).items()}
    own = times["leading"]
    rows = table(f"Leading {RANK} of {len(W)} x {len(W)}: {name}", "", "time", "ratio", "excess")
    for way, seconds in times.items():
        ratio = float((seconds / own).median())
        rows.add_row(way, f"{float(seconds.median()):.2f} s", f"{ratio:.2f}", f"{errors[way]:.0e}")
    Console().print(rows)


def contenders(W: Tensor) -> dict[str, Callable[[], Truncation]]:
    def own(tolerance: float) -> Callable[[], Truncation]:
        def run() -> Truncation:
            part = leading(W, RANK, tolerance=tolerance)
            return part.U, part.S, part.Vh.mT

        return run

    def randomized(iterations: int) -> Callable[[], Truncation]:
        return lambda: torch.svd_lowrank(W, q=RANK, niter=iterations)

    def full() -> Truncation:
        U, S, Vh = torch.linalg.svd(W, full_matrices=False)
        return U[:, :RANK], S[:RANK], Vh[:RANK].mT

    return {
        "leading": own(1e-6),
        "leading, tolerance 1e-3": own(1e-3),
        "leading, tolerance 1e-2": own(1e-2),
        **{f"svd_lowrank, niter {n}": randomized(n) for n in (2, 4, 10)},
        "full svd, float32": full,
    }


def truncation_error(W: Tensor, U: Tensor, S: Tensor, V: Tensor) -> float:
    return float((W.double() - (U.double() * S.double()) @ V.double().mT).norm())
