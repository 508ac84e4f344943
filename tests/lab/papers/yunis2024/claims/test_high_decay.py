"""Claim Y7 and its first rule on losses written by hand; a constant predictor's is 1."""

import math

import pytest

from lab.papers.yunis2024.closed_form_runs import at_decay, judged, only, rows, training_run, words
from rankscope.lab.judging.rule import Rule
from rankscope.lab.papers.yunis2024.claims.high_decay import Y7, Y7_FIRST

both_rules = pytest.mark.parametrize("rule", [Y7, Y7_FIRST], ids=lambda rule: rule.claim)


def lossy(network: str, decay: float, *loss: float, **attrs):
    return at_decay(network, decay, training_run(loss=loss, **attrs))


@pytest.mark.parametrize(
    ("last", "word"), [(0.5, "holds"), (0.51, "fails"), (1.3, "fails"), (math.nan, "fails")]
)
def test_training_gains_half_of_what_it_does_without_decay(last: float, word: str) -> None:
    runs = lossy("unet", 10, 3.8, last) | lossy("unet", 1, 3.8, 0.1) | lossy("unet", 0, 3.8, 0.0)
    verdict = judged(Y7, runs)
    assert words(verdict) == {"unet": word}
    assert only(verdict).value == (None if math.isnan(last) else pytest.approx(1 - last))
    assert rows(verdict)[0]["decay"] == "10"


@pytest.mark.parametrize("without", [0.96, 1.0, 1.2, math.nan])
def test_if_training_collapses_at_decay_0_the_seed_cannot_tell(without: float) -> None:
    runs = lossy("unet", 10, 1.8, 0.1) | lossy("unet", 0, 1.8, without)
    assert words(judged(Y7, runs)) == {"unet": "no data"}
    assert words(judged(Y7, lossy("unet", 10, 1.8, 0.1))) == {"unet": "no data"}
    assert words(judged(Y7, lossy("unet", 0, 1.8, 0.1))) == {"unet": "no data"}


@pytest.mark.parametrize(
    ("last", "word"), [(0.9, "holds"), (0.91, "fails"), (math.nan, "fails"), (math.inf, "fails")]
)
def test_the_loss_halves_by_the_first_rule(last: float, word: str) -> None:
    runs = lossy("unet", 10, 1.8, last) | lossy("unet", 0, 1.8, 1.7)
    assert words(judged(Y7_FIRST, runs)) == {"unet": word}


def test_a_network_that_collapsed_halves_a_loss_that_starts_high() -> None:
    runs = lossy("unet", 10, 3.8, 1.0) | lossy("unet", 0, 3.8, 0.1)
    now, first = judged(Y7, runs), judged(Y7_FIRST, runs)
    assert (words(first), words(now)) == ({"unet": "holds"}, {"unet": "fails"})
    assert (only(first).value, only(now).value) == (pytest.approx(1 / 3.8), pytest.approx(0))
    remark = "unet, decay 10, seed 0 collapsed: training loss 1, a constant predictor's is 1"
    assert first.remarks[0] == now.remarks[0] == remark


@both_rules
def test_the_vgg_has_to_collapse_at_a_tenth(rule: Rule) -> None:
    collapses, trains = lossy("vgg", 0.1, 1.2, 1.0), lossy("vgg", 0.1, 1.2, 0.1)
    assert words(judged(rule, collapses)) == {"vgg": "holds"}
    assert words(judged(rule, trains)) == {"vgg": "fails"}
    assert words(judged(rule, lossy("vgg", 1.0, 1.2, 0.1) | collapses)) == {"vgg": "holds"}
    assert judged(rule, lossy("vgg", 0.01, 1.2, 0.1)).networks == ()  # not declared at 0.1


@pytest.mark.parametrize(("last", "word"), [(0.98, "holds"), (0.97, "fails")])
def test_the_vgg_gains_next_to_nothing(last: float, word: str) -> None:
    assert words(judged(Y7, lossy("vgg", 0.1, 1.2, last))) == {"vgg": word}
    assert words(judged(Y7_FIRST, lossy("vgg", 0.1, 1.2, last))) == {"vgg": "holds"}


@both_rules
@pytest.mark.parametrize(("last", "attrs"), [(math.nan, {}), (0.2, {"diverged_at": 7})])
def test_divergence_is_no_collapse_of_the_vgg_and_no_training(
    rule: Rule, last: float, attrs
) -> None:
    runs = lossy("vgg", 0.1, 1.2, last, **attrs) | lossy("lm", 10, 1.2, last, **attrs)
    verdict = judged(rule, runs | lossy("lm", 0, 1.2, 0.1))
    assert words(verdict) == {"vgg": "no data", "lm": "fails"}
    assert any("no collapse: it cannot tell" in remark for remark in verdict.remarks)
    assert any(remark.startswith("lm, decay 10, seed 0 diverged") for remark in verdict.remarks)


@both_rules
def test_the_loss_of_the_vgg_is_another_quantity(rule: Rule) -> None:
    runs = lossy("vgg", 0.1, 1.0, 1.0) | lossy("lm", 10, 1.0, 0.2) | lossy("lm", 0, 1.0, 0.0)
    vgg, lm = judged(rule, runs).networks
    assert vgg.value == 1.0
    assert vgg.quantity.startswith("final") and "0.1" in vgg.quantity and lm.quantity == ""
