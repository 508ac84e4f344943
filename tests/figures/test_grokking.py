import math

import numpy as np
import xarray as xr

from figures.training_runs import training
from rankscope.figures import Setting, grokking_by_decay


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
    assert [each.get_title(loc="left") for each in axes[:2]] == ["weight decay 0", "weight decay 1"]
    assert {each.get_xscale() for each in axes} == {"log"}
    middle = training(1, decay=1.0)
    training_loss, validation_loss = axes[1].lines[:2]
    np.testing.assert_array_equal(training_loss.get_xdata(), middle["step"] + 1)
    np.testing.assert_allclose(training_loss.get_ydata(), middle["training_loss"])
    np.testing.assert_allclose(validation_loss.get_ydata(), middle["validation_loss"])
    np.testing.assert_allclose(axes[3].lines[0].get_ydata(), middle["validation_accuracy"])
    ranks = middle.rankscope.normalized_effective_rank().to_numpy()[:, :3]
    np.testing.assert_allclose([line.get_ydata() for line in axes[5].lines[:3]], ranks.T)


def test_the_mean_of_the_ranks_is_black() -> None:
    black = [line for line in FIGURE.axes[4].lines if line.get_label() == "mean of matrices"]
    assert [line.get_color() for line in black] == ["black"]
    np.testing.assert_allclose(black[0].get_ydata(), 1)  # of seeds 0, 1, 2


def test_moments_of_each_seed_are_marked_where_they_are_and_in_the_legend() -> None:
    assert marks(":") == [[11, 101]] * 6
    assert marks("--") == [[], [], [], [51] * 3, [], [51] * 3]
    last = FIGURE.axes[5].lines
    colours = [
        [line.get_color() for line in last if line.get_linestyle() == s] for s in (":", "--")
    ]
    assert colours[0] == colours[1][:2] and len(set(colours[1])) == 3
    (legend,) = FIGURE.legends
    assert [line.get_linestyle() for line in legend.get_lines()] == [":", "--"]
