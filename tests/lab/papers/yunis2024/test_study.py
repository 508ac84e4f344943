"""What the paper's study declares, without its figures."""

import inspect

import pytest

from rankscope.lab.experiment import SCALES
from rankscope.lab.papers.yunis2024 import CLAIMS, grok, lm, lstm, mlp, unet, vgg

EXPERIMENTS = (vgg, unet, lstm, lm, mlp, grok)


def test_claims_are_in_the_papers_order_with_second_rules_after_their_first() -> None:
    assert [rule.claim for rule in CLAIMS] == [
        *("Y1", "Y2", "Y3", "Y3-median", "Y3b", "Y4", "Y5", "Y6", "Y7", "Y7-uncollapsed"),
        *("Y8", "Y9", "Y10", "Y11", "Y12"),
    ]
    assert [rule.claim for rule in CLAIMS if rule.reason] == ["Y3-median", "Y7-uncollapsed"]


@pytest.mark.parametrize("scale", SCALES)
def test_every_claim_needs_runs_of_every_scale(scale: str) -> None:
    keys = [key for module in EXPERIMENTS for key in module.experiment(scale).runs]
    needed = {
        rule.claim: list(dict.fromkeys(key.network for key in rule.needs(keys))) for rule in CLAIMS
    }
    four = ["vgg", "unet", "lstm", "lm"]
    if scale == "smoke":  # which has no VGG at 0.1
        assert needed.pop("Y7") == needed.pop("Y7-uncollapsed") == four[1:]
    assert needed.pop("Y8") == ["mlp"] and needed.pop("Y9") == ["grok"]
    assert needed.pop("Y10") == ["lm"] and needed.pop("Y11") == ["vgg", "unet"]
    assert all(networks == four for networks in needed.values())


@pytest.mark.parametrize("module", EXPERIMENTS, ids=lambda module: module.__name__.split(".")[-1])
def test_docstrings_describe_every_scale_in_the_same_order(module) -> None:
    text = inspect.getdoc(module)
    name = module.experiment("smoke").name
    marks = [f"    rankscope run {name}", "\n`paper` ", "\n`small` ", "\n`smoke` ", "\nCost: "]
    positions = [text.index(mark) for mark in (*marks, "\nExpect at `small`: ")]
    assert positions == sorted(positions)
