"""Claim Y3b and its first rule on diagonals written by hand; the background is 0.1."""

from collections.abc import Sequence

import numpy as np
import pytest

from lab.papers.yunis2024.closed_form_runs import (
    chained,
    course,
    flat,
    judged_at_base,
    only,
    outcome,
    rows,
)
from rankscope.lab.papers.yunis2024.claims.peaks import Y3B, Y3B_FIRST

STEPS = (0, 10, 49, 50, 100)


def shown(a: Sequence[float], **options):
    """A run whose second pair, which figure 3 shows, has a(t) as given; the first one rises."""
    rises = np.linspace(0.1, 0.9, len(a))
    steps = options.pop("steps", STEPS)
    return chained(course(rises), course(a), steps=steps, shown_pair="w1 > w2", **options)


@pytest.mark.parametrize(
    ("a", "word"),
    [
        ([0.1, 0.2, 0.18, 0.17, 0.15], "holds"),
        ([0.1, 0.1, 0.2, 0.17, 0.15], "holds"),  # peaks at step 49
        ([0.1, 0.1, 0.15, 0.2, 0.15], "fails"),  # at step 50, half of 100
        ([0.1, 0.1501, 0.1, 0.1, 0.1], "holds"),
        ([0.1, 0.1499, 0.1, 0.1, 0.1], "fails"),  # too low a peak
        ([0.1, 0.2, 0.2, 0.2, 0.1599], "holds"),
        ([0.1, 0.2, 0.2, 0.2, 0.1601], "fails"),  # hardly falls
        ([0.2, 0.1, 0.1, 0.1, 0.1], "holds"),  # peaks at the start
        ([0.1, 0.2, 0.1, np.nan, 0.1], "holds"),
        ([0.1, 0.2, 0.1, 0.1, np.nan], "no data"),
    ],
)
def test_the_shown_pair_peaks_in_the_first_half_of_steps_and_falls(a, word: str) -> None:
    verdict = judged_at_base(Y3B, "vgg", shown(a))
    left = None if word == "no data" else pytest.approx(a[-1] / np.nanmax(a))
    assert (only(verdict).word, only(verdict).value) == (word, left)


def test_steps_decide_and_not_snapshots() -> None:
    a = [0.1, 0.1, 0.1, 0.2, 0.1]
    late = judged_at_base(Y3B, "vgg", shown(a, steps=[0, 1, 2, 3, 4]))
    early = judged_at_base(Y3B, "vgg", shown(a, steps=[0, 1, 2, 3, 100]))
    assert (only(late).word, only(early).word) == ("fails", "holds")
    row = rows(early)[0]
    assert (row["pair"], row["peak"], row["at step"], row["of"]) == (
        *("w1 > w2", pytest.approx(2.0)),
        *(3, 100),
    )


def test_a_shown_pair_that_died_or_is_not_stored_cannot_tell() -> None:
    a = [0.1, 0.2, 0.1, 0.1, 0.1]
    died = shown(a, spectra={"w2": flat(9, [9, 9, 9, 9, 0]), "w0": flat(9, [9] * 5)})
    for run in (died, chained(course(a)), chained(course(a), shown_pair="x > y")):
        verdict = judged_at_base(Y3B, "unet", run)
        assert only(verdict).word == "no data" and "of figure 3" in verdict.remarks[0]


def test_pairs_of_a_matrix_that_died_cannot_tell_by_the_first_rule() -> None:
    rising = course([0.1, 0.3, 0.2], R=64, rest=0.1)
    spectra = {"w0": flat(64, [64, 64, 64]), "w2": flat(64, [64, 64, 0])}
    verdict = judged_at_base(Y3B_FIRST, "vgg", chained(rising, rising, spectra=spectra))
    assert rows(verdict)[0]["exceptions"] == "1 of 1: w0 > w1; 1 cannot tell"


@pytest.mark.parametrize(
    ("a", "word"),
    [
        ([0.1, 0.4, 0.3, 0.3, 0.3, 0.3], "holds"),  # second of six, ends at 75%
        ([0.1, 0.3, 0.4, 0.3, 0.3, 0.3], "fails"),  # third of six
        ([0.1, 0.4, 0.3, 0.3, 0.3, 0.325], "fails"),  # ends at 81%
        ([0.1, 0.4, 0.3, 0.3, 0.3, 0.315], "holds"),  # ends at 79%
        ([0.1, 0.4, 0.3, 0.3, 0.3], "fails"),  # second of five is past a third
        ([0.4, 0.1], "no data"),  # no third of two snapshots
    ],
)
def test_the_peak_in_the_first_third_and_the_fall(a: list[float], word: str) -> None:
    assert outcome(Y3B_FIRST, course(a))[0] == word


def test_half_of_the_pairs_peak_early() -> None:
    peaks, rises = course([0.4, 0.1, 0.1]), course([0.1, 0.1, 0.4])
    assert outcome(Y3B_FIRST, peaks, rises) == ("holds", 0.5)
    verdict = judged_at_base(Y3B_FIRST, "vgg", chained(peaks, rises, rises))
    assert only(verdict).word == "fails"
    assert verdict.tables[0].rows[0][2:] == (1 / 3, 1 / 3, 1 / 3, "2 of 3: w1 > w2, w2 > w3")
