"""Claim Y11 on centre taps and other taps written by hand."""

import pytest

from lab.papers.yunis2024.closed_form_runs import (
    PairCourse,
    at_decay,
    course,
    flat,
    judged,
    rows,
    seeds,
    training_run,
    words,
)
from rankscope.lab.papers.yunis2024.claims.filters import Y11


def convolution(n: int, centre: float, *others: float) -> list[PairCourse]:
    ends = (f"conv{n}", f"conv{n + 1}")
    taps = [
        PairCourse(*ends, course([0.9, a]), kind="tap", label=f"tap {k},0")
        for k, a in enumerate(others)
    ]
    return [PairCourse(*ends, course([0.0, centre]), kind="conv"), *taps]


def verdict_on(*filters: list[PairCourse], count: int = 3, network: str = "vgg", decay=1e-4):
    run = training_run(pairs=[pair for pairs in filters for pair in pairs])
    return judged(Y11, at_decay(network, decay, seeds(run, count)))


GOOD = (0.3, 0.1, 0.4)  # above the mean of the others, not above each
BAD = (0.2, 0.1, 0.4)


@pytest.mark.parametrize(
    ("good", "bad", "word"), [(4, 1, "holds"), (3, 1, "fails"), (0, 2, "fails")]
)
def test_four_fifths_of_the_pairs_decide(good: int, bad: int, word: str) -> None:
    filters = [convolution(n, *(GOOD if n < good else BAD)) for n in range(good + bad)]
    verdict = verdict_on(*filters)
    assert words(verdict) == {"vgg": word}
    assert verdict.networks[0].value == good / (good + bad)
    exceptions = rows(verdict)[0]["exceptions"]
    assert exceptions.startswith(f"{bad} of {good + bad}: conv{good} > conv")


def test_a_matrix_that_died_cannot_tell() -> None:
    both = [pair for n in (0, 5) for pair in convolution(n, *GOOD)]
    run = training_run({"conv6": flat(9, [9, 0]), "other": flat(9, [9, 9])}, both)
    verdict = judged(Y11, at_decay("vgg", 1e-4, seeds(run)))
    assert (words(verdict), verdict.networks[0].value) == ({"vgg": "holds"}, 1)
    assert rows(verdict)[0]["exceptions"] == "none of 1; 1 cannot tell"


def test_equal_is_not_above() -> None:
    assert words(verdict_on(convolution(0, 0.25, 0.25, 0.25))) == {"vgg": "fails"}


def test_pairs_without_other_taps_are_not_counted() -> None:
    assert verdict_on(convolution(0, *GOOD), convolution(7, 0.0)).networks[0].value == 1


def test_two_seeds_and_other_networks() -> None:
    good = convolution(0, *GOOD)
    assert words(verdict_on(good, count=2)) == {"vgg": "holds so far"}
    assert words(verdict_on(good, network="unet", decay=0)) == {"unet": "holds"}
    assert verdict_on(good, network="lstm", decay=0).networks == ()


def test_a_collapsed_run_cannot_tell() -> None:
    run = training_run(pairs=convolution(0, *GOOD), loss=(1.0, 1.2))
    verdict = judged(Y11, at_decay("unet", 0, seeds(run)))
    assert words(verdict) == {"unet": "no data"}
    assert len(verdict.remarks) == 3
