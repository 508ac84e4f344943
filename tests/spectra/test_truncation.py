"""Leading directions against closed forms and dense decompositions in float64."""

import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

import rankscope as rs
from rankscope.spectra import Leading, Operator, decompose_leading, leading


def orthonormal(rows: int, columns: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(rows, columns, dtype=torch.float64, generator=generator)).Q


def with_values(S: Tensor, m: int, n: int) -> Tensor:
    return (orthonormal(m, len(S), 0) * S) @ orthonormal(n, len(S), 1).mT


def noise(m: int, n: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(m, n, dtype=torch.float64, generator=generator) / math.sqrt(max(m, n))


def assert_leading(part: Leading, W: Tensor, rank: int, *, tolerance: float = 1e-6) -> None:
    """Check everything a Leading says about W against a dense SVD in float64."""
    W = W.double()
    exact = torch.linalg.svdvals(W)
    k = min(rank, len(exact))
    size = max(float(exact[0]), 1e-300)
    rounding = 1e-6 * size if part.columns else 1e-10 * size
    assert part.S.shape == (k,) and part.S.dtype == torch.float64
    assert bool((part.S[:-1] >= part.S[1:]).all())
    identity = torch.eye(k, dtype=torch.float64)
    torch.testing.assert_close(part.U.mT @ part.U, identity, rtol=0, atol=1e-7)
    torch.testing.assert_close(part.Vh @ part.Vh.mT, identity, rtol=0, atol=1e-7)
    torch.testing.assert_close(part.frobenius, W.norm(), rtol=1e-10, atol=0)
    U, S, V = part.U, part.S, part.Vh.mT
    residuals = (W @ V - U * S).norm(dim=0).hypot((W.mT @ U - V * S).norm(dim=0))
    torch.testing.assert_close(part.residuals, residuals, rtol=1e-3, atol=1e-9 * size)
    # Each value has a true one within its residual, and the rest is bounded.
    nearest = (S[:, None] - exact).abs().amin(1)
    assert bool((nearest <= part.residuals + 1e-10 * size).all())
    left_out = (W - (U * S) @ V.mT).norm()
    least = exact[k:].norm()
    torch.testing.assert_close(part.remainder_norm, left_out, rtol=1e-6, atol=1e-10 * size)
    assert left_out <= (1 + tolerance) * least + rounding
    if k < len(exact):
        assert part.remainder >= exact[k] * (1 - 1e-10)
        assert part.remainder <= part.remainder_norm * (1 + 1e-9) + 1e-10 * size
    energies = float(S.square().sum()), float(exact[:k].square().sum())
    assert (
        energies[1] - energies[0]
        <= 3 * tolerance * float(least) ** 2 + rounding**2 + 1e-9 * size**2
    )


SPECTRA = {
    "power law": torch.arange(1, 401, dtype=torch.float64) ** -1.0,
    "12 decades": 10.0 ** -torch.linspace(0, 12, 400, dtype=torch.float64),
    "clusters": torch.tensor([3.0] * 30 + [2.0] * 40 + [1.0] * 330, dtype=torch.float64),
    "all equal": torch.ones(400, dtype=torch.float64),
    "rank 7": torch.arange(7, 0, -1, dtype=torch.float64),
    "rank 7 and dust": torch.cat([torch.full((7,), 5.0), torch.full((393,), 1e-4)]).double(),
}


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("shape", [(400, 400), (400, 900), (900, 400)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("rank", [1, 20, 64])
def test_known_spectra(name, shape, dtype, rank) -> None:
    W = with_values(SPECTRA[name], *shape).to(dtype)
    assert_leading(leading(W, rank), W, rank)


@pytest.mark.parametrize("tolerance", [1e-2, 1e-4, 1e-6, 1e-9])
def test_flat_spectra_reach_the_tolerance(tolerance) -> None:
    W = noise(1000, 700)
    part = leading(W, 40, tolerance=tolerance)
    assert_leading(part, W, 40, tolerance=tolerance)
    assert part.excess <= tolerance


def test_looser_tolerances_need_smaller_spaces() -> None:
    W = noise(900, 900).float()
    columns = [int(leading(W, 32, tolerance=t).columns) for t in (1e-2, 1e-4, 1e-6)]
    assert 0 < columns[0] < columns[1] < columns[2]


def test_a_change_of_low_rank_beside_noise() -> None:
    W = with_values(torch.linspace(30, 5, 16, dtype=torch.float64), 800, 800) + noise(800, 800)
    part = leading(W.float(), 16)
    assert_leading(part, W.float(), 16)
    exact = torch.linalg.svdvals(W)
    torch.testing.assert_close(part.S, exact[:16], rtol=1e-6, atol=0)
    assert exact[16] <= part.remainder <= 1.3 * exact[16]


def test_strong_directions_beside_noise_cost_no_second_space() -> None:
    flat = noise(900, 900)
    strong = with_values(torch.linspace(1000, 100, 32, dtype=torch.float64), 900, 900)
    W = (strong + flat).float()
    part = leading(W, 40)
    assert_leading(part, W, 40)
    assert 0 < part.columns <= leading(flat.float(), 40).columns


@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1e30, 1e150, 2.0**1000])
def test_scales(scale) -> None:
    W = noise(500, 300)
    part, scaled = leading(W, 10), leading(W * scale, 10)
    torch.testing.assert_close(scaled.S / scale, part.S, rtol=1e-9, atol=0)
    torch.testing.assert_close(scaled.remainder_norm / scale, part.remainder_norm)
    torch.testing.assert_close(scaled.frobenius / scale, W.norm(), rtol=1e-12, atol=0)


@pytest.mark.parametrize("scale", [1e-40, 1e-30, 1e30])
def test_scales_of_float32(scale) -> None:
    W = (noise(500, 300) * scale).float()
    torch.testing.assert_close(
        leading(W, 5).S, torch.linalg.svdvals(W.double())[:5], rtol=1e-5, atol=0
    )


@pytest.mark.parametrize("shape", [(1, 1), (3, 500), (500, 3), (40, 40), (300, 300)], ids=str)
@pytest.mark.parametrize("rank", [1, 3, 40, 1000])
def test_small_matrices_and_large_ranks_use_the_full_solver(shape, rank) -> None:
    if shape == (300, 300) and rank < 100:
        pytest.skip("large enough for a Krylov space")
    W = noise(*shape).float()
    part = leading(W, rank)
    assert part.columns == 0
    assert_leading(part, W, rank)


def test_all_directions_leave_nothing_out() -> None:
    part = leading(noise(30, 20), 20)
    assert part.remainder_norm == 0.0 and part.remainder <= 1e-10


@pytest.mark.parametrize("shape", [(20, 30), (500, 400)], ids=str)
def test_zero_matrix(shape) -> None:
    part = leading(torch.zeros(*shape), 8)
    for values in (part.S, part.residuals, part.frobenius, part.remainder, part.remainder_norm):
        assert not values.any()
    torch.testing.assert_close(part.U.mT @ part.U, torch.eye(8, dtype=torch.float64))
    torch.testing.assert_close(part.Vh @ part.Vh.mT, torch.eye(8, dtype=torch.float64))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("n", [20, 600])
def test_non_finite_entries_give_nan_and_a_warning(bad, n) -> None:
    W = torch.ones(n, 500)
    W[3, 4] = bad
    with pytest.warns(RuntimeWarning, match="NaN for 'x'"):
        part = leading(W, 5)
    assert part.S.isnan().all() and part.remainder.isnan() and part.U.shape == (n, 5)


def test_leading_axes() -> None:
    W = noise(600, 300).reshape(2, 300, 300)
    stack = leading(W, 6)
    assert stack.U.shape == (2, 300, 6) and stack.remainder.shape == (2,)
    torch.testing.assert_close(stack.S[1], leading(W[1], 6).S)


def test_a_product_is_never_formed() -> None:
    left, right = noise(100_000, 8), noise(90_000, 8, 1)
    part = leading(rs.Product(left, right), 4)
    exact = torch.linalg.svdvals(torch.linalg.qr(left).R @ torch.linalg.qr(right).R.mT)
    torch.testing.assert_close(part.S, exact[:4], rtol=1e-12, atol=0)
    torch.testing.assert_close(part.remainder_norm, exact[4:].norm(), rtol=1e-10, atol=0)
    assert part.U.shape == (100_000, 4) and part.Vh.shape == (4, 90_000)


@pytest.mark.parametrize("inner", [10, 100, 320, 900])
def test_products_of_any_width(inner) -> None:
    product = rs.Product(noise(700, inner), noise(600, inner, 1))
    W = product.left @ product.right.mT
    assert_leading(leading(product, 10), W, 10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_an_operator_gives_what_its_matrix_gives(dtype) -> None:
    W0, B, A = noise(500, 400).to(dtype), noise(500, 4, 1).to(dtype), noise(4, 400, 2).to(dtype)
    adapted = Operator(
        (500, 400),
        lambda X: W0 @ X + B @ (A @ X),
        lambda Y: W0.mT @ Y + A.mT @ (B.mT @ Y),
        dtype=dtype,
    )
    part = leading(adapted, 12)
    dense = W0.double() + B.double() @ A.double()
    assert part.columns > 0
    torch.testing.assert_close(part.S, torch.linalg.svdvals(dense)[:12], rtol=1e-5, atol=0)
    torch.testing.assert_close(part.frobenius, dense.norm(), rtol=1e-6, atol=0)
    assert leading(adapted, 390).columns == 0


def test_the_global_generator_and_the_input_stay_as_they_are() -> None:
    W = noise(600, 500).float()
    before, state = W.clone(), torch.get_rng_state()
    first, second = leading(W, 9), leading(W, 9)
    assert torch.equal(torch.get_rng_state(), state) and torch.equal(W, before)
    assert torch.equal(first.U, second.U) and torch.equal(first.S, second.S)


@settings(max_examples=25, deadline=None)
@given(
    m=st.integers(1, 400),
    n=st.integers(1, 400),
    rank=st.integers(1, 40),
    decay=st.floats(0, 3),
    seed=st.integers(0, 100),
)
def test_any_shape_and_decay(m, n, rank, decay, seed) -> None:
    S = torch.arange(1, min(m, n) + 1, dtype=torch.float64) ** -decay
    W = ((orthonormal(m, len(S), seed) * S) @ orthonormal(n, len(S), seed + 1).mT).float()
    assert_leading(leading(W, rank), W, rank)


def test_a_transposed_matrix_has_the_transposed_part() -> None:
    W = noise(700, 300)
    one, other = leading(W, 5), leading(W.mT, 5).mT
    torch.testing.assert_close(one.S, other.S)
    torch.testing.assert_close((one.U * one.S) @ one.Vh, (other.U * other.S) @ other.Vh)


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="rank: expected"):
        leading(torch.ones(3, 3), 0)
    with pytest.raises(ValueError, match="tolerance: expected"):
        leading(torch.ones(3, 3), 1, tolerance=0.0)
    with pytest.raises(ValueError, match="float32 or float64"):
        Operator((2, 2), torch.clone, torch.clone, dtype=torch.bfloat16)


def test_many_matrices_by_name() -> None:
    matrices = {"a": noise(300, 400), "b": noise(20, 30).float(), "c": noise(300, 400, 1)}
    matrices["c"][0, 0] = math.nan
    failed: list[str] = []
    parts = decompose_leading(matrices, 4, ranks={"a": 9}, threads=2, on_failure=failed.extend)
    assert list(failed) == ["c"] and parts["c"].S.isnan().all()
    assert parts["a"].S.shape == (9,) and parts["b"].S.shape == (4,)
    assert_leading(parts["a"].cut(4), matrices["a"], 4)
    assert_leading(parts["b"], matrices["b"], 4)


@pytest.mark.parametrize("rank", [1, 5, 12])
def test_a_part_can_be_cut(rank) -> None:
    W = noise(400, 300)
    assert_leading(leading(W, 12).cut(rank), W, rank)
