import math

import numpy as np
import pytest
import xarray as xr

from lab.papers.yunis2024.figures.closed_form import training
from rankscope.figures.seeds import Setting
from rankscope.lab.papers.yunis2024.figures.grokking import grokking_by_decay


def settings() -> list[Setting]:
    return [
        Setting(f"weight decay {decay:g}", tuple(training(s, decay=decay) for s in range(3)))
        for decay in (0.0, 1.0)
    ]


def mean(ds: xr.Dataset) -> xr.DataArray:
    return ds["validation_accuracy"] * 0 + ds.attrs["seed"]


def jump(ds: xr.Dataset) -> float:
    """After 10, 100 steps and never."""
    return (1.0, 2.0, math.nan)[ds.attrs["seed"]]


def drop(ds: xr.Dataset) -> float:
    return math.log10(50)


FIGURE = grokking_by_decay(settings(), mean=mean, jump=jump, drop=drop)


def marks(style: str) -> list[list[float]]:
    return [
        [round(line.get_xdata()[0], 9) for line in axes.lines if line.get_linestyle() == style]
        for axes in FIGURE.axes
    ]


def test_columns_by_decay_rows_by_what_is_measured() -> None:
    axes = FIGURE.axes
    assert len(axes) == 6
    headings = [each.get_title(loc="left") for each in axes[:2]]
    assert headings == ["weight decay 0, 3 seeds", "weight decay 1, 3 seeds"]
    assert {each.get_xscale() for each in axes} == {"log"}
    np.testing.assert_array_equal(axes[1].lines[0].get_xdata(), training(0)["step"] + 1)


@pytest.mark.parametrize("seed", range(3))
def test_every_line_is_one_seed(seed: int) -> None:
    losses, accuracies, ranks = FIGURE.axes[1::2]
    ds = training(seed, decay=1.0)
    each = ds.rankscope.normalized_effective_rank().to_numpy()[:, :3]
    for lines, want in (
        (losses.lines[seed:6:3], [ds["training_loss"], ds["validation_loss"]]),
        (accuracies.lines[seed:3:3], [ds["validation_accuracy"]]),
        (ranks.lines[seed:9:3], each.T),
        (ranks.lines[9 + seed : 12 : 3], np.full((1, 6), seed)),
    ):
        np.testing.assert_allclose([line.get_ydata() for line in lines], np.array(want))


def test_lines_of_a_matrix_have_its_colour_and_one_place_in_the_legend() -> None:
    lines = FIGURE.axes[5].lines[:9]
    assert [len({line.get_color() for line in lines[j : j + 3]}) for j in (0, 3, 6)] == [1, 1, 1]
    names = [text.get_text() for text in FIGURE.axes[5].get_legend().get_texts()]
    assert names == ["layers.0.weight", "layers.1.weight", "layers.2.weight"]


def test_moments_of_each_seed_are_marked_where_they_are_and_in_the_legend() -> None:
    assert marks(":") == [[11, 101]] * 6
    assert marks("--") == [[], [], [], [51] * 3, [], [51] * 3]
    accuracy = FIGURE.axes[3].lines
    solid, dotted, dashed = (
        [line.get_color() for line in accuracy if line.get_linestyle() == style]
        for style in ("-", ":", "--")
    )
    assert solid == dashed and solid[:2] == dotted and len(set(solid)) == 3
    (legend,) = FIGURE.legends
    assert [line.get_linestyle() for line in legend.get_lines()] == [*"----", ":", "--"]
    assert [line.get_color() for line in legend.get_lines()[:3]] == solid
    assert [text.get_text() for text in legend.get_texts()[:3]] == ["seed 0", "seed 1", "seed 2"]
