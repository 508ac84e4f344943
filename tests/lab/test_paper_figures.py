import numpy as np

from figures.toy_runs import full_run, perturbation_run, target
from rankscope.lab.findings import docstring
from rankscope.lab.paper_figures import (
    newly_active_figure,
    plateau_figure,
    rises_figure,
    stage_figures,
)


def test_each_figure_of_a_diagonal_network_says_what_it_shows() -> None:
    captions = {name: docstring(maker) for name, maker in stage_figures("teacher-1").items()}
    assert len(set(captions.values())) == len(captions)
    titles = {name: " ".join(of.partition("\n\n")[0].split()) for name, of in captions.items()}
    assert "K-Q" in titles["entries-kq"] and titles["entries-kq"].endswith("(fig. 7).")
    assert "V-O" in titles["entries-vo"] and titles["entries-vo"].endswith("(fig. 8).")


def test_rises_name_their_run_and_its_first_seed() -> None:
    ds = full_run(np.array([[1.0, 0.6], [2.0, 1.0]]))
    figure = rises_figure({"gaussian-1e-4/full": {2: ds, 1: ds}}, run="gaussian-1e-4/full")
    assert figure.get_suptitle() == "gaussian-1e-4/full, seed 1"


def test_perturbations_name_theirs_above_the_legend() -> None:
    runs = {"teacher-1/alpha-1e-32": {2: perturbation_run(target(5, 4))}}
    for made in (plateau_figure, newly_active_figure):
        (legend,) = made(runs, run="teacher-1/alpha-1e-32").legends
        assert legend.get_title().get_text() == "teacher-1/alpha-1e-32, seed 2"
