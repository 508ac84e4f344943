"""Claim Y6 on losses written by hand."""

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
)
from rankscope.lab.papers.yunis2024.claims.truncation import Y6, Gap, gap

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
    network = only(judged(Y6, sweep(*by_decay)))
    assert (network.word, network.value) == (expected, pytest.approx(by_decay[1]))


@pytest.mark.parametrize("at_base", [0.2, 0.8])  # also where the gap is too wide
def test_a_run_without_q_leaves_the_rule_open(at_base: float) -> None:
    without_q = at_decay("lm", 1, truncated(0.1, 0.1, cost=-1.0))
    verdict = judged(Y6, sweep(0.9, at_base, 0.1, 0.05) | without_q)
    assert (only(verdict).word, only(verdict).value) == ("no data", pytest.approx(at_base))
    assert (rows(verdict)[0]["q at 0"], rows(verdict)[0]["q at 1"]) == (pytest.approx(0.9), None)
    assert verdict.remarks[0] == (
        "lm, decay 1, seed 0: no q (denominator <= 0); the seed cannot tell"
    )


def test_collapsed_runs_are_left_out_and_named() -> None:
    runs = sweep(0.3, 0.2, 0.1, 0.9)
    assert only(judged(Y6, runs)).word == "fails"
    verdict = judged(Y6, runs | at_decay("lm", 10, truncated(0.9, 0.9, loss=(1.0, 1.0))))
    assert only(verdict).word == "holds"
    assert verdict.remarks[0].startswith("lm, decay 10, seed 0 collapsed")


def test_a_collapsed_base_run_cannot_tell() -> None:
    collapsed = at_decay("lm", 0.1, truncated(0.2, 0.2, loss=(1.0, 1.0)))
    assert only(judged(Y6, sweep(0.3, 0.2, 0.1, 0.05) | collapsed)).word == "no data"
