"""Claim Y6 on losses written by hand."""

import math

import pytest

from lab.claims.training_runs import flat, seeds, training_run
from rankscope.lab.claims.truncation import gap, top_half_approximates

FULL = 0.5


def truncated(*quotients: float, cost: float = 2.0, **options):
    """Losses for which q at each snapshot is as given."""
    options = {"loss": (FULL, FULL), **options}
    scalars = {
        "top_loss": [FULL + q * cost for q in quotients],
        "bottom_loss": [FULL + cost] * len(quotients),
    }
    return training_run({"w": flat(9, [9] * len(quotients))}, scalars=scalars, **options)


def sweep(*by_decay: float, network: str = "lm", count: int = 3):
    decays = ("0", "0.1", "1", "10")
    return {
        f"{network}/decay-{decay}": seeds(truncated(9.0, q), count)
        for decay, q in zip(decays, by_decay, strict=False)
    }


def test_q_is_a_mean_over_the_second_half() -> None:
    assert gap(truncated(9.0, 9.0, 0.1, 0.3)).q == pytest.approx(0.2)
    assert gap(truncated(9.0, 0.1, 0.3)).q == pytest.approx(0.2)  # the middle one is in it


@pytest.mark.parametrize("cost", [0.0, -1.0])
def test_without_a_cost_of_the_bottom_half_there_is_no_q(cost: float) -> None:
    assert str(gap(truncated(0.1, 0.1, cost=cost))) == "no q (denominator <= 0)"


@pytest.mark.parametrize("name", ["full_loss", "top_loss", "bottom_loss"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_every_loss_has_to_be_finite_in_the_second_half(name: str, value: float) -> None:
    run = truncated(0.1, 0.1)
    late, early = ([FULL, value], [value, FULL + 2.0])
    found = gap(run.assign({name: ("step", late)}))
    assert str(found) == f"no q ({name.replace('_', ' ')} is not finite)"
    assert gap(run.assign(bottom_loss=("step", early))).q == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("by_decay", "holds"),
    [
        ((0.3, 0.25, 0.2, 0.1), "yes"),  # at 0.1, the base decay of lm
        ((0.3, 0.26, 0.2, 0.1), "no"),
        ((0.2, 0.24, 0.1, 0.05), "yes"),  # Spearman is -0.8
        ((0.1, 0.12, 0.11, 0.05), "no"),
        ((0.3, 0.2), "undecided"),  # no trend of two decays
        ((0.4, 0.3), "no"),  # but a gap that is too wide
    ],
)
def test_a_small_gap_that_closes_with_decay(by_decay: tuple[float, ...], holds: str) -> None:
    judged = top_half_approximates(sweep(*by_decay))
    assert judged.holds == holds
    assert judged.value == pytest.approx(by_decay[1])


def test_the_base_decay_of_the_unet_is_0() -> None:
    judged = top_half_approximates(sweep(0.2, 0.1, 0.05, network="unet"))
    assert (judged.holds, judged.value) == ("yes", pytest.approx(0.2))


def test_a_run_without_q_leaves_the_trend_open() -> None:
    results = sweep(0.3, 0.2, 0.1, 0.05)
    results["lm/decay-1"] = seeds(truncated(0.1, 0.1, cost=-1.0))
    judged = top_half_approximates(results)
    assert judged.holds == "undecided"
    assert "1: no q (denominator <= 0)" in str(judged.tables[0].rows[0][-1])
    assert judged.evidence[0] == (
        "lm at decay 1, seed 0: no q (denominator <= 0), so the seed cannot tell"
    )


def test_a_run_without_q_outweighs_a_gap_that_is_too_wide() -> None:
    results = sweep(0.9, 0.8, 0.1, 0.05)
    results["lm/decay-1"] = seeds(truncated(0.1, 0.1, cost=-1.0))
    judged = top_half_approximates(results)
    assert (judged.holds, judged.value) == ("undecided", pytest.approx(0.8))


def test_collapsed_runs_are_left_out_and_named() -> None:
    results = sweep(0.3, 0.2, 0.1, 0.9)
    assert top_half_approximates(results).holds == "no"
    results["lm/decay-10"] = seeds(truncated(0.9, 0.9, loss=(1.0, 1.0)))
    judged = top_half_approximates(results)
    assert judged.holds == "yes"
    assert judged.evidence[0].startswith("lm at decay 10, seed 0 collapsed")


def test_a_collapsed_base_run_cannot_tell() -> None:
    results = sweep(0.3, 0.2, 0.1, 0.05)
    results["lm/decay-0.1"] = seeds(truncated(0.2, 0.2, loss=(1.0, 1.0)))
    assert top_half_approximates(results).holds == "undecided"


def test_two_seeds_and_runs_without_truncation() -> None:
    assert top_half_approximates(sweep(0.3, 0.2, 0.1, count=2)).holds == "undecided"
    assert top_half_approximates({"lm/decay-0.1": seeds(training_run())}).networks == ()
