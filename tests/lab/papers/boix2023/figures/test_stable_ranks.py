import numpy as np
import pytest
from matplotlib.axes import Axes

from rankscope.lab.papers.boix2023.figures.stable_ranks import (
    HOLLOW,
    Course,
    Looks,
    stable_ranks_by_block,
    stable_ranks_by_scale,
    stable_ranks_over_time,
)

TIME = np.array([0.5, 1.0, 4.0])
RANKS = np.array([[1.0, 3.0], [2.0, 2.0], [4.0, 8.0]])  # mean 2, 2, 6; deviation 1, 0, 2
LOOKS = {"K-Q": Looks("blue"), "V-O": Looks("red", ":")}


def lines(axes: Axes) -> list[list[float]]:
    return [line.get_ydata().tolist() for line in axes.lines if len(line.get_ydata()) == 3]


def dots(axes: Axes) -> list[tuple[float, float]]:
    found = [line for line in axes.lines if len(line.get_ydata()) == 1]
    return [(line.get_xdata()[0], line.get_ydata()[0]) for line in found]


def names(figure) -> list[str]:
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]


def test_mean_and_deviation_of_heads_over_time() -> None:
    blocks = {
        f"block {i}": {"K-Q": Course(TIME, RANKS, 2.5), "V-O": Course(TIME, i * RANKS)}
        for i in (1, 2)
    }
    figure = stable_ranks_over_time(blocks, LOOKS, unit="epoch", begin=1.0, settled="settled")
    assert [axes.get_title() for axes in figure.axes] == ["block 1", "block 2"]
    first, second = figure.axes
    assert (lines(first), lines(second)) == ([[2, 2, 6]] * 2, [[2, 2, 6], [4, 4, 12]])
    assert first.lines[0].get_xdata().tolist() == TIME.tolist()
    band = first.collections[0].get_paths()[0].vertices
    assert {(0.5, 1.0), (0.5, 3.0), (1.0, 2.0), (4.0, 4.0), (4.0, 8.0)} <= set(map(tuple, band))
    assert dots(first) == [(2.5, 4.0)]  # halfway from 2 at time 1 to 6 at time 4
    marks = [line.get_xdata() for line in first.lines if line.get_linewidth() == 0.8]
    assert marks == [[1.0, 1.0]]
    assert names(figure) == [
        "K-Q",
        "V-O",
        "epoch 1",
        "settled",
        "band: std over heads",
    ]
    assert (first.get_xscale(), first.get_xlabel()) == ("log", "epoch (log scale)")


def test_what_is_not_marked_is_not_explained() -> None:
    figure = stable_ranks_over_time({"block 1": {"V-O": Course(TIME, RANKS)}}, LOOKS)
    (axes,) = figure.axes
    assert dots(axes) == []
    assert names(figure) == ["V-O", "band: std over heads"]
    assert axes.lines[0].get_linestyle() == ":"


def test_every_rank_of_1_or_more_can_be_seen() -> None:
    course = Course(TIME, np.ones((3, 2)))
    blocks = {"block 1": {"K-Q": course}, "block 2": {"K-Q": Course(TIME, RANKS)}}
    for axes in stable_ranks_over_time(blocks, LOOKS).axes:
        low, high = axes.get_ylim()
        assert 0 < low < 1 and high >= 8


@pytest.mark.parametrize("count", [3, 6, 12])
def test_every_block_has_its_panel(count: int) -> None:
    blocks = {f"block {i}": {"K-Q": Course(TIME, RANKS)} for i in range(count)}
    figure = stable_ranks_over_time(blocks, LOOKS)
    assert [axes.get_title() for axes in figure.axes] == list(blocks)
    assert figure.get_figwidth() < 10


def test_ranks_by_scale_with_a_hollow_one() -> None:
    ranks = {0.1: np.array([1.0, 3.0]), 0.3: np.array([9.0, 9.0]), 1.0: np.array([4.0, 8.0])}
    figure = stable_ranks_by_scale({"K-Q, block 1": ranks}, hollow={0.3})
    (axes,) = figure.axes
    assert axes.lines[0].get_xdata().tolist() == [0.1, 1.0]
    assert axes.lines[0].get_ydata().tolist() == [2, 6]
    faces = {bar[0].get_xdata()[0]: bar[0].get_markerfacecolor() for bar in axes.containers}
    assert [scale for scale, face in faces.items() if face == "white"] == [0.3]
    spans = [bar[2][0].get_segments()[0][:, 1].tolist() for bar in axes.containers]
    assert spans == [[1, 3], [9, 9], [4, 8]]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0.1", "0.3", "1"]
    assert HOLLOW in names(figure)
    assert HOLLOW not in names(stable_ranks_by_scale({"K-Q, block 1": ranks}))


def test_blocks_of_networks_from_dark_to_light() -> None:
    courses = [Course(TIME, i * RANKS) for i in (1, 2, 3)]
    networks = {"depth-1, K-Q": courses[:1], "depth-3, K-Q": courses}
    shallow, deep = stable_ranks_by_block(networks, columns=2, unit="epoch").axes
    assert (lines(shallow), lines(deep)) == (
        [[2, 2, 6]],
        [[2, 2, 6], [4, 4, 12], [6, 6, 18]],
    )
    lightness = [sum(line.get_color()[:3]) for line in deep.lines]
    assert lightness == sorted(lightness)
    assert shallow.get_ylim() == deep.get_ylim()
