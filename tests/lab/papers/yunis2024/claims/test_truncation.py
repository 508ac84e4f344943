"""Claim Y6 and its first rule on losses written by hand."""

import math

import pytest

from lab.papers.yunis2024.closed_form_runs import (
    at_decay,
    flat,
    judged,
    only,
    over_decays,
    rows,
    training_run,
    words,
)
from rankscope.lab.papers.yunis2024.claims.truncation import Y6, Y6_FIRST, Gap, gap, mean_gap

FULL = 0.5


def truncated(*quotients: float, cost: float = 2.0, **options):
    """Losses for which q at each snapshot is as given."""
    options = {"loss": (FULL, FULL), **options}
    scalars = {
        "top_loss": [FULL + q * cost for q in quotients],
        "bottom_loss": [FULL + cost] * len(quotients),
    }
    return training_run({"w": flat(9, [9] * len(quotients))}, scalars=scalars, **options)


def sweep(*q_by_decay: float):
    return over_decays("lm", *(truncated(9.0, q) for q in q_by_decay))


def test_q_is_a_mean_over_the_second_half() -> None:
    assert gap(truncated(9.0, 9.0, 0.1, 0.3)).q == pytest.approx(0.2)
    assert gap(truncated(9.0, 0.1, 0.3)).q == pytest.approx(0.2)  # the middle one is in it


@pytest.mark.parametrize("cost", [0.0, -1.0])
def test_without_a_cost_of_the_bottom_half_there_is_no_q(cost: float) -> None:
    assert gap(truncated(0.1, 0.1, cost=cost)) == Gap(None, "denominator <= 0")


@pytest.mark.parametrize("name", ["full_loss", "top_loss", "bottom_loss"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_every_loss_has_to_be_finite_in_the_second_half(name: str, value: float) -> None:
    run = truncated(0.1, 0.1)
    late, early = ([FULL, value], [value, FULL + 2.0])
    reason = f"{name.replace('_', ' ')} is not finite"
    assert gap(run.assign({name: ("step", late)})) == Gap(None, reason)
    assert gap(run.assign(bottom_loss=("step", early))).q == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("by_decay", "expected"),
    [
        ((0.3, 0.25, 0.2, 0.1), "holds"),  # at 0.1, the base decay of lm
        ((0.3, 0.26, 0.2, 0.1), "fails"),
        ((0.2, 0.24, 0.1, 0.05), "holds"),  # Spearman is -0.8
        ((0.1, 0.12, 0.11, 0.05), "fails"),
        ((0.3, 0.2), "no data"),  # no trend of two decays
        ((0.4, 0.3), "fails"),  # but a gap that is too wide
    ],
)
def test_a_small_gap_that_closes_with_decay(by_decay: tuple[float, ...], expected: str) -> None:
    network = only(judged(Y6_FIRST, sweep(*by_decay)))
    assert (network.word, network.value) == (expected, pytest.approx(by_decay[1]))


@pytest.mark.parametrize("at_base", [0.2, 0.8])  # also where the gap is too wide
def test_a_run_without_q_leaves_the_rule_open(at_base: float) -> None:
    without_q = at_decay("lm", 1, truncated(0.1, 0.1, cost=-1.0))
    verdict = judged(Y6_FIRST, sweep(0.9, at_base, 0.1, 0.05) | without_q)
    assert (only(verdict).word, only(verdict).value) == ("no data", pytest.approx(at_base))
    assert (rows(verdict)[0]["q at 0"], rows(verdict)[0]["q at 1"]) == (pytest.approx(0.9), None)
    assert verdict.remarks[0] == (
        "lm, decay 1, seed 0: no q (denominator <= 0); the seed cannot tell"
    )


def test_collapsed_runs_are_left_out_and_named() -> None:
    runs = sweep(0.3, 0.2, 0.1, 0.9)
    assert only(judged(Y6_FIRST, runs)).word == "fails"
    verdict = judged(Y6_FIRST, runs | at_decay("lm", 10, truncated(0.9, 0.9, loss=(1.0, 1.0))))
    assert only(verdict).word == "holds"
    assert verdict.remarks[0].startswith("lm, decay 10, seed 0 collapsed")


def test_a_collapsed_base_run_cannot_tell() -> None:
    collapsed = at_decay("lm", 0.1, truncated(0.2, 0.2, loss=(1.0, 1.0)))
    assert only(judged(Y6_FIRST, sweep(0.3, 0.2, 0.1, 0.05) | collapsed)).word == "no data"


TOP, CLOSES = "lm, top half", "lm, gap closes"


def gapped(gap: float, *, gain: float = 0.5, **options):
    """A run whose top half costs this share of `gain`; the loss of a constant predictor is 1."""
    scalars = {"top_loss": [9.0, 1 - gain + gap * gain, 1 - gain + gap * gain]}
    options = {"loss": (1 - gain, 1 - gain), **options}
    return training_run({"w": flat(9, [9, 9, 9])}, scalars=scalars, **options)


def gaps(*by_decay: float):
    return over_decays("lm", *map(gapped, by_decay))


@pytest.mark.parametrize(
    ("by_decay", "top", "closes"),
    [
        ((0.3, 0.2, 0.1, 0.1), "holds", "holds"),
        ((0.3, 0.26, 0.2, 0.2), "fails", "fails"),
        ((0.5, 0.25, 0.9, 0.25), "holds", "holds"),  # both bounds are met exactly
        ((0.018, 0.1, 0.1, 0.0095), "holds", "holds"),  # more than half, but next to nothing
        ((0.018, 0.1, 0.1, 0.011), "holds", "fails"),
        ((-0.1, 0.1, 0.1, -0.01), "holds", "holds"),
        ((0.3, 0.2), "holds", "fails"),  # 0.1 is the base decay and the largest
        ((0.3,), "no data", "no data"),  # no decay above 0
    ],
)
def test_two_marks_of_the_gap(by_decay: tuple[float, ...], top: str, closes: str) -> None:
    verdict = judged(Y6, gaps(*by_decay))
    assert words(verdict) == {TOP: top, CLOSES: closes}
    if len(by_decay) > 1:
        values = [network.value for network in verdict.networks]
        assert values == pytest.approx([by_decay[1], by_decay[-1]])
        assert rows(verdict)[0]["G at 0"] == pytest.approx(by_decay[0])


def test_the_gain_at_decay_0_is_the_measure_of_all_gaps() -> None:
    half = at_decay("lm", 10, gapped(0.16, gain=0.25))  # costs 0.04; the gain at decay 0 is 0.5
    closes = judged(Y6, gaps(0.2, 0.2) | half).networks[1]
    assert (closes.word, closes.value) == ("holds", pytest.approx(0.08))


def test_the_second_half_begins_at_half_of_the_last_step() -> None:
    run = truncated(9.0, 9.0, 9.0, 0.1, 0.3, cost=1.0, steps=[0, 1, 49, 50, 100])
    assert mean_gap(run) == pytest.approx(0.2)
    assert mean_gap(run.assign_coords(step=[0, 1, 2, 3, 100])) == pytest.approx(0.3)


def test_the_full_loss_is_read_where_it_is_stored() -> None:
    run = gapped(0.2).assign(full_loss=("step", [0.0, 0.6, 0.6]))
    assert mean_gap(run) == pytest.approx(0.0)


def test_a_run_that_collapsed_is_not_the_largest_and_none_without_decay_0() -> None:
    dead = {decay: at_decay("lm", decay, gapped(0.1, loss=(1.0, 1.0))) for decay in (0, 0.1, 10)}
    sweep_of_gaps = gaps(0.3, 0.2, 0.1, 0.1)
    verdict = judged(Y6, sweep_of_gaps | dead[10])
    assert words(verdict) == {TOP: "holds", CLOSES: "holds"}
    assert verdict.remarks[0].startswith("lm, decay 10, seed 0 collapsed")
    assert words(judged(Y6, sweep_of_gaps | dead[0.1])) == {TOP: "no data", CLOSES: "holds"}
    assert words(judged(Y6, sweep_of_gaps | dead[0])) == {TOP: "no data", CLOSES: "no data"}


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_leaves_its_mark_open(value: float) -> None:
    broken = gapped(0.1).assign(top_loss=("step", [9.0, value, 0.5]))
    verdict = judged(Y6, gaps(0.3, 0.2, 0.1, 0.1) | at_decay("lm", 10, broken))
    assert words(verdict) == {TOP: "holds", CLOSES: "no data"}
    assert verdict.remarks[0] == "lm, seed 0, decay 10: no G, since a loss is not finite"
