import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from lab.papers.yunis2024.figures.closed_form import (
    mean_alignment,
    ranks,
    sweep,
    together,
    training,
)
from rankscope.lab.papers.yunis2024.figures.decay import decay_overview, rank_by_decay

DECAYS = (0.0, 10.0)


def points(axes: Axes) -> list[Line2D]:
    return [line for line in axes.lines if line.get_marker() == "o"]


def test_ends_of_training_against_decay() -> None:
    figure = decay_overview(together(sweep("grok", 1.0), sweep("vgg", *DECAYS)))
    ranked, other, relative, _ = figure.axes
    assert (ranked.get_title(loc="left"), other.get_title(loc="left")) == ("VGG", "grokking")
    ends = [training(1, decay=decay).isel(step=[-1]) for decay in DECAYS]
    np.testing.assert_allclose(ranked.lines[0].get_ydata(), [np.median(ranks(ds)) for ds in ends])
    want = np.array([np.median(mean_alignment(ds)) for ds in ends])
    np.testing.assert_allclose(relative.lines[0].get_ydata(), want / 0.02)
    assert [label.get_text() for label in relative.get_xticklabels()] == ["0", "10"]
    assert len(points(relative)) == 6


def test_a_collapsed_seed_is_hollow_and_in_no_mean() -> None:
    ill = [(0.0, 2), *((10.0, seed) for seed in range(3))]
    _, aligned = decay_overview(sweep("vgg", *DECAYS, collapsed=ill)).axes
    faces = [point.get_markerfacecolor() == "white" for point in points(aligned)]
    assert faces == [False, False, True, True, True, True]
    first, second = aligned.lines[0].get_ydata()
    seeds = [point.get_ydata()[0] for point in points(aligned)]
    assert first == pytest.approx((seeds[0] + seeds[1]) / 2)
    assert np.isnan(second)


def test_a_seed_without_a_number_does_not_erase_the_others() -> None:
    runs = sweep("vgg", 0.0)
    runs.only[2]["alignment"] = runs.only[2]["alignment"] * np.nan
    _, aligned = decay_overview(runs).axes
    seeds = [point.get_ydata()[0] for point in points(aligned)]
    assert np.isnan(seeds[2])
    assert aligned.lines[0].get_ydata()[0] == pytest.approx((seeds[0] + seeds[1]) / 2)


def test_ranks_of_all_networks_share_one_axis() -> None:
    vgg, unet = rank_by_decay(together(sweep("vgg", 0.0, 0.001), sweep("unet", 0.1))).axes
    assert vgg.get_ylim() == unet.get_ylim() == (0, 1) and unet.get_title(loc="left") == "UNet"
    assert vgg.lines[0].get_ydata()[0] > vgg.lines[0].get_ydata()[1]
    assert [label.get_text() for label in vgg.get_xticklabels()] == ["0", "$10^{-3}$"]
