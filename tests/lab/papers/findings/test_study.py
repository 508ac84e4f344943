"""What the study of our findings declares."""

import inspect

import pytest

from rankscope.lab.experiment import SCALES
from rankscope.lab.papers.findings import CLAIMS, clock, grokking_rank, needed_rank, study
from rankscope.lab.papers.yunis2024 import grok

EXPERIMENTS = (clock, needed_rank, grokking_rank)


def test_claims_are_ours_and_have_no_first_rules() -> None:
    assert [rule.claim for rule in CLAIMS] == ["N1", "N2", "N3"]
    assert all(rule.ours and not rule.headline for rule in CLAIMS)
    assert all(study(scale).ours for scale in SCALES)


def test_verdicts_of_scale_paper_say_that_all_declared_seeds_were_unseen() -> None:
    assert study("small").seen == study("smoke").seen == {}
    declared = study("paper")
    seeds = {experiment.name: set(experiment.seeds) for experiment in declared.experiments}
    assert declared.seen.keys() == seeds.keys() and all(rule.changed for rule in CLAIMS)
    assert not any(seeds[name] & set(seen) for name, seen in declared.seen.items())


@pytest.mark.parametrize("module", EXPERIMENTS)
def test_docstrings_describe_every_scale_in_the_same_order(module) -> None:
    text, name = inspect.getdoc(module), module.experiment("smoke").name
    marks = [f"    rankscope run {name}", "\n`paper` ", "\n`small` ", "\n`smoke` ", "\nCost: "]
    positions = [text.index(mark) for mark in marks]
    assert positions == sorted(positions)


@pytest.mark.parametrize("scale", SCALES)
def test_every_claim_needs_runs_of_every_scale(scale: str) -> None:
    declared = study(scale)
    assert all(rule.needs(declared.keys) for rule in CLAIMS)
    assert all(figure.needs(declared.keys) for figure in declared.figures)


def test_seeds_are_those_that_nobody_had_seen() -> None:
    assert clock.experiment("paper").seeds == (1, 2, 3)
    new = grokking_rank.experiment("paper").seeds
    assert new == (3, 4, 5) and not set(new) & set(grok.experiment("paper").seeds)
