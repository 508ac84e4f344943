"""Errors, energies and noise floors of spectra, against matrices that are known."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rankscope.lora.spectrum import Spectrum, noise_edge, rounding_level


def noise(m: int, n: int, seed: int = 0) -> Tensor:
    return torch.randn(m, n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def spectrum_of(W: Tensor, known: int | None = None) -> Spectrum:
    S = torch.linalg.svdvals(W)
    rest = 0.0 if known is None else float(S[known:].norm())
    return Spectrum(S[:known], *W.shape, rest=rest)


def test_errors_are_those_of_the_best_approximations() -> None:
    W = noise(9, 6)
    U, S, Vh = torch.linalg.svd(W, full_matrices=False)
    for spectrum in (spectrum_of(W), spectrum_of(W, known=4)):
        assert spectrum.norm == pytest.approx(float(W.norm()))
        for rank in range(len(spectrum.S) + 1):
            missed = W - (U[:, :rank] * S[:rank]) @ Vh[:rank]
            assert spectrum.error(rank) == pytest.approx(float(missed.norm() / W.norm()), abs=1e-15)


def test_small_errors_of_large_changes_are_exact() -> None:
    spectrum = Spectrum(torch.tensor([1e8, 1.0], dtype=torch.float64), 2, 2, rest=1e-4)
    assert spectrum.error(2) == pytest.approx(1e-12, rel=1e-9)


@given(st.lists(st.floats(0.01, 10), min_size=1, max_size=12), st.floats(0.01, 1))
def test_energy_rank_is_the_smallest_that_suffices(values: list[float], share: float) -> None:
    S = torch.tensor(sorted(values, reverse=True), dtype=torch.float64)
    rank = Spectrum(S, len(S), 20).energy_rank(share)
    assert rank is not None
    energies = S.square().cumsum(0) / S.square().sum()
    assert energies[rank - 1] >= share * (1 - 1e-9)
    assert rank == 1 or energies[rank - 2] < share * (1 + 1e-9)


def test_unknown_energy_ranks_say_so() -> None:
    spectrum = Spectrum(torch.tensor([3.0, 1.0]), 8, 8, rest=math.sqrt(2.0))
    assert spectrum.energy_rank(0.5) == 1 and spectrum.energy_rank(0.9) is None
    assert spectrum.energy_ranks() == (1, ">2", ">2")


def test_a_zero_change_has_no_error() -> None:
    assert math.isnan(Spectrum(torch.zeros(3), 3, 5).error(1))


@pytest.mark.parametrize(("m", "n"), [(80, 80), (40, 200), (300, 30)])
def test_noise_alone_has_no_signal(m: int, n: int) -> None:
    """The floor is a 99th percentile, so one draw in a hundred may be above."""
    signals = [spectrum_of(noise(m, n, seed)).signal for seed in range(60)]
    assert sum(signal > 0 for signal in signals) <= 4
    edge = noise_edge(spectrum_of(noise(m, n)))
    assert edge == pytest.approx(math.sqrt(m) + math.sqrt(n), rel=0.06)


@pytest.mark.parametrize("known", [None, 20])
def test_planted_directions_are_signal(known: int | None) -> None:
    U, V = (torch.linalg.qr(noise(size, 5, size)).Q for size in (120, 150))
    planted = (U * torch.tensor([200.0, 150, 100, 60, 50])) @ V.mT
    assert spectrum_of(planted + noise(120, 150), known=known).signal == 5


@pytest.mark.parametrize(("classes", "signal"), [(1, 1), (4, 4), (15, 15), (16, 0)])
def test_a_change_of_few_directions_is_not_taken_for_noise(classes: int, signal: int) -> None:
    """All directions of an output layer can change alike; only many of them look like a bulk."""
    assert spectrum_of(noise(classes, 64)).signal == signal


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("spread", [0.0, 2.0])
def test_rounding_of_a_checkpoint_stays_below_its_level(dtype: torch.dtype, spread: float) -> None:
    """Rows differ in size by up to `spread` decades; the level is above, and not twice as high."""
    sizes = 10 ** torch.linspace(0, spread, 200, dtype=torch.float64)[:, None]
    weights = sizes * noise(200, 300, 1)
    stored = weights.to(dtype)
    level = rounding_level(stored)
    norm = float(torch.linalg.matrix_norm(stored.double() - weights, 2))
    assert norm < level < 1.8 * norm


def test_weights_below_the_smallest_normal_number_round_as_coarsely_as_there() -> None:
    tiny = torch.full((4, 4), 1e-7, dtype=torch.float16)
    assert rounding_level(tiny) == pytest.approx(2 * 2 * 2.0**-24 / math.sqrt(12))
