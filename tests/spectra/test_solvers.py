"""Solvers on spectra known by construction, down to values that a Gram matrix cannot resolve."""

import numpy as np
import pytest
import torch
from torch import Tensor

from rankscope.spectra.engine import Torch
from rankscope.spectra.solvers import Svd, by_gram, direct, of_product

SOLVERS = pytest.mark.parametrize("solver", [by_gram, direct], ids=["gram", "direct"])
SHAPES = pytest.mark.parametrize("shape", [(40, 40), (40, 150), (150, 40)], ids=str)


def orthonormal(rows: int, columns: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(rows, columns, dtype=torch.float64, generator=generator)).Q


def with_values(S: Tensor, m: int, n: int) -> Tensor:
    """Return an m x n matrix with singular values S."""
    return (orthonormal(m, len(S), 0) * S) @ orthonormal(n, len(S), 1).mT


def falling(k: int, decades: float) -> Tensor:
    """Return k values that fall geometrically from 1 over some decades."""
    return 10.0 ** -torch.linspace(0, decades, k, dtype=torch.float64)


def assert_decomposes(result: Svd, i: int, W: Tensor, exact: Tensor) -> None:
    """Check matrix i of a stack: its values, orthonormal U and V, and U^T W V = diag(S).

    Tolerances are in units of the largest value.
    """
    U, S, V = result.U[i], result.S[i], result.Vh[i].mT
    tolerance = 1e-11 * float(exact.max())
    torch.testing.assert_close(S, exact, rtol=0, atol=tolerance)
    identity = torch.eye(U.shape[1], dtype=torch.float64)
    torch.testing.assert_close(U.mT @ U, identity, rtol=0, atol=1e-7)
    torch.testing.assert_close(V.mT @ V, identity, rtol=0, atol=1e-7)
    core = torch.diag(S[: U.shape[1]])
    torch.testing.assert_close(U.mT @ W.double() @ V, core, rtol=0, atol=tolerance)


def exact_values(W: Tensor) -> Tensor:
    return torch.from_numpy(np.linalg.svd(W.double().numpy(), compute_uv=False))


@SOLVERS
@SHAPES
@pytest.mark.parametrize("decades", [0.0, 2.0, 4.9, 5.1, 8.0, 12.0])
def test_geometric_spectrum(solver, shape, decades) -> None:
    S = falling(40, decades)
    W = with_values(S, *shape)
    torch.testing.assert_close(solver(W[None], 0).S[0], S, rtol=0, atol=1e-11)
    assert_decomposes(solver(W[None], 40), 0, W, S)


@SOLVERS
@SHAPES
@pytest.mark.parametrize("rank", [0, 1, 7, 40])
def test_exact_rank(solver, shape, rank) -> None:
    """Use factors of small integers, whose product has this rank exactly even in float32."""
    generator = torch.Generator().manual_seed(rank)
    m, n = shape
    left = torch.randint(-4, 5, (m, rank), generator=generator).float()
    right = torch.randint(-4, 5, (rank, n), generator=generator).float()
    W = left @ right
    result = solver(W[None], 40)
    torch.testing.assert_close(solver(W[None], 0).S, result.S, rtol=0, atol=1e-9)
    assert_decomposes(result, 0, W, exact_values(W))


def test_small_values_keep_their_vectors() -> None:
    """Recover directions of values near 1e-7 of the largest, which one Gram matrix mixes up."""
    S = falling(30, 9.0)
    U, V = orthonormal(50, 30, 0), orthonormal(80, 30, 1)
    result = by_gram(((U * S) @ V.mT)[None], 30)
    good = S > 1e-8
    assert ((result.U[0] * U).sum(0).abs()[good] > 1 - 1e-6).all()
    assert ((result.Vh[0].mT * V).sum(0).abs()[good] > 1 - 1e-6).all()


def test_stack_of_easy_and_hard_matrices() -> None:
    """Solve matrices that need refining, for different numbers of values, in one stack."""
    stack = torch.stack(
        [
            with_values(falling(40, 1.0), 40, 60),
            with_values(falling(40, 8.0), 40, 60),
            torch.zeros(40, 60, dtype=torch.float64),
            with_values(torch.tensor([1e3, 1.0, 1e-6], dtype=torch.float64), 40, 60),
            with_values(falling(40, 12.0), 40, 60) * 1e-30,
        ]
    )
    result = by_gram(stack, 40)
    for i, W in enumerate(stack):
        assert_decomposes(result, i, W, exact_values(W))
    values = by_gram(stack, 0).S
    torch.testing.assert_close(values / values[:, :1], result.S / result.S[:, :1], equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(2, 5, 3), (1, 300, 2500)], ids=str)
def test_gram_fills_the_lower_half(dtype, shape) -> None:
    W = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    expected = torch.einsum("bij,bkj->bik", W.double(), W.double()).tril()
    torch.testing.assert_close(Torch().gram(W).tril(), expected, rtol=1e-12, atol=1e-10)
    torch.testing.assert_close(Torch().gram(W.mT).tril(), (W.double().mT @ W.double()).tril())


@SOLVERS
@pytest.mark.parametrize("shape", [(30, 20, 4), (20, 30, 4), (6, 30, 10), (30, 6, 10), (3, 4, 9)])
@pytest.mark.parametrize("rank", [0, 2, None])
def test_product_agrees_with_dense(solver, shape, rank) -> None:
    m, n, inner = shape
    k = min(shape)
    left = torch.randn(m, inner, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    right = torch.randn(n, inner, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    W = left @ right.mT
    r = k if rank is None else rank
    result = of_product(left[None], right[None], r, solver)
    assert result.U.shape == (1, m, r)
    assert result.Vh.shape == (1, r, n)
    assert_decomposes(result, 0, W, exact_values(W)[:k])
