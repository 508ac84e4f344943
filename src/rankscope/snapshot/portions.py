"""Portions of matrices that are decomposed together, and arrays of their results."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np

Item = TypeVar("Item")

# Matrices are decomposed in portions of this many float64 numbers (256 MiB), which bounds memory by
# a few portions for models of any size.
PORTION = 1 << 25


def portions(items: Sequence[Item], *, size: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Yield the items, large ones first, in lists of at most PORTION numbers."""
    yield from cut(sorted(items, key=size, reverse=True), size=size)


def cut(items: Iterable[Item], *, size: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Yield the items in lists of at most PORTION numbers."""
    portion: list[Item] = []
    total = 0
    for item in items:
        numbers = size(item)
        if portion and total + numbers > PORTION:
            yield portion
            portion, total = [], 0
        portion.append(item)
        total += numbers
    if portion:
        yield portion


def padded(rows: Sequence[np.ndarray], width: int) -> np.ndarray:
    """Return rows of different lengths as one array, with NaN behind the short ones."""
    array = np.full((len(rows), width), math.nan)
    for row, values in zip(array, rows, strict=True):
        row[: len(values)] = values
    return array
