"""Rows of heat maps: one per layer, in groups of what the matrices do, with brackets."""

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Num
from matplotlib.axes import Axes

from rankscope.figures.training import whole_matrices
from rankscope.plain_names import PlainName, plain_names, plain_pairs

BRACKET = -0.025  # left of the panel, in widths of it
WORDS = -0.05
BOTH_WAYS = ", backward"  # pairs of both directions of an LSTM share a row
NARROW = 22  # characters of a line beside several rows


class Row(NamedTuple):
    """One row: its group, and the positions whose mean it shows."""

    group: str
    positions: tuple[int, ...]


def matrix_rows(ds: xr.Dataset) -> list[Row]:
    """Return one row for each whole matrix, those of one role together."""
    return _rows(plain_names(whole_matrices(ds)))


def pair_rows(ds: xr.Dataset) -> list[Row]:
    """Return one row for each kind of pair in each layer; heads and gates share a row."""
    earlier, later = (list(map(str, ds[name].to_numpy())) for name in ("earlier", "later"))
    return _rows(plain_pairs(earlier, later), BOTH_WAYS)


def _rows(names: Sequence[PlainName], dropped: str = "") -> list[Row]:
    """Return rows by role and layer. dropped: words left out of roles, which joins their rows."""
    positions: dict[str, dict[str, list[int]]] = {}
    for position, name in enumerate(names):
        layers = positions.setdefault(name.role.replace(dropped, ""), {})
        layers.setdefault(name.block, []).append(position)
    return [
        Row(role, tuple(together))
        for role, layers in positions.items()
        for together in layers.values()
    ]


def by_row(
    values: Num[np.ndarray, "step position"], rows: Sequence[Row]
) -> Num[np.ndarray, "row step"]:
    """Return the mean over the positions of each row that have a value."""
    cells = np.ma.masked_invalid(values)
    means = [cells[:, list(row.positions)].mean(axis=1) for row in rows]
    return np.stack([np.ma.filled(mean.astype(np.float64), np.nan) for mean in means])


def draw_brackets(axes: Axes, rows: Sequence[Row]) -> None:
    """Name the groups of rows left of a heat map, with a bracket where a group has several."""
    axes.set_yticks([])
    groups = [row.group for row in rows]
    for group in dict.fromkeys(groups):
        first, count = groups.index(group), groups.count(group)
        place = axes.get_yaxis_transform()
        middle = first + (count - 1) / 2
        if count > 1:
            ends = (first - 0.3, first + count - 0.7)
            axes.plot([BRACKET] * 2, ends, color="0.3", lw=1, transform=place, clip_on=False)
        words = "\n".join(textwrap.wrap(group, NARROW if count > 1 else 2 * NARROW))
        axes.text(WORDS, middle, words, ha="right", va="center", size="small", transform=place)
