"""Claim B6 on singular values that are logistic curves."""

import math

import numpy as np
import pytest

from lab.papers.boix2023.toy_runs import full_run, rises
from rankscope.lab.judging.available_runs import AvailableRuns
from rankscope.lab.judging.study import judge
from rankscope.lab.judging.verdict import Verdict
from rankscope.lab.papers.boix2023.claims.full_matrices import B6, rise_dataset
from rankscope.lab.running.run import RunKey

# Gaps 1/s' - 1/s against widths log(81) / (2 s log(1/alpha)): apart at 1e-8 in both products.
APART = np.array([[2.0, 1.0, 0.5, 0.25], [3.0, 1.5, 0.75, 0.4]])
CLOSE = np.array([[2.0, 1.9, 0.5, 0.25], [3.0, 1.5, 0.75, 0.4]])


def verdict(sizes: np.ndarray, *, end: float = 8.0) -> Verdict:
    ds = full_run(sizes, -8.0, end=end)
    key = RunKey("teacher", kind="full")
    return judge(B6, AvailableRuns({key: dict.fromkeys(range(3), ds)}))


def words(judged: Verdict) -> dict[str, str]:
    assert {network.network for network in judged.networks} == {"teacher"}
    return {network.part: network.word for network in judged.networks}


def test_values_that_rise_in_turn() -> None:
    judged = verdict(APART)
    assert words(judged) == {"K-Q": "holds", "V-O": "holds"}
    assert [network.value for network in judged.networks] == [4, 4]


def test_two_values_that_rise_together_in_one_product() -> None:
    assert words(verdict(CLOSE)) == {"K-Q": "fails", "V-O": "holds"}


def test_a_product_that_has_not_risen_tells_nothing() -> None:
    # The first K-Q value would rise at 1/0.1 = 10, after the end.
    judged = verdict(np.array([[0.1, 0.05, 0.04, 0.03], APART[1]]), end=6.0)
    assert words(judged)["K-Q"] == "no data"


def test_only_full_heads_are_needed() -> None:
    keys = [RunKey("teacher", kind="full"), RunKey("diagonal", {"log10_alpha": -8.0})]
    assert B6.needs(keys) == keys[:1]


def test_rise_times_are_the_closed_forms() -> None:
    measured, expected = rise_dataset(full_run(APART, -8.0, end=8.0)), rises(APART, -8.0)
    for name in ("half_rise", "rise_10", "rise_90"):
        # recorded every 8/599 in time, linear between
        np.testing.assert_allclose(measured[name], expected[name], atol=8 / 599)
    assert float(measured.half_rise[0, 0]) == pytest.approx(
        (math.log(8) + 2 * 8 * math.log(10)) / (4 * 8 * math.log(10)), abs=8 / 599
    )
