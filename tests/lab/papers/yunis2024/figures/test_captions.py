import pytest

from lab.papers.yunis2024.figures.closed_form import (
    label_runs,
    needed,
    panels,
    together,
    training,
    trainings,
)
from rankscope.lab.experiment import FigureRule
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.papers.yunis2024.figures.captions import FIGURES
from rankscope.lab.papers.yunis2024.figures.networks import figure_2
from rankscope.lab.papers.yunis2024.figures.settings import setting
from rankscope.lab.running.run_key import RunKey

BY_NAME = {figure.name: figure for figure in FIGURES}


def titles(runs: Runs) -> list[str]:
    figure = figure_2(needed(BY_NAME["figure-2"], runs))
    return [title for axes in panels(figure) if (title := axes.get_title(loc="left"))]


def test_networks_stand_in_the_papers_order_and_missing_ones_are_left_out() -> None:
    runs = together(trainings("lm", "grok", "vgg", seeds=1), label_runs(seeds=1))
    assert [title.partition("\n")[0] for title in titles(runs)] == ["VGG", "Transformer"]


def test_figures_1_to_3_show_the_base_decay_or_the_nearest() -> None:
    runs = trainings("vgg")
    assert titles(runs) == ["VGG\nweight decay 0.0001 (base), 3 seeds"]
    base = RunKey("vgg", {"decay": 1e-4})
    without = Runs({key: seeds for key, seeds in runs.entries.items() if key != base})
    assert titles(without) == ["VGG\nweight decay 0, 3 seeds"]


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
    over_seeds = [text for text in sentences if "bands" in text and "highest" in text]
    assert all("ith several seeds" in text for text in over_seeds), over_seeds
