import inspect

import pytest
from matplotlib.figure import Figure

from figures.test_networks import panels
from figures.training_runs import label_runs, training, trainings
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
    note,
    samples,
)


def titles(figure: Figure) -> list[str]:
    return [axes.get_title() for axes in panels(figure.axes)]


def test_networks_stand_in_the_papers_order_and_missing_ones_are_left_out() -> None:
    figure = figure_2(trainings("lm", "grok", "vgg", seeds=1) | label_runs(seeds=1))
    assert titles(figure) == ["VGG", "Transformer"]


def test_figures_1_to_3_show_the_base_decay() -> None:
    results = trainings("vgg")
    for ds in results["vgg/decay-0.0001"].values():
        ds.attrs["shown_matrix"] = "layers.0.weight"
        ds.attrs["shown_pair"] = "layers.0 > layers.1"
    assert titles(figure_1(results)) == ["VGG\nlayers.0.weight"]
    assert titles(figure_3(results))[0] == "VGG\nlayers.0 > layers.1"


def test_pairs_of_other_taps_are_not_shown() -> None:
    every = panels(figure_3(trainings("vgg", seeds=1)).axes)[1]
    assert [label.get_text() for label in every.get_yticklabels()] == [
        "layers.0 > layers.1",
        "layers.1 > layers.2",
    ]


@pytest.mark.parametrize("maker", [figure_4, figure_5])
def test_rows_are_the_papers_decays_and_collapsed_runs_are_named(maker: FigureMaker) -> None:
    vgg, lstm = maker(trainings("lstm", "vgg", seeds=1)).subfigs
    headings = [text for axes in panels(vgg.axes) if (text := axes.get_title(loc="left"))]
    assert headings == [
        "weight decay 0",
        "weight decay 0.001",
        "weight decay 0.01",
        "weight decay 0.1, collapsed: training loss 2.5, a constant predictor's is 2.5",
    ]
    headings = [text for axes in panels(lstm.axes) if (text := axes.get_title(loc="left"))]
    assert headings == [f"weight decay {decay}" for decay in ("0", "0.1", "1", "10")]


def test_losses_have_a_panel_for_each_decay_of_each_network() -> None:
    assert len(figure_6(trainings("unet", "vgg", seeds=1)).axes) == 8


def test_true_labels_stand_above_random_ones() -> None:
    rows = titles(figure_7(label_runs(seeds=1)))[::3]
    assert [row.partition(":")[0] for row in rows] == ["true labels", "random labels"]


def test_grokking_has_a_column_for_each_decay() -> None:
    assert len(grokking(trainings("grok", seeds=1)).axes) == 3 * 3


def test_samples_of_each_decay_and_the_first_seed() -> None:
    results = trainings("unet")
    for ds in (seeds[1] for seeds in results.values()):
        del ds.attrs["samples"]
    assert len(samples(results).axes) == 4


def test_the_overview_has_a_column_for_each_network() -> None:
    figure = decay_overview(trainings("vgg", "grok", seeds=1))
    assert [axes.get_title() for axes in figure.axes[:2]] == ["VGG", "grokking"]


def test_the_base_decay_is_shown_where_the_sweep_is_not_there() -> None:
    every = trainings("vgg")
    few = {name: every[name] for name in ("vgg/decay-0.0001", "vgg/decay-0.01")}
    headings = [axes.get_title(loc="left") for axes in figure_6(few).axes]
    assert headings == ["VGG, weight decay 0.0001", "VGG, weight decay 0.01"]


def test_notes_count_the_seeds_that_collapsed() -> None:
    well, ill = training(0), training(1, collapsed=True)
    assert note([well]) == ""
    assert note([well, ill]).startswith("collapsed (1 of 2 seeds): training loss 2.5")
    assert note([ill, ill]).startswith("collapsed: training loss 2.5")


@pytest.mark.parametrize("maker", ALL_FIGURES.values(), ids=ALL_FIGURES.keys())
def test_without_its_networks_a_figure_says_what_it_needs(maker: FigureMaker) -> None:
    with pytest.raises(ValueError, match=r"needs runs of .*; the results have none"):
        maker({})


@pytest.mark.parametrize("maker", ALL_FIGURES.values(), ids=ALL_FIGURES.keys())
def test_captions_have_a_first_sentence_and_more(maker: FigureMaker) -> None:
    first, blank, *rest = inspect.getdoc(maker).splitlines()
    assert first.endswith(".") or first.endswith("(not in the paper).")
    assert blank == "" and " ".join(rest).endswith((".", "?"))
