"""Metrics against closed forms, invariances, and real rounding."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rankscope import metrics

Metric = Callable[[Tensor], Tensor]

RANKS: list[Metric] = [
    metrics.effective_rank,
    metrics.stable_rank,
    metrics.numerical_rank,
    partial(metrics.energy_rank, fraction=0.9),
]
SCALE_FREE: list[Metric] = [
    *RANKS,
    metrics.normalized_effective_rank,
    metrics.spectral_entropy,
    metrics.normalized_spectral_entropy,
    metrics.condition_number,
]
NORMS: list[Metric] = [metrics.frobenius_norm, metrics.spectral_norm, metrics.nuclear_norm]
# Undefined for the zero matrix, because they divide by a norm.
QUOTIENTS = [metric for metric in SCALE_FREE if metric is not metrics.numerical_rank]

spectra = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=12).map(
    lambda values: torch.tensor(values, dtype=torch.float64)
)
quick = settings(max_examples=30, deadline=None)


def flat(r: int, k: int) -> Tensor:
    """r equal values, the rest zero."""
    S = torch.zeros(k, dtype=torch.float64)
    S[:r] = 3.0
    return S


@pytest.mark.parametrize(("r", "k"), [(1, 1), (1, 5), (3, 5), (5, 5)])
def test_r_equal_values_have_rank_r(r: int, k: int) -> None:
    S = flat(r, k)
    assert metrics.effective_rank(S).item() == pytest.approx(r)
    assert metrics.stable_rank(S).item() == pytest.approx(r)
    assert metrics.numerical_rank(S).item() == r
    assert metrics.energy_rank(S, 1.0).item() == r
    assert metrics.normalized_effective_rank(S).item() == pytest.approx(r / k)
    assert metrics.spectral_entropy(S).item() == pytest.approx(math.log(r))
    assert metrics.normalized_spectral_entropy(S).item() == pytest.approx(math.log(r) / k)
    assert metrics.condition_number(S).item() == (1 if r == k else math.inf)


def test_norms_are_those_of_the_matrix() -> None:
    W = torch.randn(5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    S = torch.linalg.svdvals(W)
    frobenius, spectral = torch.linalg.matrix_norm(W), torch.linalg.matrix_norm(W, 2)
    torch.testing.assert_close(metrics.frobenius_norm(S), frobenius)
    torch.testing.assert_close(metrics.stable_rank(S), (frobenius / spectral) ** 2)
    torch.testing.assert_close(metrics.spectral_norm(S), spectral)
    torch.testing.assert_close(metrics.nuclear_norm(S), torch.linalg.matrix_norm(W, "nuc"))
    torch.testing.assert_close(metrics.condition_number(S), torch.linalg.cond(W))


def test_entropy_of_a_geometric_spectrum() -> None:
    """p_i = 2^-i for i = 1, 2 ...: entropy 2 log 2."""
    S = 0.5 ** torch.arange(1, 80, dtype=torch.float64)
    assert metrics.spectral_entropy(S).item() == pytest.approx(2 * math.log(2))
    assert metrics.effective_rank(S).item() == pytest.approx(4)


@pytest.mark.parametrize(
    ("fraction", "rank"), [(0.5, 1), (0.501, 2), (0.625, 2), (0.626, 3), (1.0, 5)]
)
def test_energy_rank_counts_the_largest_squares(fraction: float, rank: int) -> None:
    S = torch.tensor([2.0, 1.0, 1.0, 1.0, 1.0, 0.0])  # squares 4, 1, 1, 1, 1 of 8
    assert metrics.energy_rank(S, fraction).item() == rank


@pytest.mark.parametrize("fraction", [0.5, 0.501, 0.625, 0.8, 1.0])
def test_energy_rank_of_leading_values_is_that_of_all_or_unknown(fraction: float) -> None:
    S = torch.tensor([[2.0, 1.0, 1.0, 1.0, 1.0, 0.0], [0.0] * 6])
    whole, norms = metrics.energy_rank(S[0], fraction).item(), S.double().norm(dim=-1)
    for count in range(7):
        rank, zero = metrics.energy_rank(S[:, :count], fraction, norm=norms).tolist()
        assert rank == whole if whole <= count else math.isnan(rank)
        assert math.isnan(zero)


def test_energy_rank_sees_squares_that_float32_would_lose() -> None:
    assert metrics.energy_rank(torch.tensor([1.0, 1e-5]), 1.0).item() == 2


@pytest.mark.parametrize("fraction", [0.0, -0.1, 1.1])
def test_energy_rank_refuses_a_fraction_that_is_none(fraction: float) -> None:
    with pytest.raises(ValueError, match="fraction"):
        metrics.energy_rank(torch.ones(3), fraction)


def test_normalized_by_the_shorter_side_of_a_product() -> None:
    """A rank-2 product of 8 x 6: two values, R = 6."""
    S = torch.tensor([1.0, 1.0])
    assert metrics.normalized_effective_rank(S, R=6).item() == pytest.approx(2 / 6)
    assert metrics.normalized_spectral_entropy(S, R=6).item() == pytest.approx(math.log(2) / 6)


@pytest.mark.parametrize("k", [0, 1, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_zero_matrix(k: int, dtype: torch.dtype) -> None:
    S = torch.zeros(2, k, dtype=dtype)
    for metric in QUOTIENTS:
        assert metric(S).isnan().all()
    for metric in (*NORMS, metrics.numerical_rank):
        assert metric(S).tolist() == [0, 0]


@pytest.mark.parametrize("metric", [*SCALE_FREE, *NORMS])
def test_nan_in_nan_out_and_neighbours_unharmed(metric: Metric) -> None:
    S = torch.tensor([[3.0, 2.0, 1.0], [math.nan, 2.0, 1.0], [math.nan] * 3])
    values = metric(S)
    assert values.isnan().tolist() == [False, True, True]
    assert values[0] == metric(S[0])


@pytest.mark.parametrize("metric", [*SCALE_FREE, *NORMS])
def test_arrays_are_read_as_tensors_and_left_alone(metric: Metric) -> None:
    array = np.random.default_rng(0).random((2, 3, 5))
    array.flags.writeable = False
    tensor = torch.tensor(array)
    values = metric(array)  # type: ignore[arg-type, type-var]
    assert isinstance(values, np.ndarray)
    assert values.shape == (2, 3)
    np.testing.assert_allclose(values, metric(tensor).numpy(), rtol=1e-15)
    assert torch.equal(tensor, torch.tensor(array))


@pytest.mark.parametrize("metric", SCALE_FREE)
@pytest.mark.parametrize("scale", [1e-40, 1e-25, 1e25, 1e37])
def test_no_sum_leaves_the_number_format(metric: Metric, scale: float) -> None:
    S = torch.tensor([8.0, 4.0, 2.0, 1.0])
    torch.testing.assert_close(metric(S * scale), metric(S), rtol=1e-3, atol=0)


@quick
@given(S=spectra, exponent=st.integers(-20, 20), seed=st.integers(0, 100), zeros=st.integers(0, 5))
def test_invariance(S: Tensor, exponent: int, seed: int, zeros: int) -> None:
    """Ranks do not depend on scale; nothing depends on the order; zeros add no rank."""
    shuffled = S[torch.randperm(len(S), generator=torch.Generator().manual_seed(seed))]
    for metric in SCALE_FREE:
        torch.testing.assert_close(metric(shuffled * 2.0**exponent), metric(S))
    for norm in NORMS:
        torch.testing.assert_close(norm(shuffled * 2.0**exponent), norm(S) * 2.0**exponent)
    padded = torch.cat([S, S.new_zeros(zeros)])
    for rank in RANKS:
        torch.testing.assert_close(rank(padded), rank(S))


@quick
@given(S=spectra)
def test_bounds(S: Tensor) -> None:
    k = len(S)
    for rank in RANKS:
        assert 1 - 1e-12 <= rank(S).item() <= k + 1e-9
    assert metrics.spectral_entropy(S).item() <= math.log(k) + 1e-12
    assert metrics.condition_number(S).item() >= 1
    # Entropies of order 1 and 2 and the norms of a spectrum are ordered.
    squares = S.square()
    assert metrics.stable_rank(S).item() <= metrics.effective_rank(squares).item() + 1e-9
    assert metrics.spectral_norm(S) <= metrics.frobenius_norm(S) * (1 + 1e-12)
    assert metrics.frobenius_norm(S) <= metrics.nuclear_norm(S) * (1 + 1e-12)


def test_numerical_rank_of_a_matrix_with_noise_from_a_solver() -> None:
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(size, 3, generator=generator) for size in (60, 40))
    S = torch.linalg.svdvals(left @ right.mT)
    assert (S > 0).sum() > 3
    assert metrics.numerical_rank(S, floor=metrics.solver_floor(S, 60, 40)).item() == 3
    assert metrics.numerical_rank(S).item() == 3


def test_numerical_rank_takes_a_floor_for_each_matrix() -> None:
    S = torch.tensor([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
    assert metrics.numerical_rank(S, floor=torch.tensor([0.5, 2.5])).tolist() == [3, 1]
    assert metrics.numerical_rank(S.numpy(), floor=np.array([0.5, 2.5])).tolist() == [3, 1]
    assert metrics.numerical_rank(S, floor=1.5).tolist() == [2, 2]


DTYPES = [torch.bfloat16, torch.float16, torch.float32]
SHAPES = [(2, 2), (4, 4), (10, 300), (300, 10), (64, 64), (96, 256)]


def weights(m: int, n: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 0.02 * torch.randn(m, n, dtype=torch.float64, generator=generator)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("m", "n"), SHAPES)
def test_a_rounded_change_of_rank_one_has_rank_one(dtype: torch.dtype, m: int, n: int) -> None:
    """W0 + u v^T: both weights rounded from full precision, and W rounded from a stored W0."""
    for seed in range(3):
        W0 = weights(m, n, seed)
        change = weights(m, 1, seed + 10) @ weights(1, n, seed + 20) / 0.02
        stored = W0.to(dtype).double()
        for W in ((W0 + change).to(dtype).double(), (stored + change).to(dtype).double()):
            S = torch.linalg.svdvals(W - stored)
            floor = metrics.rounding_floor(dtype, float(W.norm()), m, n)
            assert metrics.numerical_rank(S, floor=floor).item() == 1
            # The floor is what makes it so, and it is no larger than it has to be.
            if min(m, n) > 4:
                assert metrics.numerical_rank(S).item() > 1
                assert S[1] > floor / 10


@pytest.mark.parametrize("dtype", DTYPES)
def test_rounding_alone_has_rank_zero(dtype: torch.dtype) -> None:
    W = weights(96, 96, 0)
    S = torch.linalg.svdvals(W.to(dtype).double() - W)
    floor = metrics.rounding_floor(dtype, float(W.norm()), 96, 96)
    assert metrics.numerical_rank(S, floor=floor).item() == 0


def test_weights_below_the_smallest_normal_number_are_covered() -> None:
    W, change = 1e-6 * weights(64, 64, 0) / 0.02, 1e-4 * torch.ones(64, 64, dtype=torch.float64)
    stored, moved = W.half().double(), (W + change).half().double()
    S = torch.linalg.svdvals(moved - stored)
    floor = metrics.rounding_floor(torch.float16, float(moved.norm()), 64, 64)
    assert metrics.numerical_rank(S, floor=floor).item() == 1


def test_rounding_floor_follows_the_norm() -> None:
    norms = torch.tensor([1.0, 2.0])
    floors = metrics.rounding_floor(torch.bfloat16, norms, 9, 16)
    # u = 2^-8, rms = norm / 12, sqrt(9) + sqrt(16) = 7
    expected = 2 * math.sqrt(2 / 3) * 2.0**-8 * norms / 12 * 7
    torch.testing.assert_close(floors, expected)
    assert metrics.rounding_floor(torch.bfloat16, 0.0, 0, 5) == pytest.approx(0, abs=1e-30)


@pytest.mark.parametrize("alpha", [1.5, 2.5, 4.0])
def test_tail_exponent_of_a_power_law(alpha: float) -> None:
    """Quantiles of p(x) ~ x^-alpha from x = 1 on have that exponent, in any unit."""
    x = (1 - (np.arange(2000) + 0.5) / 2000) ** (-1 / (alpha - 1))
    for unit in (1.0, 1e-6):
        assert metrics.tail_exponent(unit * np.sqrt(x)) == pytest.approx(alpha, rel=0.02)


def test_tail_exponent_ignores_the_bulk_below_the_tail() -> None:
    tail = 10 * (1 - (np.arange(300) + 0.5) / 300) ** (-1 / 1.5)
    bulk = np.linspace(0.1, 9.9, 300)
    assert metrics.tail_exponent(np.sqrt([*bulk, *tail])) == pytest.approx(2.5, rel=0.05)


def test_tail_exponent_needs_two_values() -> None:
    spectra = torch.tensor([[2.0, 2.0, 0.0], [3.0, 0.0, 0.0], [0.0, 0.0, 0.0], [4.0, 2.0, 1.0]])
    assert metrics.tail_exponent(spectra).isnan().tolist() == [True, True, True, False]


def test_a_weight_instead_of_its_singular_values_is_refused() -> None:
    with pytest.raises(ValueError, match=r"effective_rank takes singular values.*singular_values"):
        metrics.effective_rank(torch.tensor([[1.0, -2.0], [0.5, 3.0]]))


@pytest.mark.parametrize("metric", [metrics.effective_rank, metrics.stable_rank])
def test_lists_are_read_as_arrays_of_floats(metric: Metric) -> None:
    for values in ([2, 1], [[3, 1], [2, 2]]):
        result = metric(values)  # type: ignore[arg-type, type-var]
        np.testing.assert_array_equal(result, metric(np.array(values, float)))


@quick
@given(
    st.lists(st.lists(st.floats(0, 100), min_size=4, max_size=4), min_size=1, max_size=3),
    st.sampled_from([*SCALE_FREE, *NORMS, metrics.tail_exponent]),
)
def test_stored_values_and_tensors_have_the_same_metrics(
    rows: list[list[float]], metric: Metric
) -> None:
    array = np.array(rows)
    values = metric(array)  # type: ignore[arg-type, type-var]
    np.testing.assert_allclose(values, metric(torch.tensor(array)).numpy(), rtol=1e-12)


# torch says 2**-3 for the two bits of this one's mantissa.
@pytest.mark.parametrize("name", sorted(metrics.LIMITS.keys() - {"float8_e5m2fnuz"}))
def test_limits_of_types_are_those_of_torch(name: str) -> None:
    limits = torch.finfo(getattr(torch, name))
    assert metrics.LIMITS[name] == (limits.eps, limits.smallest_normal)


@pytest.mark.parametrize("name", ["bfloat16", "float32"])
def test_rounding_floor_takes_the_name_of_a_type(name: str) -> None:
    floor = metrics.rounding_floor(getattr(torch, name), 2.0, 9, 16)
    assert metrics.rounding_floor(name, 2.0, 9, 16) == floor


def test_tail_fits_agree_with_weightwatcher() -> None:
    """WeightWatcher fits the eigenvalues of W^T W, which are S^2."""
    powerlaw = pytest.importorskip("weightwatcher.WW_powerlaw")
    generator = np.random.default_rng(0)
    for k, alpha in ((200, 2.2), (400, 3.5)):
        x = (1 - generator.random(k)) ** (-1 / (alpha - 1))
        fit = powerlaw.pl_fit(x, xmin=None, xmax=None, verbose=False, distribution="power_law")
        S = np.sqrt(x)
        assert metrics.tail_exponent(S) == pytest.approx(fit.alpha, rel=1e-6)
        assert metrics.tail_distance(S) == pytest.approx(fit.D, abs=1e-6)


@pytest.mark.parametrize("alpha", [2.0, 3.5])
def test_hill_exponent_of_a_power_law(alpha: float) -> None:
    x = (np.arange(1, 4001) / 4001) ** (-1 / (alpha - 1))
    for fraction in (0.05, 0.3):
        assert metrics.hill_exponent(np.sqrt(x), fraction=fraction) == pytest.approx(alpha, rel=0.1)
    assert np.isnan(metrics.hill_exponent(np.array([1.0, 1.0, 0.0])))
    with pytest.raises(ValueError, match="fraction in"):
        metrics.hill_exponent(x, fraction=1.0)


@pytest.mark.parametrize("shape", [(300, 300), (200, 800), (900, 100)])
@pytest.mark.parametrize("planted", [0, 1, 5])
def test_values_beyond_noise_are_those_that_were_planted(shape, planted: int) -> None:
    torch.manual_seed(planted)
    m, n = shape
    W = 0.1 * torch.randn(m, n, dtype=torch.float64)
    edge = 0.1 * (np.sqrt(m) + np.sqrt(n))
    U, V = (torch.linalg.qr(torch.randn(d, 5, dtype=torch.float64)).Q for d in shape)
    strengths = edge * torch.tensor([9.0, 7, 5, 4, 3], dtype=torch.float64)
    strengths[planted:] = 0
    S = torch.linalg.svdvals(W + U @ torch.diag(strengths) @ V.mT)
    assert float(metrics.values_beyond_noise(S, m, n)) == planted
    assert float(metrics.marchenko_pastur_edge(S, m, n)) == pytest.approx(edge, rel=0.01)
    numpy = metrics.values_beyond_noise(S.numpy(), m, n)
    assert float(numpy) == planted


def test_noise_seldom_has_values_beyond_its_edge() -> None:
    torch.manual_seed(0)
    S = torch.linalg.svdvals(torch.randn(400, 60, 90, dtype=torch.float64))
    counts = metrics.values_beyond_noise(S, torch.full((400,), 60), torch.full((400,), 90))
    assert counts.gt(0).double().mean() < 0.03
    assert float(metrics.values_beyond_noise(torch.zeros(4), 4, 4)) == 0


def test_mup_scale_is_of_order_one_at_every_width() -> None:
    for m, n in ((64, 256), (1024, 256), (512, 512)):
        W = torch.eye(m, n, dtype=torch.float64) * np.sqrt(m / n)
        assert float(metrics.mup_scale(torch.linalg.svdvals(W), m, n)) == pytest.approx(1)


@pytest.mark.parametrize(
    "metric",
    [
        metrics.effective_rank,
        metrics.stable_rank,
        metrics.nuclear_norm,
        metrics.frobenius_norm,
    ],
)
def test_float32_spectra_in_any_layout_keep_float32s_digits(metric) -> None:
    exact = np.random.default_rng(0).uniform(0.1, 1, (2000, 3))
    across = np.asfortranarray(exact.T.astype(np.float32))  # values of a spectrum lie apart
    np.testing.assert_allclose(metric(across), metric(across.astype(np.float64)), rtol=5e-7)
