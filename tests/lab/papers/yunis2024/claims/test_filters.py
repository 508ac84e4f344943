"""Claim Y11 on centre taps and other taps written by hand."""

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
from rankscope.lab.papers.yunis2024.claims.filters import Y11

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
    verdict = judged_at_base(Y11, "vgg", run)
    assert (only(verdict).word, only(verdict).value) == (word, good / (good + bad))
    exceptions = rows(verdict)[0]["exceptions"]
    assert exceptions.startswith(f"{bad} of {good + bad}: conv{2 * good} > conv")


def test_pairs_that_died_cannot_tell_and_those_without_other_taps_are_not_counted() -> None:
    spectra = {"conv3": flat(9, [9, 0]), "other": flat(9, [9, 9])}
    run = training_run(spectra, convolutions(GOOD, GOOD, (0.0,)))
    verdict = judged_at_base(Y11, "unet", run)
    assert (only(verdict).word, only(verdict).value) == ("holds", 1)
    assert rows(verdict)[0]["exceptions"] == "none of 1; 1 cannot tell"
