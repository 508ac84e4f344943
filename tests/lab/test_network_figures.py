import inspect

import numpy as np
import pytest
from matplotlib.figure import Figure

from figures.test_networks import cells, panels
from figures.training_runs import label_runs, training, trainings
from rankscope.lab.claims.grokking import steepest_drop
from rankscope.lab.experiment import FigureMaker
from rankscope.lab.network_figures import (
    ALL_FIGURES,
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


def titles(figure: Figure) -> list[str]:
    return [axes.get_title() for axes in panels(figure.axes)]


def test_networks_stand_in_the_papers_order_and_missing_ones_are_left_out() -> None:
    figure = figure_2(trainings("lm", "grok", "vgg", seeds=1) | label_runs(seeds=1))
    assert [title.partition("\n")[0] for title in titles(figure)] == ["VGG", "Transformer"]


def test_figures_1_to_3_show_the_base_decay() -> None:
    results = trainings("vgg")
    for ds in results["vgg/decay-0.0001"].values():
        ds.attrs["shown_matrix"] = "layers.0.weight"
        ds.attrs["shown_pair"] = "layers.0 > layers.1"
    runs = "VGG\nweight decay 0.0001 (base), 3 seeds"
    assert titles(figure_1(results)) == [f"{runs}\nlayers.0.weight"]
    assert titles(figure_2(results)) == [runs]
    assert titles(figure_3(results))[0] == f"{runs}\nlayers.0 > layers.1"
    del results["vgg/decay-0.0001"]
    assert titles(figure_2(results)) == ["VGG\nweight decay 0, 3 seeds"]


def test_pairs_of_other_taps_are_not_shown() -> None:
    every = panels(figure_3(trainings("vgg", seeds=1)).axes)[1]
    assert [label.get_text() for label in every.get_yticklabels()] == [
        "layers.0 > layers.1",
        "layers.1 > layers.2",
    ]


@pytest.mark.parametrize("maker", [figure_4, figure_5])
def test_rows_are_all_decays_and_collapsed_runs_are_named(maker: FigureMaker) -> None:
    vgg, lstm = maker(trainings("lstm", "vgg", seeds=1)).subfigs
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
    results = trainings("grok", seeds=3)
    figure = grokking({name: {1: seeds[1]} for name, seeds in results.items()})
    assert len(figure.axes) == 3 * 3
    judged = results["grok/decay-1"][1]
    last = figure.axes[-1].lines
    (jump,) = (line for line in last if line.get_linestyle() == ":")
    low, high = 9 / 25 / 1.1, 16 / 25 / 1.1
    part = (0.5 - low) / (high - low)
    want = 10 ** (np.log10(90) + part * (np.log10(160) - np.log10(90)))
    assert jump.get_xdata()[0] == pytest.approx(want + 1)
    (drop,) = (line for line in last if line.get_linestyle() == "--")
    assert drop.get_xdata()[0] == pytest.approx(10 ** steepest_drop(judged) + 1)


def test_samples_of_each_decay_and_the_first_seed() -> None:
    results = trainings("unet")
    for ds in (seeds[1] for seeds in results.values()):
        del ds.attrs["samples"]
    assert len(samples(results).axes) == 4


def test_the_overview_has_a_column_for_each_network() -> None:
    figure = decay_overview(trainings("vgg", "grok", seeds=1))
    assert [axes.get_title() for axes in figure.axes[:2]] == ["VGG", "grokking"]


def test_settings_know_which_of_their_seeds_collapsed() -> None:
    well, ill = training(0), training(1, collapsed=True)
    found = setting("weight decay 1", {1: ill, 0: well})
    assert [bool(reason) for reason in found.collapsed] == [False, True]
    assert found.runs[0].attrs["seed"] == 0
    assert "1 of 2 seeds collapsed, which the mean includes: training loss 2.5" in found.heading


@pytest.mark.parametrize("maker", ALL_FIGURES.values(), ids=ALL_FIGURES.keys())
def test_without_its_networks_a_figure_says_what_it_needs(maker: FigureMaker) -> None:
    with pytest.raises(ValueError, match=r"needs runs of .*; no seed has all of them"):
        maker({})


@pytest.mark.parametrize("maker", ALL_FIGURES.values(), ids=ALL_FIGURES.keys())
def test_captions_have_a_first_sentence_and_more(maker: FigureMaker) -> None:
    first, blank, *rest = inspect.getdoc(maker).splitlines()
    assert first.endswith(".")
    assert blank == "" and " ".join(rest).endswith((".", "?"))


def test_figures_of_our_own_say_so_in_their_title() -> None:
    ours = {
        name
        for name, maker in ALL_FIGURES.items()
        if inspect.getdoc(maker).partition("\n")[0].endswith("(not in the paper).")
    }
    assert ours == {name for name in ALL_FIGURES if not name.startswith("figure-")}


@pytest.mark.parametrize("maker", ALL_FIGURES.values(), ids=ALL_FIGURES.keys())
def test_bands_and_means_over_seeds_are_spoken_of_only_where_there_are_several(
    maker: FigureMaker,
) -> None:
    sentences = " ".join(inspect.getdoc(maker).split()).split(". ")
    over_seeds = [said for said in sentences if "bands" in said and "highest" in said]
    assert all("ith several seeds" in said for said in over_seeds), over_seeds


def test_overlaps_of_matrices_that_decayed_to_nothing_are_left_out() -> None:
    """The middle matrix, of both pairs, falls to 1e-42 at the fourth of six snapshots."""
    results = trainings("vgg", seeds=2)
    for ds in results["vgg/decay-0.1"].values():
        ds["singular_values"][3:, 1] *= 1e-42
    diagonal, every, levels, relative = panels(figure_5(results).subfigs[0].axes)[4::5]
    for axes in (diagonal, every, relative):
        drawn = np.isfinite(cells(axes))
        assert drawn[:, :3].all() and not drawn[:, 3:].any()
    *measured, _ = levels.lines  # the last is the level of chance
    assert all(np.isnan(line.get_ydata()[3:]).all() for line in measured)
