import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from rankscope.lab.papers.yunis2024.figures.rows import (
    Row,
    by_row,
    draw_brackets,
    matrix_rows,
    pair_rows,
)


def model() -> xr.Dataset:
    """Two layers with two heads each, and an output."""
    names = [f"blocks.{layer}.attn.{part}" for layer in (0, 1) for part in ("qkv", "out_proj")]
    heads = [(layer, head) for layer in (0, 1) for head in (0, 1)]
    ends = {end: [f"blocks.{b}.attn.h{h}.{end}" for b, h in heads] for end in "qk"}
    return xr.Dataset(
        coords={
            "matrix": [*names, "output"],
            "part_of": ("matrix", [""] * 5),
            "pair": [f"pair {i}" for i in range(4)],
            "earlier": ("pair", ends["q"]),
            "later": ("pair", ends["k"]),
        }
    )


def test_matrices_of_one_role_stand_together() -> None:
    assert matrix_rows(model()) == [
        Row("queries, keys, values", (0,)),
        Row("queries, keys, values", (2,)),
        Row("attention output", (1,)),
        Row("attention output", (3,)),
        Row("output", (4,)),
    ]


def test_heads_of_a_layer_share_a_row_that_shows_their_mean() -> None:
    rows = pair_rows(model())
    assert rows == [Row("queries > keys", (0, 1)), Row("queries > keys", (2, 3))]
    values = np.array([[1.0, 3.0, np.nan, 5.0], [2.0, 4.0, np.nan, np.nan]])
    np.testing.assert_array_equal(by_row(values, rows), [[2, 3], [5, np.nan]])


def test_groups_are_named_once_and_bracketed_if_they_have_several_rows() -> None:
    axes = Figure().add_subplot()
    draw_brackets(axes, matrix_rows(model()))
    words = [text.get_text().replace("\n", " ") for text in axes.texts]
    assert words == ["queries, keys, values", "attention output", "output"]
    spans = [tuple(line.get_ydata()) for line in axes.lines]
    np.testing.assert_allclose(spans, [(-0.3, 1.3), (1.7, 3.3)])
