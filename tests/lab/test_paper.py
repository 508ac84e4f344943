from dataclasses import replace

import pytest

from lab.toy_experiments.paper2000.slow_decay import experiment
from lab.toy_papers.paper2000 import losses_fall
from rankscope.lab.catalogue import load_paper, paper_names
from rankscope.lab.experiment import SCALES
from rankscope.lab.paper import Paper, cut

TOY = experiment("small")


def test_every_paper_loads_at_every_scale() -> None:
    assert paper_names() == ("boix2023", "yunis2024")
    for name in paper_names():
        for scale in SCALES:
            paper = load_paper(name, scale)
            assert paper.joint or all(each.claims for each in paper.experiments)


def test_all_claims_and_figures_of_yunis2024_are_there() -> None:
    paper = load_paper("yunis2024", "small")
    assert {f"Y{number}" for number in range(1, 13)} <= set(paper.claims)
    assert {f"figure-{number}" for number in range(1, 8)} <= set(paper.figures)


def test_an_unknown_paper() -> None:
    with pytest.raises(ValueError, match="no paper 'yunis'; did you mean yunis2024"):
        load_paper("yunis", "small")


def test_a_paper_has_experiments_of_its_own_at_its_scale() -> None:
    for name, scale in (("paper1999", "small"), ("paper2000", "smoke")):
        with pytest.raises(ValueError, match="cannot have the experiment 'paper2000/slow-decay'"):
            Paper(name, "", scale, (TOY,))
    other = replace(TOY, name="paper2000/report-small")
    with pytest.raises(ValueError, match="cannot have the experiment 'paper2000/report-small'"):
        Paper("paper2000", "", "small", (other,))


def test_names_of_runs_that_are_judged_together_differ() -> None:
    both = (TOY, replace(TOY, name="paper2000/other"))
    assert not Paper("paper2000", "", "small", both).joint
    with pytest.raises(ValueError, match="two experiments have a run of the same name"):
        Paper("paper2000", "", "small", both, claims={"P1": losses_fall})


def test_a_cut_has_fewer_runs_and_seeds() -> None:
    both = (TOY, replace(TOY, name="paper2000/other"))
    paper = Paper("paper2000", "", "small", both)
    (only,) = cut(paper, {TOY.name: ("rates/slow",)}, seeds=(1,)).experiments
    assert only == replace(
        TOY, runs={"rates/slow": TOY.runs["rates/slow"]}, seeds=(1,), expected_seconds=15
    )
    assert cut(paper, {TOY.name: ("rates/slow",)}, seeds=(1,)).figures == {}
    unknown = replace(paper, experiments=(replace(TOY, expected_seconds=None),))
    (only,) = cut(unknown, {TOY.name: ("rates/slow",)}, seeds=(0,)).experiments
    assert only.expected_seconds is None


def test_a_cut_has_the_figures_that_its_experiments_draw() -> None:
    (name, maker), other = *TOY.figures.items(), replace(TOY, name="paper2000/other")
    other = replace(other, runs={"other/run": TOY.runs["rates/slow"]}, figures={"own": maker})
    figures = {name: maker, "own": maker}
    paper = Paper("paper2000", "", "small", (TOY, other), figures=figures)
    assert set(cut(paper, {TOY.name: ("rates/slow",)}, seeds=(0,)).figures) == {name}
