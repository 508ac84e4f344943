"""Claims Y3, Y3b and Y10 on diagonals written by hand, and on random directions."""

import numpy as np
import pytest
import torch

from lab.claims.training_runs import PairCourse, course, seeds, training_run
from rankscope.lab.claims.alignment import (
    alignment_is_weak,
    alignment_is_weak_on_the_median,
    alignment_peaks_early,
    declared,
    queries_and_keys_align_best,
    weakness,
)
from rankscope.overlaps import background

# a(0) at the background of 0.1, a rise to 0.3, and top ranks above the later ones at the end
GOOD = course([0.1, 0.3, 0.2], R=64, rest=0.1)


def pairs(*diagonals: np.ndarray, kind: str = "linear") -> list[PairCourse]:
    return [PairCourse(f"w{n}", f"w{n + 1}", each, kind=kind) for n, each in enumerate(diagonals)]


def weak(*diagonals: np.ndarray, count: int = 3, network: str = "vgg/decay-0.0001"):
    return alignment_is_weak({network: seeds(training_run(pairs=pairs(*diagonals)), count)})


@pytest.mark.parametrize("start", [0.0751, 0.1249])
def test_weak_alignment_from_chance_in_the_top_ranks(start: float) -> None:
    judged = weak(course([start, 0.5, 0.2], R=64, rest=0.1))
    assert judged.holds == "yes"
    assert judged.value == 1


@pytest.mark.parametrize(
    ("bad", "part"),
    [
        (course([0.0749, 0.3, 0.2], R=64, rest=0.1), 0),
        (course([0.1251, 0.3, 0.2], R=64, rest=0.1), 0),
        (course([0.1, 0.501, 0.2], R=64, rest=0.1), 1),
    ],
)
def test_the_first_two_parts_hold_for_nine_of_ten(bad: np.ndarray, part: int) -> None:
    once, twice = weak(*[GOOD] * 9, bad), weak(*[GOOD] * 8, bad, bad)
    assert (once.holds, twice.holds) == ("yes", "no")
    assert (once.value, twice.value) == (0.9, 0.8)
    assert twice.tables[0].rows[0][2 + 2 * part : 4 + 2 * part] == (
        0.8,
        "2 of 10: w8 > w9, w9 > w10",
    )


def test_the_third_part_holds_for_half() -> None:
    level = course([0.1, 0.3, 0.1], R=64)  # equal is not above
    half, less = weak(GOOD, level), weak(GOOD, level, level)
    assert (half.holds, half.value) == ("yes", 0.5)
    assert (less.holds, less.value) == ("no", 1 / 3)


def test_narrow_pairs_take_no_part_in_the_third() -> None:
    narrow = course([0.1, 0.3, 0.1], R=50)
    assert weak(GOOD, *[narrow] * 8).holds == "yes"
    judged = weak(*[narrow] * 9)
    assert (judged.holds, judged.value) == ("undecided", 1.0)
    assert weak(*[course([0.3] * 3, R=50)] * 9).holds == "no"  # the first part fails without it


def test_pairs_of_fewer_than_ten_directions() -> None:
    parts = weakness(training_run(pairs=pairs(course([0.1, 0.6], R=5))))
    assert (parts.at_chance.share, parts.weak.share, parts.top_above.counted) == (1, 0, ())


def test_other_taps_do_not_count() -> None:
    tap = PairCourse("w0", "w1", course([0.9] * 3, R=64), kind="tap", label="tap 0,0")
    run = training_run(pairs=[*pairs(GOOD), tap])
    assert alignment_is_weak({"unet/decay-0": seeds(run)}).holds == "yes"


@pytest.mark.parametrize(("copied", "holds"), [(True, "yes"), (False, "no")])
def test_copied_layers_stand_apart(copied: bool, holds: str) -> None:
    between = pairs(*[course([0.4, 0.3, 0.2], R=64, rest=0.1)] * 3, kind="w2-qkv")
    run = training_run(
        pairs=[*between, PairCourse("w1", "w2", GOOD, kind="w1-w2", label="apart")],
        declaration={"class": "TrainingRun", "task": {"model": {"copied_layers": copied}}},
    )
    assert len(weakness(run).at_chance.counted) == (1 if copied else 4)
    assert len(weakness(run).weak.counted) == 4
    for claim in (alignment_is_weak, alignment_is_weak_on_the_median):
        assert claim({"lm/decay-0.1": seeds(run)}).holds == holds


def test_a_declaration_is_searched_everywhere() -> None:
    assert declared({"a": [1, {"b": {"wanted": False}}]}, "wanted") is False
    assert declared({"a": "wanted", "b": None}, "wanted") is None


def test_random_directions_fail_the_first_rule_and_meet_the_second() -> None:
    """The reason of Y3-median: of pairs at chance about 70% lie within 0.75-1.25."""
    generator = torch.Generator().manual_seed(0)
    chance = []
    for n in range(60):
        A = torch.randn(100, 100, generator=generator, dtype=torch.float64).abs() / 16
        top = A.diagonal().numpy() + np.where(np.arange(100) < 10, [[0.0], [0.1]], 0)
        chance.append(PairCourse(f"w{n}", f"w{n + 1}", top, float(background(A))))
    results = {"lstm/decay-0.1": seeds(training_run(pairs=chance))}
    first, second = alignment_is_weak(results), alignment_is_weak_on_the_median(results)
    assert first.holds == "no"
    # 0.25 is 1.05 deviations of 0.239; 60 pairs tell the share to +- 0.06
    assert first.value == pytest.approx(0.705, abs=3 * 0.06)
    assert second.holds == "yes"
    assert second.value == pytest.approx(1.0, abs=0.12)


@pytest.mark.parametrize(("start", "holds"), [(0.1249, "yes"), (0.1251, "no")])
def test_the_median_pair_decides_the_second_rule(start: float, holds: str) -> None:
    typical = course([start, 0.3, 0.2], R=64, rest=0.1)
    low, high = (course([a, 0.3, 0.2], R=64, rest=0.1) for a in (0.01, 0.4))
    run = training_run(pairs=pairs(low, typical, high))
    assert alignment_is_weak_on_the_median({"unet/decay-0": seeds(run)}).holds == holds
    assert alignment_is_weak_on_the_median({"unet/decay-0": seeds(run, 2)}).holds == "undecided"


def early(*diagonals: np.ndarray, count: int = 3, **options):
    run = training_run(pairs=pairs(*diagonals), **options)
    return alignment_peaks_early({"vgg/decay-0.0001": seeds(run, count)})


@pytest.mark.parametrize(
    ("a", "holds"),
    [
        ([0.1, 0.4, 0.3, 0.3, 0.3, 0.3], "yes"),  # second of six, ends at 75%
        ([0.1, 0.3, 0.4, 0.3, 0.3, 0.3], "no"),  # third of six
        ([0.1, 0.4, 0.3, 0.3, 0.3, 0.325], "no"),  # ends at 81%
        ([0.1, 0.4, 0.3, 0.3, 0.3, 0.315], "yes"),  # ends at 79%
        ([0.1, 0.4, 0.3, 0.3, 0.3], "no"),  # second of five is past a third
    ],
)
def test_the_peak_in_the_first_third_and_the_fall(a: list[float], holds: str) -> None:
    assert early(course(a)).holds == holds


def test_half_of_the_pairs_peak_early() -> None:
    peaks, rises = course([0.4, 0.1, 0.1]), course([0.1, 0.1, 0.4])
    assert early(peaks, rises).holds == "yes"
    judged = early(peaks, rises, rises)
    assert judged.holds == "no"
    assert judged.tables[0].rows[0][2:] == (1 / 3, 1 / 3, 1 / 3, "2 of 3: w1 > w2, w2 > w3")


def test_what_cannot_tell_of_a_peak() -> None:
    assert early(course([0.4, 0.1])).holds == "undecided"  # no third of two snapshots
    assert early(course([0.4, 0.1, 0.1]), count=2).holds == "undecided"
    assert early(course([0.4, 0.1, 0.1]), loss=(1.0, 0.96)).holds == "undecided"


def kinds(qk: list[float], vo: list[float], **options):
    chosen = [("qk", a) for a in qk] + [("vo", a) for a in vo]
    found = [
        PairCourse(f"w{n}", "v", course([0.1, a]), kind=kind) for n, (kind, a) in enumerate(chosen)
    ]
    return {"lm/decay-0.1": seeds(training_run(pairs=found, **options))}


@pytest.mark.parametrize(
    ("qk", "vo", "holds"),
    [
        ([0.1, 0.3, 0.4], [0.2, 0.2, 0.9], "yes"),  # medians, not means
        ([0.1, 0.2, 0.9], [0.3, 0.3], "no"),
        ([0.2], [0.2], "no"),
    ],
)
def test_the_largest_median_of_the_kinds(qk: list[float], vo: list[float], holds: str) -> None:
    judged = queries_and_keys_align_best(kinds(qk, vo))
    assert judged.holds == holds
    assert judged.value == pytest.approx(np.median(qk) / np.median(vo))


def test_queries_and_keys_are_asked_for_in_the_transformer_alone() -> None:
    (run,) = kinds([0.4], [0.1]).values()
    assert queries_and_keys_align_best({"vgg/decay-0": run}).networks == ()
    assert queries_and_keys_align_best(kinds([], [0.1])).networks == ()
    assert queries_and_keys_align_best({"lm/decay-0.1": {0: run[0]}}).holds == "undecided"
    assert queries_and_keys_align_best(kinds([0.4], [0.1], diverged_at=7)).evidence[0] == (
        "lm, seed 0 collapsed: diverged at step 7"
    )
