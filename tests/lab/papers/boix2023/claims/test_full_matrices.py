"""Claim B6 on singular values that are logistic curves."""

import numpy as np
import pytest

from lab.papers.boix2023.toy_runs import full_run, rises
from rankscope.lab.judging.available_runs import AvailableRuns
from rankscope.lab.judging.study import judge
from rankscope.lab.papers.boix2023.claims.full_matrices import B6, rise_dataset
from rankscope.lab.running.run_key import RunKey

# Gaps 1/s' - 1/s against widths log(81) / (2 s log(1/alpha)): apart at 1e-8 in both products.
APART = np.array([[2.0, 1.0, 0.5, 0.25], [3.0, 1.5, 0.75, 0.4]])


@pytest.mark.parametrize(
    ("sizes", "word", "value"),
    [
        ([2.0, 1.0, 0.5, 0.25], "holds", 4),
        ([2.0, 1.9, 0.5, 0.25], "fails", 1),
        # The first value would rise at 1/0.1 = 10, after the end.
        ([0.1, 0.05, 0.04, 0.03], "no data", 0),
    ],
)
def test_products_are_judged_apart(sizes: list[float], word: str, value: int) -> None:
    ds = full_run(np.array([sizes, APART[1]]), -8.0, end=8.0)
    runs = {RunKey("teacher", kind="full"): dict.fromkeys(range(3), ds)}
    verdict = judge(B6, AvailableRuns(runs))
    (kq, vo), (table,) = verdict.networks, verdict.tables
    assert (kq.network, kq.part, kq.word, kq.seeds[0].value) == ("teacher", "K-Q", word, value)
    assert (vo.network, vo.part, vo.word, vo.seeds[0].value) == ("teacher", "V-O", "holds", 4)
    assert table.columns[2:4] == ("half-rise 1", "width 1")
    assert (table.rows[0][2] is None) == (word == "no data")


def test_only_full_heads_are_needed() -> None:
    keys = [RunKey("teacher", kind="full"), RunKey("diagonal", {"log10_alpha": -8.0})]
    assert B6.needs(keys) == keys[:1]


def test_rise_times_are_the_closed_forms() -> None:
    measured, expected = rise_dataset(full_run(APART, -8.0, end=8.0)), rises(APART, -8.0)
    for name in ("half_rise", "rise_10", "rise_90"):
        # recorded every 8/599 in time, linear between
        np.testing.assert_allclose(measured[name], expected[name], atol=8 / 599)
