import numpy as np
import pytest

from lab.papers.findings.made_runs import GROKKED, SEEDS, grok, grok_keys
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.papers.findings.figures.crossings import grokking_rank

KEYS = grok_keys()
NEVER = grok(best=0.3)


def points(axes) -> list[tuple[float, float, str, str]]:
    return [
        (
            float(line.get_xdata()[0]),
            float(line.get_ydata()[0]),
            line.get_color(),
            line.get_marker(),
        )
        for line in axes.lines
        if line.get_linestyle() == "None"
    ]


def test_a_point_for_every_run_that_crosses() -> None:
    runs = {key: dict(zip(SEEDS, GROKKED, strict=True)) for key in KEYS}
    runs[KEYS[0]] = dict.fromkeys(SEEDS, NEVER)
    figure = grokking_rank(Runs(runs))
    left, right = figure.axes
    assert len(points(left)) == len(points(right)) == 24
    x, y, _, _ = points(left)[0]
    assert x == pytest.approx(10**1.5) and y == pytest.approx(0.49)
    assert points(right)[1][1] == pytest.approx(3 * np.sqrt(500))
    assert len({colour for *_, colour, _ in points(left)}) == 3
    assert {marker for *_, marker in points(left)} == {"o", "^", "s"}
    assert figure.get_suptitle() == "Modular addition: 24 of 27 runs reach 50% test accuracy"
    assert left.get_ylim()[0] == right.get_ylim()[0] == 0
    assert left.get_xscale() == "log"


def test_the_title_names_the_task_that_the_runs_declare() -> None:
    declared = {"task": {"model": {"p": 59}}}
    runs = Runs({KEYS[0]: {3: grok(3, 490, declaration=declared)}})
    assert grokking_rank(runs).get_suptitle().startswith("(a + b) mod 59: 1 of 1")


def test_runs_that_never_cross_leave_words() -> None:
    figure = grokking_rank(Runs({KEYS[0]: {3: NEVER}}))
    assert [axes.texts[0].get_text() for axes in figure.axes] == ["no run crosses"] * 2
