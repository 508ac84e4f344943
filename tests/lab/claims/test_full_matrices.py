"""Claim B6 on singular values that are logistic curves."""

import math

import numpy as np
import pytest

from figures.toy_runs import full_run, rises
from rankscope.lab.claims.full_matrices import rise_dataset, values_rise_in_turn

# Gaps 1/s' - 1/s against widths log(81) / (2 s log(1/alpha)): apart at 1e-8 in both products.
APART = np.array([[2.0, 1.0, 0.5, 0.25], [3.0, 1.5, 0.75, 0.4]])
CLOSE = np.array([[2.0, 1.9, 0.5, 0.25], [3.0, 1.5, 0.75, 0.4]])


def verdict(sizes: np.ndarray, *, end: float = 8.0):
    ds = full_run(sizes, -8.0, end=end)
    return values_rise_in_turn({"teacher/full": dict.fromkeys(range(3), ds)})


def test_values_that_rise_in_turn() -> None:
    judged = verdict(APART)
    assert judged.holds == "yes"
    assert {network.network for network in judged.networks} == {"teacher, V-O", "teacher, K-Q"}
    assert judged.value == 4


def test_two_values_that_rise_together_in_one_product() -> None:
    judged = verdict(CLOSE)
    assert judged.holds == "no"
    assert {network.network: network.holds for network in judged.networks} == {
        "teacher, V-O": "yes",
        "teacher, K-Q": "no",
    }


def test_a_product_that_has_not_risen_tells_nothing() -> None:
    # The first K-Q value would rise at 1/0.1 = 10, after the end.
    judged = verdict(np.array([[0.1, 0.05, 0.04, 0.03], APART[1]]), end=6.0)
    assert judged.holds == "undecided"


def test_rise_times_are_the_closed_forms() -> None:
    found, expected = rise_dataset(full_run(APART, -8.0, end=8.0)), rises(APART, -8.0)
    for name in ("half_rise", "rise_10", "rise_90"):
        # recorded every 8/599 in time, linear between
        np.testing.assert_allclose(found[name], expected[name], atol=8 / 599)
    assert float(found.half_rise[0, 0]) == pytest.approx(
        (math.log(8) + 2 * 8 * math.log(10)) / (4 * 8 * math.log(10)), abs=8 / 599
    )
