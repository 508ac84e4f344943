"""Triangular factors by blocks: those of the whole matrix up to signs."""

import pytest
import torch

from rankscope.spectra.guards import wrong_triangles
from rankscope.spectra.tall import by_cholesky, by_reflections, triangular


@pytest.mark.parametrize(
    "shape", [(3, 2048, 16), (2, 1000, 128), (2, 257, 5), (2, 300, 200), (1, 40, 60), (2, 256, 9)]
)
@pytest.mark.parametrize("way", [triangular, by_reflections])
def test_blocks_give_the_factor_of_the_whole(way, shape: tuple[int, int, int]) -> None:
    generator = torch.Generator().manual_seed(0)
    A = torch.randn(shape, generator=generator, dtype=torch.float64)
    A = A * 10.0 ** -torch.linspace(0, 12, shape[2], dtype=torch.float64)  # columns of many sizes
    R, whole = way(A), torch.linalg.qr(A, mode="r").R
    assert R.shape == whole.shape
    lengths = A.norm(dim=1, keepdim=True)
    torch.testing.assert_close(R.abs() / lengths, whole.abs() / lengths, rtol=0, atol=1e-13)
    assert not wrong_triangles(A, R).any()


def test_columns_of_zeros_are_zero() -> None:
    A = torch.randn(1, 600, 4, dtype=torch.float64)
    A[..., 2] = 0.0
    R = triangular(A)
    assert (R[..., 2] == 0).all()
    assert not wrong_triangles(A, R).any()


def test_nearly_dependent_columns_are_left_to_reflections() -> None:
    generator = torch.Generator().manual_seed(0)
    A = torch.randn(3, 600, 8, generator=generator, dtype=torch.float64)
    A[1, :, 5] = A[1, :, 2] + 1e-10 * A[1, :, 5]
    A[2, :, 5] = 3 * A[2, :, 2]
    assert by_cholesky(A)[1].tolist() == [True, False, False]
    values = torch.linalg.svdvals(triangular(A))
    exact = torch.linalg.svdvals(A)
    torch.testing.assert_close(values, exact, rtol=0, atol=1e-14 * float(exact.max()))
    assert not wrong_triangles(A, triangular(A)).any()
