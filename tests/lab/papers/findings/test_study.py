"""What the study of our findings declares."""

import inspect

import pytest

from rankscope.lab.experiment import SCALES
from rankscope.lab.papers.findings import CLAIMS, clock, grokking_rank, needed_rank, study
from rankscope.lab.papers.yunis2024 import grok

EXPERIMENTS = (clock, needed_rank, grokking_rank)


def test_claims_are_ours_and_unchanged() -> None:
    assert [rule.claim for rule in CLAIMS] == ["N1", "N2", "N3"]
    assert all(rule.ours and not rule.changed and not rule.headline for rule in CLAIMS)
    assert all(study(scale).ours and study(scale).seen == {} for scale in SCALES)


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
