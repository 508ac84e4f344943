"""Decompositions of products against those of the matrices they stand for."""

import pytest
import torch
from torch import Tensor

from rankscope.lora.factors import core
from rankscope.matrices import Product


def normal(m: int, n: int, seed: int) -> Tensor:
    return torch.randn(m, n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("m", "n", "r"), [(30, 20, 4), (20, 30, 4), (5, 40, 8), (40, 5, 8), (6, 6, 9)]
)
def test_best_approximations(m: int, n: int, r: int) -> None:
    product = Product(normal(m, r, 0), normal(n, r, 1))
    W = product.left @ product.right.mT
    U, S, Vh = torch.linalg.svd(W, full_matrices=False)
    result = core(product)
    k = min(m, n, r)
    torch.testing.assert_close(result.S, S[:k])
    for rank in range(k + 1):
        best = result.best(product, rank)
        expected = (U[:, :rank] * S[:rank]) @ Vh[:rank]
        torch.testing.assert_close(best.left @ best.right.mT, expected)
        # Both factors have the same size, so neither over- nor underflows in a short format.
        torch.testing.assert_close(best.left.mT @ best.left, torch.diag(S[:rank]))
        torch.testing.assert_close(best.right.mT @ best.right, torch.diag(S[:rank]))
    vectors = result.directions(product, k)
    torch.testing.assert_close(vectors.left.mT @ W @ vectors.right, torch.diag(S[:k]))


def test_factors_of_lower_rank_than_their_width() -> None:
    """As right after the start of a training, when B is zero, or with one direction twice."""
    left = normal(12, 2, 0) @ normal(2, 6, 1)
    product = Product(left, normal(9, 6, 2))
    result = core(product)
    assert int((result.S > 0).sum()) == 2
    best = result.best(product, 6)
    torch.testing.assert_close(best.left @ best.right.mT, left @ product.right.mT)
    zero = Product(torch.zeros(12, 6), normal(9, 6, 2))
    assert core(zero).best(zero, 3).left.abs().max() == 0


def test_factors_of_very_different_size() -> None:
    product = Product(1e-12 * normal(12, 4, 0), 1e12 * normal(9, 4, 1))
    W = product.left @ product.right.mT
    best = core(product).best(product, 4)
    torch.testing.assert_close(best.left @ best.right.mT, W)
    torch.testing.assert_close(best.left.norm(), best.right.norm())
