import numpy as np
import pytest

from lab.papers.yunis2024.figures.closed_form import STEPS, ranks, sweep
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.papers.yunis2024.claims.grokking import steepest_drop
from rankscope.lab.papers.yunis2024.figures.grokking import grokking, running_median


def runs() -> Runs:
    """At the largest decay, seed 2 never gets half of the held-out sums right."""
    runs = sweep("grok", 0.0, 1.0)
    runs.by("decay")[1.0][2]["validation_accuracy"] *= 0.4
    return runs


RUNS = runs()
FIGURE = grokking(RUNS)


def marks(style: str) -> list[list[float]]:
    return [
        [line.get_xdata()[0] for line in axes.lines if line.get_linestyle() == style]
        for axes in FIGURE.axes
    ]


def test_columns_by_decay_rows_by_what_is_measured() -> None:
    axes = FIGURE.axes
    assert len(axes) == 6
    headings = [panel.get_title(loc="left") for panel in axes[:2]]
    assert headings == ["weight decay 0, 3 seeds", "weight decay 1, 3 seeds"]
    assert {panel.get_xscale() for panel in axes} == {"log"}
    np.testing.assert_array_equal(axes[1].lines[0].get_xdata(), np.array(STEPS) + 1)


@pytest.mark.parametrize("seed", range(3))
def test_every_line_is_one_seed(seed: int) -> None:
    losses, accuracies, ranked = FIGURE.axes[1::2]
    ds = RUNS.by("decay")[1.0][seed]
    for lines, want in (
        (losses.lines[seed:6:3], [ds["training_loss"], ds["validation_loss"]]),
        (accuracies.lines[seed:3:3], [ds["validation_accuracy"]]),
        (ranked.lines[seed:3:3], [ranks(ds).mean(1)]),
    ):
        smooth = running_median if lines[0].axes is losses else np.asarray
        drawn = [line.get_ydata() for line in lines]
        np.testing.assert_allclose(drawn, [smooth(np.asarray(values)) for values in want])


def test_running_medians_drop_spikes_and_follow_the_rest() -> None:
    values = np.arange(40.0)
    np.testing.assert_allclose(running_median(values)[7:-7], values[7:-7])
    values[20] = 1e6
    assert running_median(values).max() < 40


def jump(seed: int) -> float:
    """Accuracy (0, 1, 4, 9, 16, 25) / 25 (0.9 + 0.1 seed) / 1.1 has one half after step 90."""
    low, high = (square / 25 * (0.9 + 0.1 * seed) / 1.1 for square in (9, 16))
    part = (0.5 - low) / (high - low)
    return float(90 * (160 / 90) ** part)


def test_moments_of_each_seed_are_marked_where_they_are_and_in_the_legend() -> None:
    jumps = [jump(seed) + 1 for seed in range(3)]
    for axes in (0, 2, 4):
        assert marks(":")[axes] == pytest.approx(jumps)
        assert marks(":")[axes + 1] == pytest.approx(jumps[:2])
    drops = [10 ** steepest_drop(ds) + 1 for ds in RUNS.by("decay")[1.0].values()]
    assert marks("--") == [[], [], [], drops, [], drops]
    accuracy = FIGURE.axes[3].lines
    solid, dotted, dashed = (
        [line.get_color() for line in accuracy if line.get_linestyle() == style]
        for style in ("-", ":", "--")
    )
    assert solid == dashed and solid[:2] == dotted and len(set(solid)) == 3
    (legend,) = FIGURE.legends
    assert [line.get_linestyle() for line in legend.get_lines()] == [*"-----", ":", "--"]
    assert [line.get_color() for line in legend.get_lines()[:3]] == solid
    words = [text.get_text() for text in legend.get_texts()]
    assert words[:5] == ["seed 0", "seed 1", "seed 2", "training loss", "held-out loss"]
    solid_line, pale_line = legend.get_lines()[3:5]
    drawn = {line.get_alpha() for line in FIGURE.axes[0].lines if line.get_linestyle() == "-"}
    assert {solid_line.get_alpha(), pale_line.get_alpha()} == drawn
