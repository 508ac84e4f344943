"""NumPy arrays and lists of numbers as tensors."""

import numpy as np
import pytest
import torch
from torch import nn

from rankscope.matrices.arrays import as_tensor

ROWS = [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize(
    "array",
    [
        np.array(ROWS, dtype=np.float64),
        np.array(ROWS, dtype=np.float64)[::-1][::-1],
        np.array(ROWS, dtype=">f8"),
        np.broadcast_to(np.array(ROWS, dtype=np.float64), (2, 3)),
        ROWS,
        tuple(map(tuple, ROWS)),
    ],
    ids=["plain", "strides", "byte order", "read only", "lists", "tuples"],
)
def test_arrays_and_lists(array: object) -> None:
    torch.testing.assert_close(as_tensor("x", array), torch.tensor(ROWS, dtype=torch.float64))


def test_tensors_are_not_copied() -> None:
    W = torch.zeros(2, 2)
    assert as_tensor("x", W) is W


@pytest.mark.parametrize(
    ("x", "match"),
    [
        (nn.Linear(2, 2), r"matrix 'x': expected a tensor.*got Linear; rankscope\.views\(\)"),
        (None, "got NoneType"),
        ([[1, 2], [3]], "rows of numbers of equal length"),
        ([["a"]], "rows of numbers of equal length"),
        (np.array([["a"]]), "expected real floating-point numbers, got an array of <U1"),
    ],
)
def test_anything_else_is_refused(x: object, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        as_tensor("x", x)
