from collections.abc import Callable

import numpy as np
import pytest
from matplotlib.figure import Figure

from lab.papers.yunis2024.figures.closed_form import label_runs, needed, training, trainings
from lab.papers.yunis2024.figures.test_networks import cells, panels
from rankscope.lab.experiment import FigureRule
from rankscope.lab.judging.runs import Runs
from rankscope.lab.papers.yunis2024.claims.grokking import steepest_drop
from rankscope.lab.papers.yunis2024.figures.captions import (
    FIGURES,
    decay_overview,
    figure_1,
    figure_2,
    figure_3,
    figure_4,
    figure_5,
    figure_6,
    figure_7,
    grokking,
    samples,
    setting,
)
from rankscope.lab.running.run import RunKey

BY_NAME = {figure.name: figure for figure in FIGURES}
BASE_DECAY = RunKey("vgg", {"decay": 1e-4})


def titles(figure: Figure) -> list[str]:
    return [axes.get_title() for axes in panels(figure.axes)]


def test_networks_stand_in_the_papers_order_and_missing_ones_are_left_out() -> None:
    runs = Runs({**trainings("lm", "grok", "vgg", seeds=1).entries, **label_runs(seeds=1).entries})
    figure = figure_2(needed(BY_NAME["figure-2"], runs))
    assert [title.partition("\n")[0] for title in titles(figure)] == ["VGG", "Transformer"]


def test_figures_1_to_3_show_the_base_decay() -> None:
    every = trainings("vgg")
    runs = needed(BY_NAME["figure-1"], every)
    for ds in runs.only.values():
        ds.attrs["shown_matrix"] = "layers.0.weight"
        ds.attrs["shown_pair"] = "layers.0 > layers.1"
    title = "VGG\nweight decay 0.0001 (base), 3 seeds"
    assert titles(figure_1(runs)) == [f"{title}\nlayers.0.weight"]
    assert titles(figure_2(runs)) == [title]
    assert titles(figure_3(runs))[0] == f"{title}\nlayers.0 > layers.1"
    without = Runs({key: seeds for key, seeds in every.entries.items() if key != BASE_DECAY})
    nearest = needed(BY_NAME["figure-2"], without)
    assert titles(figure_2(nearest)) == ["VGG\nweight decay 0, 3 seeds"]


def test_pairs_of_other_taps_are_not_shown() -> None:
    every = panels(figure_3(needed(BY_NAME["figure-3"], trainings("vgg", seeds=1))).axes)[1]
    assert [label.get_text() for label in every.get_yticklabels()] == [
        "layers.0 > layers.1",
        "layers.1 > layers.2",
    ]


@pytest.mark.parametrize("draw", [figure_4, figure_5])
def test_rows_are_all_decays_and_collapsed_runs_are_named(draw: Callable[[Runs], Figure]) -> None:
    vgg, lstm = draw(trainings("lstm", "vgg", seeds=1)).subfigs
    headings = [text for axes in panels(vgg.axes) if (text := axes.get_title(loc="left"))]
    headings[-1] = " ".join(headings[-1].split())  # it has two lines
    assert headings == [
        "weight decay 0, 1 seed",
        "weight decay 0.0001 (base), 1 seed",
        "weight decay 0.001, 1 seed",
        "weight decay 0.01, 1 seed",
        "weight decay 0.1, 1 seed, collapsed: training loss 2.5, a constant predictor's is 2.5",
    ]
    headings = [text for axes in panels(lstm.axes) if (text := axes.get_title(loc="left"))]
    assert headings == [f"weight decay {decay}, 1 seed" for decay in ("0", "0.1 (base)", "1", "10")]


def test_losses_have_a_panel_for_each_decay_of_each_network() -> None:
    assert len(figure_6(trainings("unet", "vgg", seeds=1)).axes) == 4 + 5


def test_true_labels_stand_above_random_ones() -> None:
    rows = titles(figure_7(label_runs(seeds=1)))[::3]
    assert [row.partition(",")[0] for row in rows] == ["true labels", "random labels"]


def test_grokking_marks_the_moments_that_are_judged() -> None:
    """Accuracy (0, 1, 4, 9, 16, 25) / 25 / 1.1 has one half between the steps 90 and 160."""
    runs = trainings("grok", seeds=3)
    figure = grokking(Runs({key: {1: seeds[1]} for key, seeds in runs.entries.items()}))
    assert len(figure.axes) == 3 * 3
    judged = runs.by("decay")[1.0][1]
    last = figure.axes[-1].lines
    (jump,) = (line for line in last if line.get_linestyle() == ":")
    low, high = 9 / 25 / 1.1, 16 / 25 / 1.1
    part = (0.5 - low) / (high - low)
    want = 10 ** (np.log10(90) + part * (np.log10(160) - np.log10(90)))
    assert jump.get_xdata()[0] == pytest.approx(want + 1)
    (drop,) = (line for line in last if line.get_linestyle() == "--")
    assert drop.get_xdata()[0] == pytest.approx(10 ** steepest_drop(judged) + 1)


def test_samples_of_each_decay_and_the_first_seed() -> None:
    runs = trainings("unet")
    for seeds in runs.entries.values():
        del seeds[1].attrs["samples"]
    assert len(samples(runs).axes) == 4


def test_the_overview_has_a_column_for_each_network() -> None:
    figure = decay_overview(trainings("vgg", "grok", seeds=1))
    assert [axes.get_title() for axes in figure.axes[:2]] == ["VGG", "grokking"]


def test_settings_know_which_of_their_seeds_collapsed() -> None:
    well, ill = training(0), training(1, collapsed=True)
    settings = setting("weight decay 1", {1: ill, 0: well})
    assert [bool(reason) for reason in settings.collapsed] == [False, True]
    assert settings.runs[0].attrs["seed"] == 0
    assert "1 of 2 seeds collapsed, which the mean includes: training loss 2.5" in settings.heading


@pytest.mark.parametrize("figure", FIGURES, ids=BY_NAME)
def test_captions_have_a_first_sentence_and_more(figure: FigureRule) -> None:
    first, blank, *rest = figure.caption.splitlines()
    assert first.endswith(".")
    assert blank == "" and " ".join(rest).endswith((".", "?"))


def test_figures_of_our_own_say_so_in_their_title() -> None:
    ours = {
        figure.name
        for figure in FIGURES
        if figure.caption.partition("\n")[0].endswith("(not in the paper).")
    }
    assert ours == {name for name in BY_NAME if not name.startswith("figure-")}


@pytest.mark.parametrize("figure", FIGURES, ids=BY_NAME)
def test_bands_and_means_over_seeds_are_spoken_of_only_where_there_are_several(
    figure: FigureRule,
) -> None:
    sentences = " ".join(figure.caption.split()).split(". ")
    over_seeds = [said for said in sentences if "bands" in said and "highest" in said]
    assert all("ith several seeds" in said for said in over_seeds), over_seeds


def test_overlaps_of_matrices_that_decayed_to_nothing_are_left_out() -> None:
    """The middle matrix, of both pairs, falls to 1e-42 at the fourth of six snapshots."""
    runs = trainings("vgg", seeds=2)
    for ds in runs.by("decay")[0.1].values():
        ds["singular_values"][3:, 1] *= 1e-42
    diagonal, every, levels, relative = panels(figure_5(runs).subfigs[0].axes)[4::5]
    for axes in (diagonal, every, relative):
        drawn = np.isfinite(cells(axes))
        assert drawn[:, :3].all() and not drawn[:, 3:].any()
    *measured, _ = levels.lines  # the last is the level of chance
    assert all(np.isnan(line.get_ydata()[3:]).all() for line in measured)
