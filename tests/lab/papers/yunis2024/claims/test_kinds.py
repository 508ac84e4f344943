"""Claim Y10 on diagonals written by hand."""

import numpy as np
import pytest

from lab.papers.yunis2024.closed_form_runs import (
    PairCourse,
    course,
    judged_at_base,
    only,
    rows,
    training_run,
)
from rankscope.lab.papers.yunis2024.claims.kinds import Y10


@pytest.mark.parametrize(
    ("qk", "vo", "word"),
    [
        ([0.1, 0.3, 0.4], [0.2, 0.2, 0.9], "holds"),  # medians, not means
        ([0.1, 0.2, 0.9], [0.3, 0.3], "fails"),
        ([0.2, 0.2], [0.2, 0.2], "fails"),
        ([np.nan, np.nan], [0.2, 0.2], "no data"),
        ([], [0.2, 0.2], "no data"),
        ([0.3, 0.3], [np.nan, np.nan], "no data"),
    ],
)
def test_the_largest_median_of_the_kinds(qk: list[float], vo: list[float], word: str) -> None:
    ends = [("qk", a) for a in qk] + [("vo", a) for a in vo]
    pairs = [
        PairCourse(f"w{n}", "v", course([0.1, a]), kind=kind) for n, (kind, a) in enumerate(ends)
    ]
    verdict = judged_at_base(Y10, "lm", training_run(pairs=pairs))
    ratio = None if word == "no data" else pytest.approx(np.median(qk) / np.median(vo))
    assert (only(verdict).word, only(verdict).value) == (word, ratio)
    assert rows(verdict)[0].get("vo") == rows(verdict)[0]["best other"]


def of_kinds(**a_by_kind: list[float]):
    ends = [(kind, a) for kind, values in a_by_kind.items() for a in values]
    pairs = [
        PairCourse(f"w{n}", "v", course([0.1, a]), kind=kind) for n, (kind, a) in enumerate(ends)
    ]
    return judged_at_base(Y10, "lm", training_run(pairs=pairs))


def test_kinds_with_a_single_pair_take_no_part() -> None:
    verdict = of_kinds(qk=[0.3, 0.3], vo=[0.2, 0.2], output=[0.9])
    assert (only(verdict).word, only(verdict).value) == ("holds", pytest.approx(1.5))
    assert "output" not in rows(verdict)[0]
    assert only(of_kinds(qk=[0.3, 0.3], vo=[0.2, 0.2], output=[0.9, 0.9])).word == "fails"
    assert only(of_kinds(qk=[0.3], vo=[0.2, 0.2])).word == "no data"
    assert only(of_kinds(qk=[0.3, 0.3], output=[0.2])).word == "no data"
