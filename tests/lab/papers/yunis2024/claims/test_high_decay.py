"""Claim Y7 and its second rule on losses written by hand; a constant predictor's is 1."""

import math

import pytest

from lab.papers.yunis2024.closed_form_runs import at_decay, judged, only, training_run, words
from rankscope.lab.judging.rule import Rule
from rankscope.lab.papers.yunis2024.claims.high_decay import Y7, Y7_UNCOLLAPSED

RULES = [Y7, Y7_UNCOLLAPSED]
both_rules = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.claim)


def lossy(network: str, decay: float, *loss: float, **attrs):
    return at_decay(network, decay, training_run(loss=loss, **attrs))


@both_rules
@pytest.mark.parametrize(
    ("last", "word"), [(0.9, "holds"), (0.91, "fails"), (math.nan, "fails"), (math.inf, "fails")]
)
def test_the_loss_halves_at_the_largest_decay(rule: Rule, last: float, word: str) -> None:
    runs = lossy("unet", 10, 1.8, last) | lossy("unet", 0, 1.8, 1.7)
    assert words(judged(rule, runs)) == {"unet": word}


def test_a_network_that_collapsed_halves_a_loss_that_starts_high() -> None:
    first, second = (judged(rule, lossy("unet", 10, 3.8, 1.0)) for rule in RULES)
    assert (words(first), words(second)) == ({"unet": "holds"}, {"unet": "fails"})
    assert only(first).value == only(second).value == pytest.approx(1 / 3.8)
    remark = "unet, decay 10, seed 0 collapsed: training loss 1, a constant predictor's is 1"
    assert first.remarks[0] == second.remarks[0] == remark
    assert second.reason == Y7_UNCOLLAPSED.reason


@both_rules
def test_the_vgg_has_to_collapse_at_a_tenth(rule: Rule) -> None:
    collapses, trains = lossy("vgg", 0.1, 1.2, 1.0), lossy("vgg", 0.1, 1.2, 0.1)
    assert words(judged(rule, collapses)) == {"vgg": "holds"}
    assert words(judged(rule, trains)) == {"vgg": "fails"}
    assert words(judged(rule, lossy("vgg", 1.0, 1.2, 0.1) | collapses)) == {"vgg": "holds"}
    assert judged(rule, lossy("vgg", 0.01, 1.2, 0.1)).networks == ()  # not declared at 0.1


@both_rules
@pytest.mark.parametrize(("last", "attrs"), [(math.nan, {}), (0.2, {"diverged_at": 7})])
def test_divergence_is_no_collapse_of_the_vgg_and_no_training(
    rule: Rule, last: float, attrs
) -> None:
    runs = lossy("vgg", 0.1, 1.2, last, **attrs) | lossy("lm", 10, 1.2, last, **attrs)
    verdict = judged(rule, runs)
    assert words(verdict) == {"vgg": "no data", "lm": "fails"}
    assert any("no collapse: it cannot tell" in remark for remark in verdict.remarks)
    assert any(remark.startswith("lm, decay 10, seed 0 diverged") for remark in verdict.remarks)


def test_the_loss_of_the_vgg_is_another_quantity() -> None:
    vgg, lm = judged(Y7, lossy("vgg", 0.1, 1.0, 1.0) | lossy("lm", 10, 1.0, 0.2)).networks
    assert (vgg.value, lm.value) == (1.0, 0.2)
    assert "should collapse" in vgg.quantity and lm.quantity == ""
