"""Claim Y11 on centre taps and other taps written by hand."""

import numpy as np
import pytest

from lab.papers.yunis2024.closed_form_runs import (
    PairCourse,
    course,
    flat,
    judged_at_base,
    only,
    rows,
    training_run,
)
from rankscope.lab.papers.yunis2024.claims.filters import (
    Y11,
    Y11_FIRST,
    bootstrapped_percentile,
)

GOOD = (0.3, 0.1, 0.4)  # above the mean of the others, not above each
BAD = (0.25, 0.1, 0.4)  # equal is not above


def convolutions(*taps: tuple[float, ...]) -> list[PairCourse]:
    """Two matrices for each: a at the centre tap at the end, then at the other taps."""
    pairs = []
    for n, (centre, *others) in enumerate(taps):
        ends = (f"conv{2 * n}", f"conv{2 * n + 1}")
        pairs += [PairCourse(*ends, course([0.0, centre]), kind="conv")]
        pairs += [
            PairCourse(*ends, course([0.9, a]), kind="tap", label=f"tap {k},0")
            for k, a in enumerate(others)
        ]
    return pairs


@pytest.mark.parametrize(
    ("good", "bad", "word"), [(4, 1, "holds"), (3, 1, "fails"), (0, 2, "fails")]
)
def test_four_fifths_of_the_pairs_decide(good: int, bad: int, word: str) -> None:
    run = training_run(pairs=convolutions(*[GOOD] * good, *[BAD] * bad))
    verdict = judged_at_base(Y11_FIRST, "vgg", run)
    assert (only(verdict).word, only(verdict).value) == (word, good / (good + bad))
    exceptions = rows(verdict)[0]["exceptions"]
    assert exceptions.startswith(f"{bad} of {good + bad}: conv{2 * good} > conv")


def test_pairs_that_died_cannot_tell_and_those_without_other_taps_are_not_counted() -> None:
    spectra = {"conv3": flat(9, [9, 0]), "other": flat(9, [9, 9])}
    run = training_run(spectra, convolutions(GOOD, GOOD, (0.0,)))
    verdict = judged_at_base(Y11_FIRST, "unet", run)
    assert (only(verdict).word, only(verdict).value) == ("holds", 1)
    assert rows(verdict)[0]["exceptions"] == "none of 1; 1 cannot tell"


def leading(*leads: float) -> list[PairCourse]:
    """Pairs whose d is as given: the background is 0.1, and the other taps have 0.2 on average."""
    return convolutions(*((0.2 + 0.1 * lead, 0.1, 0.3) for lead in leads))


@pytest.mark.parametrize(
    ("leads", "word"),
    [
        ((1.0, 2.0, 0.5), "holds"),
        ((1.0,), "holds"),  # every resample is the pair itself
        ((-1.0, -2.0), "fails"),
        ((3.0, -1.0), "fails"),  # ahead on average; a quarter of the resamples are both the second
        ((1.0,) * 8 + (-0.1,), "holds"),
    ],
)
def test_the_centre_is_surely_ahead(leads: tuple[float, ...], word: str) -> None:
    verdict = judged_at_base(Y11, "vgg", training_run(pairs=leading(*leads)))
    assert (only(verdict).word, only(verdict).value) == (word, pytest.approx(np.mean(leads)))
    assert rows(verdict)[0]["pairs"] == len(leads)


def test_no_lead_is_not_ahead() -> None:
    pairs = convolutions((0.25, 0.25, 0.25))
    assert only(judged_at_base(Y11, "vgg", training_run(pairs=pairs))).word == "fails"


def test_the_percentile_is_that_of_the_resampled_mean() -> None:
    """The mean of n values has the deviation s / sqrt(n); 2.5% lie 1.96 of it below the mean."""
    values = np.random.default_rng(1).standard_normal(400) + 3
    expected = values.mean() - 1.96 * values.std() / 20
    assert bootstrapped_percentile(values) == pytest.approx(expected, abs=0.01)
    assert bootstrapped_percentile(values) == bootstrapped_percentile(values)


def test_pairs_that_died_or_have_no_other_taps_are_left_out() -> None:
    spectra = {"conv3": flat(9, [9, 0]), "other": flat(9, [9, 9])}
    died = training_run(spectra, convolutions((0.3, 0.2), (0.1, 0.9), (0.9,)))
    verdict = judged_at_base(Y11, "unet", died)
    assert (only(verdict).word, rows(verdict)[0]["pairs"]) == ("holds", 1)
    without_taps = training_run(pairs=convolutions((0.9,)))
    assert only(judged_at_base(Y11, "unet", without_taps)).word == "no data"
