import math

import numpy as np
import pytest
import xarray as xr
from matplotlib.axes import Axes

from lab.papers.boix2023.toy_runs import activation_error_table, target
from rankscope.lab.papers.boix2023.figures.activation import activation_errors

STAGES = 3
ALPHAS = [-2.0, -32.0, -300.0, -1000.0]


def table() -> xr.Dataset:
    return activation_error_table(target(STAGES, 4), STAGES, ALPHAS)


def marks(axes: Axes, *, filled: bool) -> list[tuple[float, float]]:
    chosen = (
        line
        for line in axes.lines
        if line.get_marker() == "o" and (line.get_markerfacecolor() != "white") == filled
    )
    return sorted((x, y) for line in chosen for x, y in line.get_xydata())


@pytest.mark.parametrize("filled", [True, False])
def test_resolved_stages_are_filled_and_the_others_hollow(filled: bool) -> None:
    ds = table()
    want = sorted(
        (1 / (-power * math.log(10)), float(error))
        for power, errors, resolved in zip(
            ALPHAS, ds["activation_error"].values, ds["resolved"].values, strict=True
        )
        for error in errors[resolved == filled]
    )
    assert want  # both kinds are there
    np.testing.assert_allclose(marks(activation_errors(ds).axes[0], filled=filled), want)


@pytest.mark.parametrize("some_resolved", [True, False])
def test_the_guide_has_slope_one_in_the_middle_of_the_resolved_or_of_all(
    some_resolved: bool,
) -> None:
    ds = table()
    ds["resolved"] = ds["resolved"] & some_resolved
    axes = activation_errors(ds).axes[0]
    (guide,) = (line for line in axes.lines if line.get_linestyle() == "--")
    x, y = guide.get_xydata().T
    chosen = ds["resolved"].values if some_resolved else np.full((len(ALPHAS), STAGES), True)
    factors = (ds["activation_error"].values / x[:, None])[chosen]
    np.testing.assert_allclose(y / x, np.median(factors))
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    # Their alphas are named above, also those below every float.
    names = [label.get_text() for label in axes.child_axes[0].get_xticklabels()]
    assert names == ["$10^{-2}$", "$10^{-32}$", "$10^{-300}$", "$10^{-1000}$"]


def test_stages_never_reached_leave_a_gap() -> None:
    ds = table()
    ds["activation_error"][0] = np.nan
    axes = activation_errors(ds).axes[0]
    drawn = marks(axes, filled=True) + marks(axes, filled=False)
    assert sum(not math.isnan(y) for _, y in drawn) == STAGES * (len(ALPHAS) - 1)
