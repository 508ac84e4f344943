"""Claim Y11 on centre taps and other taps written by hand."""

import pytest

from lab.claims.training_runs import PairCourse, course, flat, seeds, training_run
from rankscope.lab.claims.filters import centre_of_filters_aligns_best


def convolution(n: int, centre: float, *others: float) -> list[PairCourse]:
    ends = (f"conv{n}", f"conv{n + 1}")
    taps = [
        PairCourse(*ends, course([0.9, a]), kind="tap", label=f"tap {k},0")
        for k, a in enumerate(others)
    ]
    return [PairCourse(*ends, course([0.0, centre]), kind="conv"), *taps]


def judged(*filters: list[PairCourse], count: int = 3, network: str = "vgg/decay-0.0001"):
    run = training_run(pairs=[pair for each in filters for pair in each])
    return centre_of_filters_aligns_best({network: seeds(run, count)})


GOOD = (0.3, 0.1, 0.4)  # above the mean of the others, not above each
BAD = (0.2, 0.1, 0.4)


@pytest.mark.parametrize(("good", "bad", "holds"), [(4, 1, "yes"), (3, 1, "no"), (0, 2, "no")])
def test_four_fifths_of_the_pairs_decide(good: int, bad: int, holds: str) -> None:
    filters = [convolution(n, *(GOOD if n < good else BAD)) for n in range(good + bad)]
    verdict = judged(*filters)
    assert verdict.holds == holds
    assert verdict.value == good / (good + bad)
    assert verdict.tables[0].rows[0][-1].startswith(f"{bad} of {good + bad}: conv{good} > conv")


def test_a_matrix_that_died_cannot_tell() -> None:
    both = [pair for n in (0, 5) for pair in convolution(n, *GOOD)]
    run = training_run({"conv6": flat(9, [9, 0]), "other": flat(9, [9, 9])}, both)
    verdict = centre_of_filters_aligns_best({"vgg/decay-0.0001": seeds(run)})
    assert (verdict.holds, verdict.value) == ("yes", 1)
    assert verdict.tables[0].rows[0][-1] == "none of 1; 1 cannot tell"


def test_equal_is_not_above() -> None:
    assert judged(convolution(0, 0.25, 0.25, 0.25)).holds == "no"


def test_pairs_without_other_taps_are_not_counted() -> None:
    alone = convolution(7, 0.0)
    assert judged(convolution(0, *GOOD), alone).value == 1
    assert judged(alone).networks == ()


def test_two_seeds_and_other_networks() -> None:
    assert judged(convolution(0, *GOOD), count=2).holds == "undecided"
    assert judged(convolution(0, *GOOD), network="unet/decay-0").holds == "yes"
    assert judged(convolution(0, *GOOD), network="lstm/decay-0").networks == ()


def test_a_collapsed_run_cannot_tell() -> None:
    run = training_run(pairs=convolution(0, *GOOD), loss=(1.0, 1.2))
    verdict = centre_of_filters_aligns_best({"unet/decay-0": seeds(run)})
    assert verdict.holds == "undecided"
    assert len(verdict.evidence) == 3
