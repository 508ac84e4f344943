"""Claim B9 on changes whose stable ranks are chosen."""

import numpy as np
import pytest
import xarray as xr

from lab.papers.boix2023.vit_runs import EPOCHS, STEPS_PER_EPOCH, courses, vit_run
from lab.papers.boix2023.vit_verdicts import both, verdict, vit, words
from rankscope.lab.judging.rule import Rule
from rankscope.lab.judging.verdict import NetworkVerdict, Verdict
from rankscope.lab.papers.boix2023.claims.low_rank import B9, B9_FIRST, B9_VALUES
from rankscope.lab.papers.boix2023.runs import stop_of

LOW, HIGH = courses((0, 4)), courses((0, 16))
RULES = pytest.mark.parametrize("rule", [B9, B9_VALUES, B9_FIRST], ids=lambda rule: rule.claim)
CASES = pytest.mark.parametrize(
    ("large", "unchanged", "expected"),
    [
        (0, 0, "holds"),
        (1, 0, "holds"),
        (2, 0, "fails"),
        (0, 1, "holds"),
        (1, 1, "no data"),
        (2, 1, "fails"),
    ],
)


def heads(rank: int, large: int, unchanged: int) -> np.ndarray:
    """(step, block, head): 20 heads of this rank, `large` of them one above it, some without."""
    end = np.full((4, 5), rank)
    end.flat[: large + unchanged] = [rank + 1] * large + [0] * unchanged
    return np.stack([0 * end, end])


def only(judged: Verdict) -> NetworkVerdict:
    (network,) = judged.networks
    return network


@CASES
def test_the_change_of_keys_has_a_quarter_of_the_initial_rank(
    large: int, unchanged: int, expected: str
) -> None:
    """4 of 16 is a quarter, and 5 is more, in `large` of 20 heads. V-O does not matter."""
    ds = vit_run(heads(4, large, unchanged), heads(16, 0, 0))
    network = only(verdict(B9, {vit(1.0): ds}))
    assert (network.part, network.word) == ("K-Q", expected)
    assert network.value == (20 - large - unchanged) / 20


@CASES
def test_the_change_of_values_has_a_third_of_the_initial_rank(
    large: int, unchanged: int, expected: str
) -> None:
    """5 of 15 is a third, and 6 is more. K-Q does not matter."""
    ds = vit_run(heads(15, 0, 0), heads(5, large, unchanged), start=15)
    network = only(verdict(B9_VALUES, {vit(1.0): ds}))
    assert (network.part, network.word) == ("V-O", expected)
    assert network.value == (20 - large - unchanged) / 20


def test_the_bound_of_values_is_ours_and_apart() -> None:
    assert B9_VALUES.ours and not B9.ours and not B9_VALUES.headline
    between = vit_run(courses((0, 5)))  # 5 of 16
    assert only(verdict(B9, {vit(1.0): between})).word == "fails"
    assert only(verdict(B9_VALUES, {vit(1.0): between})).word == "holds"


@pytest.mark.parametrize("rule", [B9, B9_VALUES], ids=lambda rule: rule.claim)
def test_only_scale_one_is_judged(rule: Rule) -> None:
    judged = verdict(rule, {vit(1.0): vit_run(LOW), vit(0.1): vit_run(HIGH)})
    assert only(judged).word == "holds" and only(judged).variant == {"scale": 1.0}


@CASES
@pytest.mark.parametrize("size", [1.0, 1e-6])
def test_the_first_rule_asks_it_of_both_products(
    large: int, unchanged: int, expected: str, size: float
) -> None:
    end = heads(4, large, unchanged)
    judged = verdict(B9_FIRST, {vit(1.0): vit_run(end, size=size)})
    assert both(judged) == (expected, (20 - large - unchanged) / 20)
    changed = end[1, 0][end[1, 0] > 0]
    row = (changed.mean(), 16.0, changed.max() / 16)
    assert judged.tables[0].rows[0][3:] == pytest.approx(row)
    exceptions = "seed 0 1 2: " + ", ".join(f"1.{head}" for head in range(1, large + 1))
    assert [row[2] for table in judged.tables[1:] for row in table.rows] == (
        [exceptions if large else "-"] * 2 if large or unchanged else []
    )


def test_the_first_rule_asks_it_at_every_scale() -> None:
    judged = verdict(B9_FIRST, {vit(1.0): vit_run(LOW, HIGH), vit(0.1): vit_run(LOW)})
    assert words(judged) == {
        "vit, scale 1, K-Q": "holds",
        "vit, scale 1, V-O": "fails",
        "vit, scale 0.1, K-Q": "holds",
        "vit, scale 0.1, V-O": "holds",
    }


@RULES
def test_a_run_that_collapsed_cannot_tell_and_is_shown(rule: Rule) -> None:
    judged = verdict(rule, {vit(1.0): vit_run(LOW, loss=[1.0, 1.0])})
    assert {network.word for network in judged.networks} == {"no data"}
    assert judged.tables[0].rows[0][-1] == "collapsed"
    assert judged.remarks[0].endswith("training loss 1, a constant predictor's is 1")


@RULES
def test_a_run_that_was_stopped_is_said_to_be(rule: Rule) -> None:
    stop = {"stop": {"class": "Settled", "loss": 1e-3, "steps": 2 * STEPS_PER_EPOCH}}
    stopped: xr.Dataset = vit_run(LOW, declaration=EPOCHS | stop, stopped_at=1430)
    remarks = verdict(rule, {vit(1.0): stopped}, seeds=1).remarks
    assert sum(remark.endswith(stop_of(stopped)) for remark in remarks) == 1
