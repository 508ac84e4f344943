import numpy as np
import pytest
import xarray as xr
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from rankscope.figures.over_time import (
    chosen_values,
    draw_band,
    draw_heat_map,
    draw_ratio_map,
    draw_spectrum,
    ends_of_bar,
    highest_ratio,
    mark_one,
    ratio_ticks,
    share_heights,
)
from rankscope.figures.time_axis import TrainingTime


def factor(seed: int) -> float:
    return 0.9 + 0.1 * seed


def bands(axes: object) -> list[PolyCollection]:
    return [band for band in axes.collections if isinstance(band, PolyCollection)]


def extent(band: PolyCollection, x: float) -> tuple[float, float]:
    """Lowest and highest point of a band at one place."""
    points = band.get_paths()[0].vertices
    heights = points[np.isclose(points[:, 0], x), 1]
    return float(heights.min()), float(heights.max())


def seeds_of(middle: np.ndarray, dims: tuple[str, ...]) -> xr.DataArray:
    return xr.DataArray(np.stack([factor(s) * middle for s in range(3)]), dims=("seed", *dims))


def test_a_line_is_the_mean_and_its_band_reaches_over_the_seeds() -> None:
    axes = Figure().add_subplot()
    draw_band(
        axes, seeds_of(np.array([1.0, 2.0, 4.0]), ("step",)), np.arange(3), "black", label="loss"
    )
    (line,) = axes.lines
    np.testing.assert_allclose(line.get_ydata(), [1, 2, 4])
    assert line.get_label() == "loss"
    (band,) = bands(axes)
    assert extent(band, 2) == pytest.approx((0.9 * 4, 1.1 * 4))


def test_one_seed_has_no_band_and_one_snapshot_is_a_point() -> None:
    axes = Figure().add_subplot()
    draw_band(axes, xr.DataArray([[3.0]], dims=("seed", "step")), np.array([0]), "black")
    assert bands(axes) == []
    assert axes.lines[0].get_marker() == "."


def test_some_values_of_a_spectrum_have_bands_the_largest_among_them() -> None:
    k = 20
    middle = np.arange(k, 0, -1) * np.ones((4, 1))
    axes = Figure().add_subplot()
    draw_spectrum(axes, seeds_of(middle, ("step", "k")), TrainingTime(np.arange(4)))
    drawn = [float(line.get_ydata()[0]) for line in axes.lines]
    np.testing.assert_allclose(drawn, np.arange(1, k + 1))  # the largest last, on top
    want = [(0.9 * value, 1.1 * value) for value in (k - 15, k - 3, k)]  # 16th, 4th, 1st
    np.testing.assert_allclose([extent(band, 0) for band in bands(axes)], want)


def test_leading_values_are_all_drawn_and_the_last_too() -> None:
    assert chosen_values(4, 40) == [0, 1, 2, 3]
    few = chosen_values(500, 40)
    assert len(few) == 40
    assert few[:10] == list(range(10)) and few[-1] == 499


def test_heat_maps_share_a_scale_if_told() -> None:
    mesh = draw_heat_map(
        Figure().add_subplot(),
        np.array([[1.0, np.nan]]),
        TrainingTime(np.arange(2)),
        lowest=0.0,
        highest=3.0,
    )
    assert mesh.get_clim() == (0, 3)
    assert mesh.get_array().mask.tolist() == [[False, True]]
    assert mesh.get_rasterized()


def test_chance_is_white_and_as_many_times_less_is_as_dark_as_more() -> None:
    ratios = np.array([[1.0, 4.0, 0.25, np.nan]])
    figure = Figure()
    mesh = draw_ratio_map(figure.add_subplot(), ratios, TrainingTime(np.arange(4)), highest=4.0)
    one, more, less, _ = mesh.to_rgba(mesh.get_array())[0]
    assert min(one[:3]) > 0.95
    assert more[0] > more[2] and less[0] < less[2]  # red, blue
    assert max(more[:3]) < 0.5 and max(less[:3]) < 0.5
    bar = figure.colorbar(mesh)
    mark_one(bar, 4.0)
    assert [label.get_text() for label in bar.ax.get_yticklabels()] == [
        "1/4",
        "1/2",
        "1",
        "2",
        "4",
    ]
    assert list(bar.ax.lines[-1].get_ydata()) == [1, 1]


def test_scales_of_ratios_reach_to_the_highest_but_never_blow_up_noise() -> None:
    assert highest_ratio(np.array([0.9, 1.1, np.nan, np.inf, 0.0])) == 2
    assert highest_ratio(np.array([[1e-6, 3.0]])) == 3
    assert highest_ratio(np.array([np.nan])) == 2
    assert ends_of_bar(np.array([0.5, np.nan, 2.0]), 2.0) == "neither"
    assert ends_of_bar(np.array([0.49, np.nan, 2.0]), 2.0) == "min"
    assert ends_of_bar(np.array([np.nan]), 2.0) == "neither"
    assert ratio_ticks(2.0) == [0.5, 1, 2]
    assert ratio_ticks(30.0) == [1 / 16, 1 / 4, 1, 4, 16]
    assert ratio_ticks(1000.0) == [1e-3, 1e-2, 0.1, 1, 10, 100, 1000]


def test_panels_come_to_one_height() -> None:
    column = list(Figure().subplots(2, 1))
    column[0].plot([-1, 1])
    column[1].plot([2, 5])
    lowest, highest = column[0].get_ylim()[0], column[1].get_ylim()[1]
    share_heights(column)
    assert [axes.get_ylim() for axes in column] == [(lowest, highest)] * 2
    share_heights(column, bottom=0.0)
    assert [axes.get_ylim() for axes in column] == [(0, highest)] * 2
