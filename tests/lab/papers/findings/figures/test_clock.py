import numpy as np

from lab.papers.findings.made_runs import FALL, NEVER, vit, vit_keys
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.papers.findings.claims.clock import BAND
from rankscope.lab.papers.findings.figures.clock import clock, clock_lm, colours_of
from rankscope.lab.running.run_key import RunKey

RUN = vit((0.5, FALL), (2.0, NEVER))
OTHER = vit((50.0, FALL), (2.0, NEVER))


def test_a_column_per_scale_shows_the_first_seed() -> None:
    figure = clock(Runs({key: {2: OTHER, 1: RUN} for key in vit_keys()}))
    assert len(figure.axes) == 8
    titles = [axes.get_title(loc="left") for axes in figure.axes[:4]]
    assert titles == ["scale 1", "scale 0.3", "scale 0.1", "scale 0.03"]
    assert figure.get_suptitle() == "K-Q of 2 heads of width 16, seed 1"
    ratio, rank = figure.axes[0], figure.axes[4]
    np.testing.assert_allclose(rank.lines[0].get_ydata(), FALL)
    assert ratio.lines[0].get_ydata()[4] == 0.5
    assert ratio.get_ylim()[0] < BAND[0]


def test_dots_mark_half_of_the_fall_of_heads_that_fall() -> None:
    figure = clock(Runs({key: {1: RUN} for key in vit_keys()}))
    for axes, height in ((figure.axes[0], 0.5), (figure.axes[4], 5.5)):
        dots = [line for line in axes.lines if line.get_marker() == "o"]
        assert [(float(d.get_xdata()[0]), float(d.get_ydata()[0])) for d in dots] == [(100, height)]


def test_the_language_model_has_a_column_per_seed() -> None:
    key = RunKey("lm", experiment="findings/clock")
    figure = clock_lm(Runs({key: {1: RUN, 2: OTHER}}))
    assert [axes.get_title(loc="left") for axes in figure.axes[:2]] == ["seed 1", "seed 2"]


def test_heads_of_a_block_share_a_colour() -> None:
    colours = colours_of([f"blocks.{b}.attention.h{h}.kq" for b in range(3) for h in range(2)])
    assert colours[0] == colours[1] and len(set(colours)) == 3
