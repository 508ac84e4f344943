"""Public functions: closed forms, invariances, every kind of input, and failures."""

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rankscope.matrices.change import Change
from rankscope.matrices.product import Product, product_change
from rankscope.matrices.reading import View
from rankscope.spectra import decompose, fastest, leading, singular_values, svd, tasks

DTYPES = pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str
)


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def exact_values(W: Tensor) -> Tensor:
    return torch.from_numpy(np.linalg.svd(W.detach().double().numpy(), compute_uv=False))


def assert_values(values: Tensor, exact: Tensor, *, tolerance: float = 1e-11) -> None:
    """Compare singular values, up to `tolerance` of the largest."""
    assert values.dtype == torch.float64
    torch.testing.assert_close(values, exact, rtol=0, atol=tolerance * float(exact.max()))


# Closed forms.


@DTYPES
def test_diagonal(dtype) -> None:
    W = torch.zeros(3, 5, dtype=dtype)
    W[0, 2], W[1, 0], W[2, 4] = -2.0, 0.5, 4.0
    assert_values(singular_values(W), torch.tensor([4.0, 2.0, 0.5]).double())
    result = svd(W)
    assert result.U.abs().argmax(0).tolist() == [2, 0, 1]
    assert result.Vh.abs().argmax(1).tolist() == [4, 2, 0]
    torch.testing.assert_close((result.U * result.S) @ result.Vh, W.double())


@DTYPES
def test_rank_one(dtype) -> None:
    u, v = torch.tensor([3.0, 4.0]), torch.tensor([2.0, -1.0, 2.0])
    result = svd(torch.outer(u, v).to(dtype), rank=1)
    assert_values(result.S, torch.tensor([15.0, 0.0]).double())
    torch.testing.assert_close(result.U[:, 0].abs(), (u / 5).abs().double())
    torch.testing.assert_close(result.Vh[0].abs(), (v / 3).abs().double())
    assert (result.U[0, 0] * result.Vh[0, 0]) > 0


def test_hilbert() -> None:
    """Check that the product of the 6 x 6 Hilbert matrix's values is 1 / 186313420339200000."""
    i = torch.arange(6, dtype=torch.float64)
    S = singular_values(1 / (i[:, None] + i + 1))
    assert float(S.prod()) == pytest.approx(1 / 186313420339200000, rel=1e-8)


@pytest.mark.parametrize(
    ("dtype", "magnitude"),
    [
        *((torch.float32, magnitude) for magnitude in (1e-45, 1e-30, 1e30, 1e38)),
        *((torch.float64, magnitude) for magnitude in (1e-250, 1e200)),
    ],
)
def test_extreme_magnitudes(dtype, magnitude) -> None:
    W = torch.diag(torch.tensor([1.0, 2.0, 0.0], dtype=dtype)) * magnitude
    assert_values(singular_values(W), exact_values(W))
    assert_values(singular_values(Product(W, torch.eye(3, dtype=dtype))), exact_values(W))


# Invariances.

matrices = st.builds(
    lambda m, n, seed, falloff: normal(m, n, seed=seed) * 10.0 ** -torch.linspace(0, falloff, n),
    st.integers(1, 12),
    st.integers(1, 12),
    st.integers(0, 1000),
    st.floats(0, 8),
)


@settings(max_examples=25, deadline=None)
@given(matrices, st.integers(-20, 20), st.integers(0, 1000))
def test_values_are_invariant_and_scale(W, power, seed) -> None:
    m, n = W.shape
    S = singular_values(W)
    assert (S.diff() <= 0).all() and (S >= 0).all()
    assert float(S.square().sum()) == pytest.approx(float(W.double().square().sum()), rel=1e-12)
    assert_values(singular_values(W.mT), S)
    assert_values(singular_values(W * 2.0**power), S * 2.0**power)
    generator = torch.Generator().manual_seed(seed)
    rows, columns = (torch.randperm(size, generator=generator) for size in (m, n))
    assert_values(singular_values(W[rows][:, columns]), S)
    rotation = torch.linalg.qr(normal(n, n, seed=seed, dtype=torch.float64)).Q
    assert_values(singular_values(W.double() @ rotation), S)
    product_values = singular_values(Product(W, rotation))
    assert_values(product_values, S[: len(product_values)])


# Kinds of input.


@DTYPES
@pytest.mark.parametrize("shape", [(1, 1), (1, 6), (6, 1), (30, 20), (20, 30)], ids=str)
def test_stored_formats(dtype, shape) -> None:
    """Values are exact for the numbers as they are stored."""
    W = normal(*shape, dtype=dtype)
    assert_values(singular_values(W), exact_values(W), tolerance=1e-13)


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0, 0)])
def test_empty(shape) -> None:
    result = svd(torch.zeros(shape))
    assert (result.U.shape, result.S.shape, result.Vh.shape) == ((shape[0], 0), (0,), (0, shape[1]))
    assert singular_values(Product(torch.zeros(3, 0), torch.zeros(5, 0))).shape == (0,)


def test_tensors_views_products_and_stacks() -> None:
    W = normal(4, 6)
    view = View(name="fc", W=W, kind="linear", parameter="fc.weight", out_axes=(), in_axes=())
    product = Product(normal(4, 2), normal(6, 2, seed=1))
    values = singular_values(
        {"tensor": W, "view": view, "product": product, "stack": W.expand(3, 4, 6)}
    )
    assert list(values) == ["tensor", "view", "product", "stack"]
    exact = exact_values(W)
    assert_values(values["tensor"], exact)
    assert_values(values["view"], exact)
    assert_values(
        values["product"], exact_values(product.left @ product.right.mT)[:2], tolerance=1e-6
    )
    assert_values(values["stack"], exact.expand(3, 4))
    assert_values(singular_values(view), exact)


def test_leading_axes() -> None:
    W = normal(2, 3, 7, 5)
    result = svd(W, rank=4)
    assert (result.U.shape, result.S.shape, result.Vh.shape) == (
        (2, 3, 7, 4),
        (2, 3, 5),
        (2, 3, 4, 5),
    )
    for i, j in np.ndindex(2, 3):
        assert_values(result.S[i, j], exact_values(W[i, j]))
        alone = svd(W[i, j], rank=4)
        approximation = (alone.U * alone.S[:4]) @ alone.Vh
        torch.testing.assert_close(
            (result.U * result.S[..., None, :4] @ result.Vh)[i, j], approximation
        )
    batch = Product(normal(2, 3, 7, 2), normal(2, 3, 5, 2, seed=1))
    assert singular_values(batch).shape == (2, 3, 2)


def test_many_shapes_agree_with_one_by_one(monkeypatch) -> None:
    """Stack equal shapes, cut stacks into pieces, spread them over threads."""
    shapes = [(6, 9), (9, 6), (6, 6), (40, 30)] * 7
    named = {f"w{i}": normal(*shape, seed=i) for i, shape in enumerate(shapes)}
    named["w3"] = named["w3"] * 0 + torch.outer(normal(40), normal(30))
    monkeypatch.setattr(tasks, "CPU_STACK_BYTES", 5 * 8 * (54 + 4 * 36))
    ranks = {name: i % 4 for i, name in enumerate(named)}
    for threads in (1, 3, None):
        together = decompose(named, ranks=ranks, threads=threads)
        assert list(together) == list(named)
        for name, W in named.items():
            alone = svd(W, rank=ranks[name])
            assert_values(together[name].S, exact_values(W))
            torch.testing.assert_close(together[name].S, alone.S, rtol=0, atol=1e-11)
            projection = together[name].U @ together[name].U.mT
            # Beyond the first, directions of w3 are those of its rounding, 1e-8 of the largest.
            torch.testing.assert_close(projection, alone.U @ alone.U.mT, rtol=0, atol=1e-8)


@pytest.mark.parametrize("shape", [(60, 60), (40, 90), (90, 40)], ids=str)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_leading_directions_span_the_right_spaces(shape, dtype) -> None:
    W = normal(*shape, dtype=dtype)
    U, S, Vh = np.linalg.svd(W.double().numpy(), full_matrices=False)
    result = decompose({"W": W}, ranks={"W": 10})["W"]
    assert_values(result.S, torch.from_numpy(S))
    for ours, theirs in ((result.U, U), (result.Vh.mT, Vh.T)):
        cosines = np.linalg.svd(ours.numpy().T @ theirs[:, :10], compute_uv=False)
        np.testing.assert_allclose(cosines, 1.0, atol=1e-10)
        overlaps = np.abs((ours.numpy() * theirs[:, :10]).sum(0))
        np.testing.assert_allclose(overlaps, 1.0, atol=1e-8)
    signs = np.einsum("mi,mn,in->i", result.U.numpy(), W.double().numpy(), result.Vh.numpy())
    np.testing.assert_allclose(signs, S[:10], atol=1e-10)


def test_ranks_beyond_the_matrix() -> None:
    results = decompose({"a": normal(5, 3), "b": normal(5, 3)}, ranks={"a": 100, "c": 7})
    assert results["a"].U.shape == (5, 3)
    assert results["b"].U.shape == (5, 0)
    assert results["b"].Vh.shape == (0, 3)


# Changes of products.


@pytest.mark.parametrize("bits", [10, 40])
@pytest.mark.parametrize("shape", [(48, 48, 12), (30, 50, 12), (20, 24, 16)], ids=str)
def test_product_change_is_exact_at_any_size(bits, shape) -> None:
    """Use factors of integers and 2^-bits times integers, whose products are exact in float64."""
    m, n, inner = shape
    generator = torch.Generator().manual_seed(0)
    K0, A = (torch.randint(-32, 33, (m, inner), generator=generator).double() for _ in range(2))
    Q0, B = (torch.randint(-32, 33, (n, inner), generator=generator).double() for _ in range(2))
    step = 2.0**-bits
    now, before = Product(K0 + step * A, Q0 + step * B), Product(K0, Q0)
    change = step * (A @ Q0.mT + K0 @ B.mT + step * (A @ B.mT))
    result = svd(product_change(now, before))
    exact = exact_values(change)[: len(result.S)]
    assert_values(result.S, exact, tolerance=1e-12)
    approximation = (result.U * result.S) @ result.Vh
    torch.testing.assert_close(approximation / exact[0], change / exact[0], rtol=0, atol=1e-10)


# Failures.


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
def test_not_finite(bad, dtype) -> None:
    named = {name: normal(6, 4, seed=i, dtype=dtype) for i, name in enumerate("abcd")}
    named["b"][2, 3] = bad
    factor = normal(4, 2)
    factor[0, 0] = bad
    everything = {**named, "p": Product(normal(5, 2), factor)}
    with pytest.warns(RuntimeWarning, match="'b', 'p'") as caught:
        results = decompose(everything, ranks=dict.fromkeys(everything, 2))
    assert len(caught) == 1
    for name in ("b", "p"):
        assert results[name].S.isnan().all()
        assert results[name].U.isnan().all()
        assert results[name].Vh.isnan().all()
    assert results["p"].U.shape == (5, 2)
    for name in ("a", "c", "d"):
        assert_values(results[name].S, exact_values(named[name]))


def test_product_that_overflows() -> None:
    huge = torch.full((2, 2), 1e300, dtype=torch.float64)
    with pytest.warns(RuntimeWarning, match="'x'"):
        assert singular_values(Product(huge, huge)).isnan().all()


def test_finite_entries_may_have_a_sum_that_is_not() -> None:
    W = torch.full((5, 8), 3e38)
    assert W.sum().isinf()
    assert_values(singular_values({"W": W})["W"], exact_values(W))


def test_a_change_may_sum_to_zero() -> None:
    W0, W = torch.ones(3, 3), torch.ones(3, 3)
    W[0] += torch.tensor([1.0, -1.0, 0.0])
    values = decompose({"moved": Change(W, W0), "still": Change(W0, W0.clone())})
    assert_values(values["moved"].S, torch.tensor([2**0.5, 0, 0], dtype=torch.float64))
    assert values["still"].S.eq(0).all()


@pytest.fixture
def by_torch(monkeypatch) -> None:
    """Decompose by torch's functions on any processor."""
    monkeypatch.setattr(fastest, "_of_cpu", fastest.Torch)


def fail(*_: object, **__: object) -> None:
    raise torch.linalg.LinAlgError("did not converge")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("rank", [0, 2])
def test_solver_that_fails_is_replaced(by_torch, monkeypatch, dtype, rank) -> None:
    broken = ("eigh", "eigvalsh") if dtype == torch.float32 else ("svd", "svdvals")
    for name in broken:
        monkeypatch.setattr(torch.linalg, name, fail)
    named = {name: normal(6, 4, seed=i, dtype=dtype) for i, name in enumerate("abc")}
    results = decompose(named, ranks=dict.fromkeys(named, rank), threads=2)
    for name, W in named.items():
        assert_values(results[name].S, exact_values(W))
        assert results[name].U.shape == (6, rank)


def test_solvers_that_all_fail(by_torch, monkeypatch) -> None:
    for name in ("eigh", "eigvalsh", "svd", "svdvals"):
        monkeypatch.setattr(torch.linalg, name, fail)
    product = Product(normal(5, 2), normal(7, 2))
    with pytest.warns(RuntimeWarning, match="'a', 'b', 'p'") as caught:
        results = decompose({"a": normal(3, 4), "b": normal(3, 4), "p": product}, ranks={"p": 2})
    assert len(caught) == 1
    assert results["a"].S.shape == (3,)
    assert (results["p"].U.shape, results["p"].S.shape, results["p"].Vh.shape) == (
        (5, 2),
        (2,),
        (2, 7),
    )
    assert all(result.S.isnan().all() for result in results.values())


def test_user_mistakes() -> None:
    for dtype in (torch.int64, torch.complex64):
        with pytest.raises(ValueError, match=r"'w': expected real floating-point .*, got torch"):
            decompose({"w": torch.ones(2, 2).to(dtype)})
    with pytest.raises(ValueError, match=r"matrix 'w': expected 2 axes, got shape \(2, 2, 2\)"):
        decompose({"w": torch.ones(2, 2, 2)})
    with pytest.raises(ValueError, match=r"rank: .* got -1"):
        svd(torch.ones(2, 2), rank=-1)
    with pytest.raises(ValueError, match=r"threads: .* got 0"):
        decompose({}, threads=0)


# Nothing else changes.


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_decompose_changes_nothing_else(dtype) -> None:
    W = normal(8, 5, dtype=dtype).mT.requires_grad_()
    original, random_state, threads = (
        W.detach().clone(),
        torch.get_rng_state(),
        torch.get_num_threads(),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = decompose({"a": W, "b": W[:, ::2]}, ranks={"a": 5, "b": 2}, threads=2)
    assert not result["a"].U.requires_grad
    assert torch.equal(W, original)
    assert W.grad is None
    assert torch.equal(torch.get_rng_state(), random_state)
    assert torch.get_num_threads() == threads
    assert_values(result["b"].S, exact_values(W[:, ::2]))


@pytest.mark.parametrize("threads", [1, 2])
def test_matrices_decide_the_device_and_not_the_default(threads: int) -> None:
    """Libraries are handed addresses; one of another device would end the process."""
    W, hard, large = normal(9, 14), normal(9, 14), normal(400, 500)
    hard *= 10.0 ** -torch.linspace(0, 9, 9)[:, None]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.device("meta"):
            values = singular_values({"W": W, "hard": hard, "precise": W.double()})
            directions, part = svd(W, 3), leading(large, 4)
    finally:
        torch.set_num_threads(before)
    for name, x in (("W", W), ("hard", hard), ("precise", W)):
        assert_values(values[name], exact_values(x))
    assert_values(directions.S, exact_values(W))
    torch.testing.assert_close(part.S, exact_values(large)[:4], rtol=1e-5, atol=0)


@pytest.mark.gpu
def test_gpu_agrees_with_cpu() -> None:
    """Solve stacks with hard matrices on the device; results stay there."""
    hard = normal(60, 80) * 10.0 ** -torch.linspace(0, 9, 60)[:, None]
    named = {f"w{i}": normal(60, 80, seed=i) for i in range(5)} | {"hard": hard, "zero": hard * 0}
    named |= {"tall": normal(90, 20), "precise": hard.double(), "half": normal(9, 7).bfloat16()}
    left, right = normal(60, 12, dtype=torch.float64), normal(50, 12, seed=1, dtype=torch.float64)
    moved = {name: W.cuda() for name, W in named.items()}
    results = decompose(
        {**moved, "product": Product(left.cuda(), right.cuda())}, ranks=dict.fromkeys(named, 9)
    )
    assert all(result.S.is_cuda and result.U.is_cuda for result in results.values())
    assert_values(results["product"].S.cpu(), exact_values(left @ right.mT)[:12])
    for name, W in named.items():
        assert_values(results[name].S.cpu(), exact_values(W))
        U, S, V = results[name].U.cpu(), results[name].S.cpu(), results[name].Vh.cpu().mT
        core = torch.diag(S[: U.shape[1]])
        torch.testing.assert_close(U.mT @ W.double() @ V, core, rtol=0, atol=1e-10 * float(S[0]))
        torch.testing.assert_close(U.mT @ U, torch.eye(U.shape[1]).double(), rtol=0, atol=1e-7)
        torch.testing.assert_close(V.mT @ V, torch.eye(U.shape[1]).double(), rtol=0, atol=1e-7)
    named["w1"][0, 0] = math.nan
    with pytest.warns(RuntimeWarning, match="'w1'"):
        values = singular_values({name: W.cuda() for name, W in named.items()})
    assert values["w1"].isnan().all()
    assert_values(values["w2"].cpu(), exact_values(named["w2"]))


# Arrays and lists.


@pytest.mark.parametrize("given_as", [np.asarray, np.ndarray.tolist], ids=["array", "list"])
def test_numpy_arrays_and_lists(given_as) -> None:
    W = normal(4, 3, dtype=torch.float64)
    x = given_as(W.numpy())
    torch.testing.assert_close(singular_values(x), singular_values(W), rtol=0, atol=0)
    torch.testing.assert_close(singular_values({"a": x})["a"], singular_values(W), rtol=0, atol=0)
    result = svd(x)
    torch.testing.assert_close((result.U * result.S) @ result.Vh, W)
    again = decompose({"a": x}, ranks={"a": 3})["a"]
    torch.testing.assert_close(again.U, result.U, rtol=0, atol=0)


def test_numbers_alone_and_empty_devices_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'x': expected 2 axes or more, got shape \(3,\)"):
        decompose({"x": [1.0, 2.0, 3.0]})
    with pytest.raises(ValueError, match="'x' is on the meta device and has no values"):
        singular_values(torch.zeros(2, 2, device="meta"))
