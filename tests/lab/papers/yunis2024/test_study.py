"""What the paper's study declares, without its figures."""

import inspect
import math
from dataclasses import replace
from itertools import pairwise

import pytest

from rankscope.lab.data.splits import split
from rankscope.lab.experiment import SCALES
from rankscope.lab.papers.yunis2024 import CLAIMS, grok, lm, lstm, mlp, study, unet, vgg

EXPERIMENTS = (vgg, unet, lstm, lm, mlp, grok)
SWEPT = (vgg, unet, lstm, lm, grok)
X = math.pi * 2020 / 6460  # angle that the rate of lm passes through


def module_name(module) -> str:
    return module.__name__.rpartition(".")[2]


def published(module):
    """Return the paper's own run, without decay."""
    return getattr(module, "PUBLISHED", module.PAPER)


UNCHANGED = ["Y2", "Y4", "Y9", "Y10", "Y12"]


def test_claims_are_in_the_papers_order_and_first_rules_follow_the_changed_ones() -> None:
    headlines = [rule.claim for rule in CLAIMS if not rule.headline]
    assert headlines == [
        *("Y1", "Y2", "Y3", "Y3b", "Y4", "Y5", "Y6", "Y7", "Y8", "Y8b"),
        *("Y9", "Y10", "Y11", "Y12"),
    ]
    changed = [claim for claim in headlines if claim not in UNCHANGED]
    assert [rule.claim for rule in CLAIMS if rule.changed] == changed
    assert [rule.claim for rule in CLAIMS if rule.reason] == changed
    assert [rule.claim for rule in CLAIMS if rule.ours] == ["Y9"]
    for before, rule in pairwise(CLAIMS):
        if rule.headline:
            assert (rule.headline, rule.claim) == (before.claim, f"{before.claim}-first")
    assert {rule.headline for rule in CLAIMS if rule.headline} == {*changed} - {"Y8b"}


def test_seeds_had_been_seen_at_the_papers_scale_only() -> None:
    declared = study("paper")
    assert set(declared.seen) == {experiment.name for experiment in declared.experiments}
    assert set(declared.seen.values()) == {(0, 1, 2), (0,)}
    assert study("small").seen == study("smoke").seen == {}


@pytest.mark.parametrize("scale", SCALES)
def test_every_claim_needs_runs_of_every_scale(scale: str) -> None:
    keys = [key for module in EXPERIMENTS for key in module.experiment(scale).runs]
    needed = {
        rule.claim: list(dict.fromkeys(key.network for key in rule.needs(keys))) for rule in CLAIMS
    }
    four = ["vgg", "unet", "lstm", "lm"]
    if scale == "smoke":  # which has no VGG at 0.1
        assert needed.pop("Y7") == needed.pop("Y7-first") == four[1:]
    assert needed.pop("Y8") == needed.pop("Y8-first") == needed.pop("Y8b") == ["mlp"]
    assert needed.pop("Y9") == ["grok"] and needed.pop("Y10") == ["lm"]
    assert needed.pop("Y11") == needed.pop("Y11-first") == ["vgg", "unet"]
    assert all(networks == four for networks in needed.values())


@pytest.mark.parametrize("module", EXPERIMENTS, ids=module_name)
def test_docstrings_describe_every_scale_in_the_same_order(module) -> None:
    text = inspect.getdoc(module)
    name = module.experiment("smoke").name
    marks = [f"    rankscope run {name}", "\n`paper` ", "\n`small` ", "\n`smoke` ", "\nCost: "]
    positions = [text.index(mark) for mark in (*marks, "\nExpect at `small`: ")]
    assert positions == sorted(positions)


@pytest.mark.parametrize("module", SWEPT, ids=module_name)
@pytest.mark.parametrize("scale", SCALES)
def test_runs_of_a_sweep_differ_in_their_decay_alone(module, scale: str) -> None:
    runs = module.experiment(scale).runs
    assert [key.variant["decay"] for key in runs] == [run.paper_decay for run in runs.values()]
    without_decay = {
        replace(run, paper_decay=None, optimizer=replace(run.optimizer, decay=0.0))
        for run in runs.values()
    }
    assert len(without_decay) == 1


@pytest.mark.parametrize("module", SWEPT, ids=module_name)
def test_decays_are_the_papers_and_act_as_much_at_small(module) -> None:
    paper, small = (
        {run.paper_decay: run for run in module.experiment(scale).runs.values()}
        for scale in ("paper", "small")
    )
    assert all(run.optimizer.decay == decay for decay, run in paper.items())
    decays = {vgg: {0, 1e-4, 0.001, 0.01, 0.1}, grok: {0, 0.1, 1}}.get(module, {0, 0.1, 1, 10})
    assert set(paper) == set(small) == decays
    assert small.pop(0).optimizer.decay == 0
    for decay, run in small.items():
        assert 0.5 <= run.decay_sum / (decay * published(module).rate_sum) <= 2


@pytest.mark.parametrize(
    ("module", "rates", "tolerance"),
    [
        # 82 epochs at 0.1, 38 at 0.01, 40 at 0.001, 4 at 0.0001.
        (vgg, (45_000 // 128) * (82 * 0.1 + 38 * 0.01 + 40 * 0.001 + 4 * 0.0001), 1e-6),
        (unet, 3e-4 * 100 * (54_000 // 128), 1e-6),
        # A cosine from 1 to 0 has the mean 1/2.
        (lstm, 3e-4 * 50 * math.ceil(28_539 / 32) / 2, 1e-3),
        # A ramp over 200 steps, then a cosine from 1 to 0.1, of which 2020 of 6460 steps are seen:
        # the integral of (1 + cos) / 2 over an angle x is (x + sin x) / 2.
        (lm, 6e-4 * (302 + 0.9 * (X + math.sin(X)) / 2 * 6460 / math.pi), 1e-3),
        (grok, 1e-3 * 40_000, 1e-6),
    ],
    ids=map(module_name, SWEPT),
)
def test_the_papers_rates_add_up(module, rates: float, tolerance: float) -> None:
    assert published(module).rate_sum == pytest.approx(rates, rel=tolerance)


@pytest.mark.parametrize("module", [vgg, unet, lstm, lm, mlp], ids=module_name)
def test_small_takes_about_thirty_snapshots(module) -> None:
    run = module.SMALL
    assert 25 <= sum(map(run.snapshots, range(run.steps + 1))) <= 45
    if hasattr(module, "SMALL_EPOCH"):
        assert len(split(1797, seed=0)[0]) // run.batch == module.SMALL_EPOCH
