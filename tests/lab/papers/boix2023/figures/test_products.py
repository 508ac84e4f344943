import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba

from rankscope.lab.papers.boix2023.figures.products import (
    END,
    START,
    HeadSpectra,
    SpectraOfHeads,
    Values,
    change_against_start,
    greens,
    leading_values,
    normalised_spectra,
)

INITIAL = np.array([4.0, 2.0])
EARLY, LATE = np.array([0.5, 0.0, 0.0, 0.0]), np.array([8.0, 4.0, 2.0, 0.0])
HEAD = HeadSpectra(INITIAL, {"epoch 1": EARLY, "epoch 9": LATE})


def named(axes: Axes, colour) -> list[np.ndarray]:
    return [line.get_ydata() for line in axes.lines if to_rgba(line.get_color()) == to_rgba(colour)]


def labels(figure) -> dict[str, tuple]:
    (legend,) = figure.legends
    return {line.get_label(): to_rgba(line.get_color()) for line in legend.get_lines()}


def test_spectra_are_divided_by_their_largest_value() -> None:
    figure = normalised_spectra({"K-Q": HEAD, "V-O": HEAD})
    assert [axes.get_title() for axes in figure.axes] == ["K-Q", "V-O"]
    early, late = greens(2)
    for axes in figure.axes:
        np.testing.assert_allclose(named(axes, START), [[1, 0.5, 0, 0]])
        np.testing.assert_allclose(named(axes, early), [[1, 0, 0, 0]])
        np.testing.assert_allclose(named(axes, late), [[1, 0.5, 0.25, 0]])
        assert all(line.get_xdata().tolist() == [1, 2, 3, 4] for line in axes.lines)
    assert labels(figure) == {
        "product at the start": to_rgba(START),
        "its change, epoch 1": early,
        "its change, epoch 9": late,
    }


def test_the_start_is_told_from_changes_without_colour() -> None:
    (axes,) = normalised_spectra({"K-Q": HEAD}).axes
    assert [line.get_linestyle() for line in axes.lines] == ["-", "-", "--"]
    lightness = [sum(colour[:3]) for colour in greens(5)]
    assert lightness == sorted(lightness, reverse=True)
    assert min(np.diff(lightness[::-1])) > 0.1


def test_a_change_of_zero_is_not_drawn() -> None:
    (axes,) = normalised_spectra({"K-Q": HeadSpectra(INITIAL, {"step 1": np.zeros(4)})}).axes
    assert len(axes.lines) == 1


@pytest.mark.parametrize(("count", "rows"), [(1, 1), (3, 1), (4, 2)])
def test_panels_stand_in_rows(count: int, rows: int) -> None:
    figure = normalised_spectra({f"block {i}": HEAD for i in range(count)}, columns=3)
    assert len(figure.axes) == count
    assert {axes.get_subplotspec().rowspan.start for axes in figure.axes} == set(range(rows))


def test_change_and_start_are_means_of_heads_with_their_deviation() -> None:
    start = np.array([[3.0, 1.0], [5.0, 1.0]])
    change = np.array([[10.0, 0.0, 0.0], [4.0, 2.0, 0.0]])
    (axes,) = change_against_start({"K-Q, block 1": SpectraOfHeads(start, change)}).axes
    np.testing.assert_allclose(named(axes, START), [[4, 1, 0]])
    np.testing.assert_allclose(named(axes, END), [[7, 1, 0]])
    bands = [set(band.get_paths()[0].vertices[:, 1].round(9)) for band in axes.collections]
    assert bands == [{3.0, 5.0, 1.0, 0.0}, {4.0, 10.0, 0.0, 2.0}]


def test_leading_values_over_time() -> None:
    time = np.array([0.0, 1.0, 3.0])
    S = np.arange(90.0).reshape(3, 30)[:, ::-1]
    figure = leading_values({"scale 1": Values(time, S, "epoch"), "scale 0.1": Values(time, 2 * S)})
    first, second = figure.axes[:2]
    assert (first.get_title(), first.get_xlabel(), second.get_xlabel()) == (
        "scale 1",
        "epoch",
        "step",
    )
    drawn = [line.get_ydata() for line in first.lines]
    np.testing.assert_allclose(drawn[::-1], S.T[:20])
    np.testing.assert_allclose([line.get_ydata() for line in second.lines][::-1], 2 * S.T[:20])
    assert first.lines[0].get_xdata().tolist() == time.tolist()
    assert first.lines[0].get_color() != first.lines[-1].get_color()
