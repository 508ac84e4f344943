"""Curves of the accuracy kept, on runs whose heads need chosen ranks."""

import numpy as np
import pytest

from lab.papers.boix2023.vit_runs import courses, vit_run
from lab.papers.findings.cut_runs import RANKS, cut_run, key
from rankscope.lab.experiment import TooFewRuns
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.papers.boix2023.figures.head_cuts import kept_accuracy
from rankscope.lab.running.run_key import RunKey


def test_lines_are_means_over_seeds_of_the_share_kept() -> None:
    runs = Runs(
        {
            key(1.0, 0.0): {0: cut_run((1, 4, 8)), 1: cut_run((2, 4, 8), end=0.9)},
            key(0.1, 0.0): {0: cut_run((1, 1, 1)), 1: cut_run((1, 1, 1), end=0.1)},
            key(1.0, 0.1): {0: cut_run((1, 2, 4))},
        }
    )
    figure = kept_accuracy(runs)
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        f"{cut} cut, decay {decay}" for decay in ("0", "0.1") for cut in ("K-Q", "V-O", "both")
    ]
    small, large, level = figure.axes[0].lines
    np.testing.assert_allclose(small.get_ydata(), [0.5, *[1.0] * 8])
    np.testing.assert_allclose(large.get_ydata(), [0.5, 0.75, *[1.0] * 7])
    assert level.get_ydata()[0] == 0.99
    labels = [label.get_text() for label in figure.axes[3].get_xticklabels()]
    assert labels == [str(rank) for rank in RANKS]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "initial scale 0.1",
        "initial scale 1",
    ]


def test_networks_without_decays_have_one_row() -> None:
    runs = Runs({RunKey("vit", {"scale": 1.0}): {0: cut_run((1, 4, 8))}})
    titles = [axes.get_title(loc="left") for axes in kept_accuracy(runs).axes]
    assert titles == ["K-Q cut", "V-O cut", "both cut"]


def test_without_measured_cuts_there_is_no_figure() -> None:
    with pytest.raises(TooFewRuns, match="a run that measured cuts"):
        kept_accuracy(Runs({RunKey("vit", {"scale": 1.0}): {0: vit_run(courses((0, 1)))}}))
