import numpy as np

from lab.papers.boix2023.toy_runs import full_run, perturbation_run, target
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.papers.boix2023.figures.captions import (
    FIGURES,
    newly_active_figure,
    plateau_figure,
    rises_figure,
)
from rankscope.lab.running.run_key import RunKey

CAPTIONS = {figure.name: figure.caption for figure in FIGURES}


def first_line(name: str) -> str:
    return " ".join(CAPTIONS[name].partition("\n\n")[0].split())


def test_figures_of_the_paper_stand_under_their_numbers() -> None:
    numbers = {name for name in CAPTIONS if name.startswith("figure-")}
    assert numbers >= {f"figure-{number}" for number in range(1, 17)}
    assert "K-Q" in first_line("figure-7") and first_line("figure-7").endswith("(fig. 7).")
    assert "V-O" in first_line("figure-8") and first_line("figure-8").endswith("(fig. 8).")


def test_rises_name_their_run_and_its_first_seed() -> None:
    ds = full_run(np.array([[1.0, 0.6], [2.0, 1.0]]))
    for network, words in (("gaussian-1e-8", "Gaussian 1e-8"), ("other", "other")):
        figure = rises_figure(Runs({RunKey(network, kind="full"): {2: ds, 1: ds}}))
        assert figure.get_suptitle() == f"{words}, seed 1"


def test_perturbations_name_theirs_above_the_legend() -> None:
    key = RunKey("teacher-1", {"log10_alpha": -32.0})
    runs = Runs({key: {2: perturbation_run(target(5, 4))}})
    for draw in (plateau_figure, newly_active_figure):
        (legend,) = draw(runs).legends
        assert legend.get_title().get_text() == r"head, teacher 1, $\alpha$ = $10^{-32}$, seed 2"
