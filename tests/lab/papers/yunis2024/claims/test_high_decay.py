"""Claim Y7 and its second rule on losses written by hand; a constant predictor's is 1."""

import math

import pytest

from lab.papers.yunis2024.closed_form_runs import at_decay, judged, seeds, training_run, words
from rankscope.lab.judging.rule import Rule
from rankscope.lab.papers.yunis2024.claims.high_decay import Y7, Y7_UNCOLLAPSED

RULES = [Y7, Y7_UNCOLLAPSED]


def lossy(network: str, decay: float, *loss: float, **attrs):
    return at_decay(network, decay, seeds(training_run(loss=loss, **attrs)))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("last", "word"), [(0.9, "holds"), (0.91, "fails"), (math.nan, "fails"), (math.inf, "fails")]
)
def test_the_loss_halves_at_the_largest_decay(rule: Rule, last: float, word: str) -> None:
    runs = lossy("unet", 10, 1.8, last) | lossy("unet", 0, 1.8, 1.7)
    assert words(judged(rule, runs)) == {"unet": word}


def test_a_network_that_collapsed_halves_a_loss_that_starts_high() -> None:
    first, second = (judged(rule, lossy("unet", 10, 3.8, 1.0)) for rule in RULES)
    assert (words(first), words(second)) == ({"unet": "holds"}, {"unet": "fails"})
    assert first.networks[0].value == second.networks[0].value == pytest.approx(1 / 3.8)
    remark = "unet, decay 10, seed 0 collapsed: training loss 1, a constant predictor's is 1"
    assert first.remarks[0] == second.remarks[1] == remark
    assert second.remarks[0] == Y7_UNCOLLAPSED.reason


@pytest.mark.parametrize("rule", RULES)
def test_the_vgg_has_to_collapse_at_a_tenth(rule: Rule) -> None:
    collapses, trains = lossy("vgg", 0.1, 1.2, 1.0), lossy("vgg", 0.1, 1.2, 0.1)
    lm = lossy("lm", 10, 1.0, 0.2)
    assert words(judged(rule, collapses | lm)) == {"vgg": "holds", "lm": "holds"}
    assert words(judged(rule, trains | lm)) == {"vgg": "fails", "lm": "holds"}
    assert words(judged(rule, lossy("vgg", 1.0, 1.2, 0.1) | collapses)) == {"vgg": "holds"}
    assert judged(rule, lossy("vgg", 0.01, 1.2, 0.1)).networks == ()  # not declared at 0.1


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("last", "attrs"), [(math.nan, {}), (0.2, {"diverged_at": 7})])
def test_divergence_is_no_collapse_of_the_vgg(rule: Rule, last: float, attrs) -> None:
    verdict = judged(rule, lossy("vgg", 0.1, 1.2, last, **attrs))
    assert words(verdict) == {"vgg": "no data"}
    assert [seed.met for seed in verdict.networks[0].seeds] == [None] * 3
    assert any("no collapse: it cannot tell" in remark for remark in verdict.remarks)


@pytest.mark.parametrize("rule", RULES)
def test_a_network_that_diverged_did_not_train(rule: Rule) -> None:
    verdict = judged(rule, lossy("lm", 10, 1.0, 0.2, diverged_at=7))
    assert words(verdict) == {"lm": "fails"}
    assert "lm, decay 10, seed 0 diverged at step 7" in verdict.remarks


def test_the_loss_of_the_vgg_is_another_quantity() -> None:
    verdict = judged(Y7, lossy("vgg", 0.1, 1.0, 1.0) | lossy("lm", 10, 1.0, 0.2))
    assert {network.label: network.value for network in verdict.networks} == {"vgg": 1.0, "lm": 0.2}
    vgg, lm = verdict.networks
    assert "should collapse" in vgg.quantity and lm.quantity == ""


def test_two_seeds_and_other_networks() -> None:
    runs = at_decay("lstm", 10, seeds(training_run(), 2))
    assert words(judged(Y7, runs)) == {"lstm": "holds so far"}
    assert judged(Y7, at_decay("grok", 1, seeds(training_run()))).networks == ()
