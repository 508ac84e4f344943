from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from rankscope.figures.style import (
    draw_order_bar,
    evenly,
    legend_below,
    log_axis,
    mixed,
    panels,
    save,
    shades,
)


def test_shades_go_from_dark_to_light_without_repeating() -> None:
    assert shades(0) == []
    for count in (1, 2, 20):
        lightness = [np.dot(shade[:3], (0.3, 0.6, 0.1)) for shade in shades(count)]
        assert len(lightness) == count == len(set(lightness))
        assert lightness == sorted(lightness)


def test_mixing_with_all_of_white_is_white_and_with_none_is_the_colour() -> None:
    assert mixed((0.2, 0.4, 0.6, 1.0), 1.0, 1.0) == (1, 1, 1, 1)
    assert mixed((0.2, 0.4, 0.6, 1.0), 0.0, 0.0) == (0.2, 0.4, 0.6, 1.0)
    assert mixed((0.2, 0.4, 0.6, 1.0), 0.0, 0.5) == pytest.approx((0.1, 0.2, 0.3, 1.0))


@pytest.mark.parametrize(("count", "ticks"), [(1, [1]), (4, [1, 2, 3, 4]), (20, range(1, 21, 2))])
def test_order_bars_number_their_fields_from_the_top(count: int, ticks: list[int]) -> None:
    figure = Figure()
    draw_order_bar(figure, [figure.add_subplot()], count, "order")
    bar = figure.axes[1]
    assert bar.get_yticks().tolist() == list(ticks)
    assert bar.yaxis_inverted() and bar.get_ylabel() == "order"


def test_panels_fill_rows_and_leave_no_empty_frame() -> None:
    figure = Figure()
    assert panels(figure, 4, columns=3) == figure.axes
    assert len(figure.axes) == 4
    assert figure.axes[0].get_gridspec().ncols == 3
    assert panels(Figure(), 2, columns=3)[0].get_gridspec().ncols == 2


def test_evenly_keeps_both_ends() -> None:
    assert evenly(3) == [0, 1, 2]
    assert evenly(100, 4) == [0, 33, 66, 99]


@pytest.mark.parametrize("layout", ["constrained", None])
def test_figures_are_saved_as_png_and_svg_and_keep_their_layout(
    tmp_path: Path, layout: str | None
) -> None:
    figure = Figure(layout=layout)
    figure.add_subplot().set_title("a title")
    engine = figure.get_layout_engine()
    png, svg = save(figure, tmp_path / "new" / "run.1")
    assert (png.name, svg.name) == ("run.1.png", "run.1.svg")
    assert png.read_bytes().startswith(b"\x89PNG")
    assert "<svg" in svg.read_text()
    assert figure.get_layout_engine() is engine


@pytest.mark.parametrize(
    ("width", "names", "columns"), [(2, "abc", 1), (6, "abc", 2), (20, "abc", 3), (14, "abcdef", 3)]
)
def test_legends_have_as_few_rows_as_the_width_has_room_for(
    width: int, names: str, columns: int
) -> None:
    figure = Figure(figsize=(width, 3), layout="constrained")
    lines = figure.add_subplot().plot([range(len(names))] * 2, label=list(names))
    legend_below(figure, lines)
    assert figure.legends[0]._ncols == columns


@pytest.mark.parametrize(
    ("low", "high", "labels"), [(0.5, 6, ["0.5", "1", "2", "5"]), (1, 900, ["1", "10", "100"])]
)
def test_logarithmic_axes_have_plain_labels_that_keep_apart(
    low: float | int, high: float | int, labels: list[str]
) -> None:
    figure = Figure()
    axes = figure.subplots()
    axes.plot([low, high], [0, 1])
    axes.margins(x=0)
    log_axis(axes)
    figure.canvas.draw()
    inside = [
        tick.get_text() for tick in axes.get_xticklabels() if low <= tick.get_position()[0] <= high
    ]
    assert inside == labels
    assert not any(tick.get_text() for tick in axes.get_xticklabels(minor=True))
