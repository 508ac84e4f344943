"""Choice of one rank per matrix: by energy, error, noise, or for a total number of parameters."""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from rankscope.lora.spectrum import Spectrum

# Ranks for which vLLM has room: `MaxLoRARanks` of its LoRA configuration.
VLLM = (1, 8, 16, 32, 64, 128, 256, 320, 512)

Rounding = int | Literal["vllm"]


def choose_ranks(
    spectra: Mapping[str, Spectrum],
    *,
    energy: float | None = None,
    error: float | None = None,
    noise: bool = False,
    max_rank: int | None = None,
    budget: int | None = None,
    round_to: Rounding = 1,
) -> dict[str, int]:
    """Return a rank for each change; 0 where nothing is worth a direction.

    Without energy, error and budget, it is the largest that `noise` and `max_rank` allow.

    energy: share of each change's energy |dW|_F^2 that its directions hold.
    error: relative Frobenius error of each change; error e is energy 1 - e^2.
    noise: take no direction whose singular value is below the noise floor.
    budget: number of parameters of all factors together. It goes where it lowers the total squared
        error most per parameter.
    round_to: round ranks up to multiples of this, or to those that vLLM accepts, but `max_rank`
        down. Directions that a matrix does not have are zeros.
    """
    _check(energy, error, max_rank, budget, round_to)
    max_rank = None if max_rank is None else rounded_down(max_rank, round_to)
    limits = {name: _limit(s, noise=noise, max_rank=max_rank) for name, s in spectra.items()}
    if budget is not None:
        return within_budget(spectra, budget, limits=limits, round_to=round_to)
    share = 1 - error**2 if error is not None else energy
    ranks = {}
    for name, spectrum in spectra.items():
        wanted = limits[name] if share is None else _energy_rank(name, spectrum, share, max_rank)
        ranks[name] = rounded_up(min(wanted, limits[name]), round_to)
    return ranks


def _check(
    energy: float | None,
    error: float | None,
    max_rank: int | None,
    budget: int | None,
    round_to: Rounding,
) -> None:
    if sum(rule is not None for rule in (energy, error, budget)) > 1:
        raise ValueError("energy, error and budget each choose the ranks; give one of them")
    if energy is not None and not 0 < energy <= 1:
        raise ValueError(f"energy is a share between 0 and 1, got {energy}")
    if error is not None and not 0 <= error < 1:
        raise ValueError(f"error is relative, between 0 and 1, got {error}")
    if max_rank is not None and max_rank < 1:
        raise ValueError(f"max_rank: expected 1 or more, got {max_rank}")
    if budget is not None and budget < 1:
        raise ValueError(f"budget is a number of parameters, 1 or more, got {budget}")
    rounded_up(0, round_to)


def _limit(spectrum: Spectrum, *, noise: bool, max_rank: int | None) -> int:
    available = spectrum.signal if noise else int((spectrum.S > 0).sum())
    return available if max_rank is None else min(available, max_rank)


def _energy_rank(name: str, spectrum: Spectrum, share: float, max_rank: int | None) -> int:
    rank = spectrum.energy_rank(share)
    if rank is not None:
        return rank
    if max_rank is not None and max_rank <= len(spectrum.S):
        return max_rank
    raise ValueError(
        f"{name!r}: {len(spectrum.S)} directions hold less than {share:.4g} of the energy; compute "
        "more of them, or limit the rank with max_rank"
    )


def within_budget(
    spectra: Mapping[str, Spectrum],
    budget: int,
    *,
    limits: Mapping[str, int],
    round_to: Rounding = 1,
) -> dict[str, int]:
    """Return ranks of at most `budget` parameters with the least total squared error.

    A direction of value s in an m x n matrix lowers the error by s^2 and costs m + n parameters, so
    directions are taken by s^2 / (m + n), the largest first. As long as each one fits, no other
    choice of that size or less has a smaller error: any other leaves out a direction that is worth
    more per parameter than all it takes instead. What is left of the budget then goes to the next
    directions that still fit. With rounding, blocks of directions take the place of single ones.
    """
    names = list(spectra)
    steps = [_steps(spectra[name], limits[name], round_to) for name in names]
    owners = np.repeat(np.arange(len(names)), [len(gains) for _, gains in steps])
    sizes = np.concatenate([sizes for sizes, _ in steps] or [np.zeros(0, int)])
    gains = np.concatenate([gains for _, gains in steps] or [np.zeros(0)])
    costs = sizes * np.array([spectra[name].size for name in names])[owners]
    # Stable, so that equal ones go in order, and those of one matrix stay in order.
    order = np.argsort(-gains / np.maximum(costs, 1), kind="stable")
    ranks, left = dict.fromkeys(names, 0), budget
    closed: set[int] = set()  # a direction that does not fit ends its matrix
    for position in order:
        owner = int(owners[position])
        if owner in closed:
            continue
        if costs[position] > left:
            closed.add(owner)
            continue
        left -= int(costs[position])
        ranks[names[owner]] += int(sizes[position])
    return ranks


def _steps(spectrum: Spectrum, limit: int, round_to: Rounding) -> tuple[np.ndarray, np.ndarray]:
    """Return how many directions each step adds, and by how much it lowers the squared error."""
    marks = [0, *_marks(limit, round_to)]
    energies = np.cumsum(spectrum.S.double().numpy(force=True) ** 2)
    totals = np.array([energies[min(mark, len(energies)) - 1] if mark else 0.0 for mark in marks])
    return np.diff(marks), np.diff(totals)


def _marks(limit: int, round_to: Rounding) -> Sequence[int]:
    """Return the ranks that rounding allows, up to the first that holds `limit` directions."""
    if limit == 0:
        return ()
    last = rounded_up(limit, round_to)
    if round_to == "vllm":
        return [rank for rank in VLLM if rank <= last]
    return range(round_to, last + 1, round_to)


def rounded_up(rank: int, round_to: Rounding) -> int:
    """Return the smallest allowed rank that is not smaller; vLLM's largest is 512."""
    if round_to != "vllm" and (not isinstance(round_to, int) or round_to < 1):
        raise ValueError(f"ranks are rounded to a multiple of 1 or more, or to 'vllm': {round_to}")
    if rank == 0:
        return 0
    if round_to == "vllm":
        return next((allowed for allowed in VLLM if allowed >= rank), VLLM[-1])
    return -(-rank // round_to) * round_to


def rounded_down(rank: int, round_to: Rounding) -> int:
    """Return the largest allowed rank that is not larger; ValueError if there is none."""
    allowed = rounded_up(rank, round_to)
    if allowed > rank and round_to == "vllm":
        allowed = max(smaller for smaller in VLLM if smaller <= rank)
    elif allowed > rank:
        allowed -= int(round_to)
    if allowed == 0:
        raise ValueError(f"a largest rank of {rank} leaves none that is rounded to {round_to}")
    return allowed


def parameters(spectra: Mapping[str, Spectrum], ranks: Mapping[str, int]) -> int:
    """Return the number of parameters of factors of these ranks."""
    return sum(rank * spectra[name].size for name, rank in ranks.items())


def total_squared_error(spectra: Mapping[str, Spectrum], ranks: Mapping[str, int]) -> float:
    """Return the sum of |dW - B A|_F^2 over all changes."""
    return float(
        sum(spectra[name].tails()[min(rank, len(spectra[name].S))] for name, rank in ranks.items())
    )
