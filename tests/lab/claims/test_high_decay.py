"""Claim Y7 and its second rule on losses written by hand; a constant predictor's is 1."""

import math

import pytest

from lab.claims.training_runs import seeds, training_run
from rankscope.lab.claims.high_decay import high_decay_trains, high_decay_trains_without_collapse

RULES = [high_decay_trains, high_decay_trains_without_collapse]


def lossy(network: str, decay: str, *loss: float, **attrs):
    return {f"{network}/decay-{decay}": seeds(training_run(loss=loss, **attrs))}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("last", "holds"), [(0.9, "yes"), (0.91, "no"), (math.nan, "no"), (math.inf, "no")]
)
def test_the_loss_halves_at_the_largest_decay(rule, last: float, holds: str) -> None:
    results = {**lossy("unet", "10", 1.8, last), **lossy("unet", "0", 1.8, 1.7)}
    assert rule(results).holds == holds


def test_a_network_that_collapsed_halves_a_loss_that_starts_high() -> None:
    results = lossy("unet", "10", 3.8, 1.0)
    first, second = (rule(results) for rule in RULES)
    assert (first.holds, second.holds) == ("yes", "no")
    assert first.value == second.value == pytest.approx(1 / 3.8)
    said = "unet at decay 10, seed 0 collapsed: training loss 1, a constant predictor's is 1"
    assert first.evidence[0] == second.evidence[1] == said
    assert second.evidence[0].startswith("a second rule")


@pytest.mark.parametrize("rule", RULES)
def test_the_vgg_has_to_collapse_at_a_tenth(rule) -> None:
    collapses, trains = lossy("vgg", "0.1", 1.2, 1.0), lossy("vgg", "0.1", 1.2, 0.1)
    lm = lossy("lm", "10", 1.0, 0.2)
    assert rule({**collapses, **lm}).holds == "yes"
    judged = rule({**trains, **lm})
    assert {each.network: each.holds for each in judged.networks} == {"vgg": "no", "lm": "yes"}
    assert rule(lossy("vgg", "0.01", 1.2, 0.1)).networks == ()
    absent = rule({**lossy("vgg", "0.01", 1.2, 0.1), **lm})
    assert "vgg was not run at decay 0.1, and is not judged" in absent.evidence


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("last", "attrs"), [(math.nan, {}), (0.2, {"diverged_at": 7})])
def test_divergence_is_no_collapse_of_the_vgg(rule, last: float, attrs: dict[str, int]) -> None:
    judged = rule(lossy("vgg", "0.1", 1.2, last, **attrs))
    assert judged.holds == "undecided"
    assert [seed.met for seed in judged.networks[0].seeds] == [None] * 3
    assert any("no collapse: it cannot tell" in line for line in judged.evidence)


@pytest.mark.parametrize("rule", RULES)
def test_a_network_that_diverged_did_not_train(rule) -> None:
    judged = rule(lossy("lm", "10", 1.0, 0.2, diverged_at=7))
    assert judged.holds == "no"
    assert "lm at decay 10, seed 0 diverged at step 7" in judged.evidence


def test_the_loss_of_a_collapsed_vgg_is_no_part_of_the_value() -> None:
    results = {**lossy("vgg", "0.1", 1.0, 1.0), **lossy("lm", "10", 1.0, 0.2)}
    judged = high_decay_trains(results)
    assert (judged.value, judged.interval) == (0.2, (0.2, 0.2))
    assert {each.network: each.value for each in judged.networks} == {"vgg": 1.0, "lm": 0.2}


def test_two_seeds_do_not_decide_on_high_decay() -> None:
    results = {"lstm/decay-10": seeds(training_run(), 2)}
    assert high_decay_trains(results).holds == "undecided"
    assert high_decay_trains({"grok/decay-1": seeds(training_run())}).networks == ()
