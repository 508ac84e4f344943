"""Inner basis: a rotation to orthogonal columns that keeps small ones to relative accuracy."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.theory.gauge import overlap, separated
from theory.cases import normal

examples = settings(max_examples=15, deadline=None)


@examples
@given(st.integers(1, 9), st.integers(0, 99))
def test_columns_become_orthogonal_by_a_rotation(r: int, seed: int) -> None:
    factors = normal(10, r, seed=seed)
    before = factors.clone()
    turned = separated(factors)
    assert overlap(turned) < 1e-12
    # factors R with R orthogonal: all products of factors stay, and so do the singular values.
    torch.testing.assert_close(turned @ turned.mT, factors @ factors.mT)
    lengths = turned.norm(dim=0).sort(descending=True).values
    torch.testing.assert_close(lengths, torch.linalg.svdvals(factors))
    assert torch.equal(factors, before)


@examples
@given(st.integers(0, 99))
def test_columns_of_very_different_size_keep_their_relative_accuracy(seed: int) -> None:
    # Columns sizes * Q, sheared by a well-conditioned unit triangle: to leading order the small
    # column loses its part along the large ones, and keeps the rest exactly.
    size = torch.tensor([1.0, 1e-30, 1e-60], dtype=torch.float64)
    Q = torch.linalg.qr(normal(8, 3, seed=seed)).Q
    shear = torch.tensor([[1, 0.5, -0.7], [0, 1, 0.6], [0, 0, 1]], dtype=torch.float64)
    turned = separated((Q @ shear) * size)
    torch.testing.assert_close(turned / size, Q, rtol=0, atol=1e-13)


def test_overlap_is_the_largest_cosine() -> None:
    factors = torch.tensor([[1, 3e-20, 0.0], [0, 4e-20, 0.0]], dtype=torch.float64)
    assert abs(overlap(factors) - 0.6) < 1e-15
    assert overlap(torch.eye(3, dtype=torch.float64)) == 0


def test_empty_columns_stay_empty() -> None:
    factors = torch.zeros(4, 3, dtype=torch.float64)
    factors[:, 1] = 1.0
    assert torch.equal(separated(factors), factors)
