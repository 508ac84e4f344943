import itertools
import math
import re

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from lab.papers.boix2023.toy_runs import algorithm_run, flow_run, target
from rankscope.figures.style import IDLE
from rankscope.lab.papers.boix2023.figures.staircase import (
    WIDE,
    entries_and_staircase,
    flow_and_staircase,
    spread,
)
from rankscope.lab.papers.boix2023.runs import KINDS

STAGES, P = 3, 4
GOAL = target(STAGES, P)
ORDER = np.argsort(-abs(GOAL), kind="stable")[:STAGES]
T = 1 / abs(GOAL[ORDER])


def flows_from(*powers: float, end: float = 6.0) -> dict[float, xr.Dataset]:
    return {power: flow_run(GOAL, power, end=end) for power in powers}


def figure(*powers: float, end: float = 6.0, algorithm: xr.Dataset | None = None) -> Figure:
    algorithm = algorithm_run(GOAL, STAGES) if algorithm is None else algorithm
    return flow_and_staircase(algorithm, flows_from(*powers, end=end))


def wide(axes: Axes) -> list[np.ndarray]:
    return [line.get_xydata() for line in axes.lines if line.get_linewidth() == WIDE]


def vertical(axes: Axes) -> list[float]:
    ends = [line.get_xdata() for line in axes.lines if len(line.get_xdata()) == 2]
    return sorted(x[0] for x in ends if x[0] == x[1])


def test_activation_times_are_marked_in_each_panel_and_labelled_with_the_winner() -> None:
    drawn = figure(-32.0)
    for axes in drawn.axes:
        assert vertical(axes) == pytest.approx(T)
    kinds, numbers = (algorithm_run(GOAL, STAGES)[n].to_numpy()[ORDER] for n in ("kind", "index"))
    names = [f"{KINDS[kind]} {number}" for kind, number in zip(kinds, numbers, strict=True)]
    assert [text.get_text() for text in drawn.axes[0].texts] == names
    assert [text.xy[0] for text in drawn.axes[0].texts] == pytest.approx(T)


def test_the_staircase_of_z_jumps_at_the_activation_times() -> None:
    curves_by_end = {round(xy[-1, 1], 9): xy for xy in wide(figure(-32.0).axes[0])}
    for goal, time in zip(GOAL[ORDER], T, strict=True):
        xy = curves_by_end[round(goal, 9)]
        before, after = xy[xy[:, 1] == 0], xy[xy[:, 1] != 0]
        assert before[-1, 0] == after[0, 0] == pytest.approx(time)
        assert before[0, 0] == 0 and after[-1, 0] == 6.0


def test_flow_lines_are_the_data_and_lie_on_the_staircase() -> None:
    ds = flow_run(GOAL, -1000.0)
    axes = flow_and_staircase(algorithm_run(GOAL, STAGES), {-1000.0: ds}).axes[0]
    thin = {line.get_color(): line for line in axes.lines if line.get_linewidth() == 1.2}
    assert len(thin) == STAGES
    for colour, i in zip([text.get_color() for text in axes.texts], ORDER, strict=True):
        (line,) = (
            x for shade, x in thin.items() if np.allclose(0.7 * np.array(shade[:3]), colour[:3])
        )
        np.testing.assert_array_equal(line.get_ydata(), ds["z"][:, i])


def test_the_log_coordinate_is_rescaled_and_straight_up_to_its_activation() -> None:
    middle = figure(-1000.0).axes[1]
    for i, time in zip(ORDER, T, strict=True):
        sign = math.copysign(1, GOAL[i])
        (xy,) = (
            line.get_xydata()
            for line in middle.lines
            if line.get_linewidth() == 1.2
            and np.interp(time / 2, *line.get_xydata().T) == pytest.approx(sign / 2, abs=0.01)
            and np.interp(time, *line.get_xydata().T) == pytest.approx(sign, abs=0.01)
        )
        assert xy[-1, 1] == pytest.approx(sign, abs=0.01)
    for xy in wide(middle):
        np.testing.assert_allclose(xy[:, 0], [0, *T])
        assert xy[0, 1] == 0 and abs(xy[-1, 1]) == pytest.approx(1)
    levels = {line.get_ydata()[0] for line in middle.lines if line.get_linestyle() == ":"}
    assert levels == {-1, 1}


def test_coordinates_that_never_win_are_grey_and_drawn() -> None:
    upper, middle, _ = figure(-32.0).axes
    for axes in (upper, middle):
        assert sum(line.get_linewidth() == 0.5 for line in axes.lines) == 2 * P - STAGES
        assert {line.get_color() for line in axes.lines if line.get_linewidth() == 0.5} == {IDLE}


def test_several_alphas_fade_towards_the_largest() -> None:
    drawn = figure(-4.0, -16.0, -300.0)
    opacity = [line.get_alpha() for line in drawn.axes[2].lines if line.get_linewidth() == 1.2]
    assert opacity == sorted(opacity) and opacity[0] < opacity[-1] == 1
    labels = [text.get_text() for text in drawn.legends[0].get_texts()]
    assert labels[0] == "Algorithm 1"
    assert [label.split("$")[3] for label in labels[1:]] == ["10^{-4}", "10^{-16}", "10^{-300}"]


def test_loss_steps_down_by_half_the_square_of_what_was_learned() -> None:
    (xy,) = wide(figure(-32.0).axes[2])
    levels = xy[::2, 1]
    np.testing.assert_allclose(-np.diff(levels), GOAL[ORDER] ** 2 / 2)
    assert figure(-32.0).axes[2].get_yscale() == "log"


def test_a_loss_of_nothing_does_not_stretch_the_axis() -> None:
    algorithm = algorithm_run(GOAL, STAGES)
    algorithm["stage_loss"][-1] = 1e-30
    lower = figure(-32.0, algorithm=algorithm).axes[2]
    assert lower.get_ylim()[0] > 1e-7 * float(algorithm["stage_loss"][0])


def test_losses_that_differ_by_little_fill_a_linear_axis_whatever_comes_after_the_flow() -> None:
    """The flow ends at 1.2, between the first two stages."""
    flow = flow_run(GOAL, -32.0, end=1.2)
    lower = flow_and_staircase(algorithm_run(GOAL, STAGES), {-32.0: flow}).axes[2]
    assert lower.get_yscale() == "linear"
    low, high = float(flow["loss"].min()), float(flow["loss"].max())
    margin = 0.05 * (high - low)
    np.testing.assert_allclose(lower.get_ylim(), (low - margin, high + margin), rtol=1e-3)


@pytest.mark.parametrize(("until", "end"), [(math.inf, 6.0), (math.nan, T[-1])])
def test_a_last_stage_without_end_lasts_as_long_as_the_flow_and_one_not_at_rest_has_no_level(
    until: float, end: float
) -> None:
    algorithm = algorithm_run(GOAL, STAGES)
    algorithm["stage_until"][-1] = until
    drawn = figure(-32.0, algorithm=algorithm)
    assert all(xy[-1, 0] == pytest.approx(end) for xy in wide(drawn.axes[0]))
    assert vertical(drawn.axes[0]) == pytest.approx(T)


def test_stages_after_the_end_of_the_flow_are_left_out() -> None:
    end = float(T[:2].mean())
    axes = figure(-32.0, end=end).axes[0]
    assert len(axes.texts) == 1 and axes.get_xlim() == (0, end)


def test_heads_are_named_where_there_are_several() -> None:
    algorithm = algorithm_run(GOAL, STAGES)
    algorithm["head"][0] = 1
    axes = figure(-32.0, algorithm=algorithm).axes[0]
    words = [text.get_text() for text in axes.texts]
    assert all(re.fullmatch(r"(K-Q|V-O) \d+, layer 0, head [01]", word) for word in words), words


@pytest.mark.parametrize("draw", [flow_and_staircase, entries_and_staircase])
def test_many_labels_do_not_touch_each_other_and_the_legend_no_panel(draw) -> None:
    goal = target(20, 20)
    drawn = draw(algorithm_run(goal, 20), {-32.0: flow_run(goal, -32.0)})
    drawn.draw_without_rendering()
    # An annotation's own box includes its leader; the words are what must not touch.
    boxes = [Text.get_window_extent(text) for text in drawn.axes[0].texts]
    assert len(boxes) == 20
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
    legend = drawn.legends[0].get_window_extent()
    assert not any(legend.overlaps(axes.get_window_extent()) for axes in drawn.axes)


def test_the_first_panel_alone_draws_the_same_lines() -> None:
    upper, *_ = figure(-8.0, -32.0).axes
    (alone,) = entries_and_staircase(algorithm_run(GOAL, STAGES), flows_from(-8.0, -32.0)).axes
    for line, same in zip(upper.lines, alone.lines, strict=True):
        np.testing.assert_array_equal(line.get_xydata(), same.get_xydata())
    assert [text.get_text() for text in alone.texts] == [text.get_text() for text in upper.texts]
    assert (alone.get_xlabel(), alone.get_ylabel()) == (
        r"rescaled time $t \,/\, \log(1/\alpha)$",
        "entries of the products",
    )


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(0, 10), max_size=12), st.floats(0.01, 2))
def test_spread_keeps_a_gap_an_order_and_the_mean(places: list[float], gap: float) -> None:
    moved = spread(np.sort(np.array(places, dtype=float)), gap)
    assert (np.diff(moved) >= gap * (1 - 1e-9)).all()
    if places:
        assert moved.mean() == pytest.approx(np.mean(places))


def test_spread_leaves_what_stands_apart_and_centres_what_does_not() -> None:
    np.testing.assert_allclose(spread(np.array([0.0, 5.0, 9.0]), 1.0), [0, 5, 9])
    np.testing.assert_allclose(spread(np.array([0.0, 5.0, 5.0, 9.0]), 1.0), [0, 4.5, 5.5, 9])
