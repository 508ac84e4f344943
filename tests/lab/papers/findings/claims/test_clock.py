"""Claim N1 on runs whose heads fall in rank at a chosen reading of the clock."""

import math

import numpy as np
import pytest
import xarray as xr

from lab.papers.findings.made_runs import FALL, NEVER, VIT_STEPS, vit, vit_keys
from rankscope.lab.judging.available_runs import AvailableRuns
from rankscope.lab.judging.study import judge
from rankscope.lab.judging.verdict import NetworkVerdict
from rankscope.lab.papers.findings.claims.clock import N1, courses, half_fall, moments


def judged(*runs: xr.Dataset, seeds: int = 3) -> NetworkVerdict:
    """Judge runs at scales 1, 0.3, 0.1 and 0.03, as far as given."""
    entries = {
        key: dict.fromkeys(range(seeds), ds) for key, ds in zip(vit_keys(), runs, strict=False)
    }
    (network,) = judge(N1, AvailableRuns(entries)).networks
    return network


GOOD = [(1.0, FALL)] * 8


def test_rank_and_ratio_are_read_from_the_norms() -> None:
    read = courses(vit((0.5, FALL), (2.0, NEVER)))
    assert read.heads == ["blocks.0.attention.h0.kq", "blocks.0.attention.h1.kq"]
    np.testing.assert_allclose(read.rank, np.stack([FALL, NEVER], axis=1))
    np.testing.assert_allclose(read.ratio[4], [0.5, 2.0])
    assert read.steps.tolist() == VIT_STEPS[1:].tolist()


def test_half_of_the_fall() -> None:
    assert half_fall(FALL) == 4  # from 10 to 2: at or below 6
    assert half_fall(NEVER) is None and half_fall(np.ones(5)) is None
    assert half_fall(NEVER[::-1]) == 4  # the fall may end with the run
    assert half_fall(np.array([3.0, math.nan, 1.0])) is None
    assert half_fall(np.array([1.0, 9.0, 1.0])) is None  # the first is among the lowest
    assert half_fall(np.array([2.0, 9.0, 1.0])) == 2


def test_the_moment_of_every_head() -> None:
    measured = moments(vit((0.5, FALL), (2.0, NEVER)))
    np.testing.assert_array_equal(measured.steps, [100, math.nan])
    np.testing.assert_allclose(measured.ratios, [0.5, math.nan])
    np.testing.assert_allclose(measured.falls, [0.8, math.nan])
    assert str(measured.tally) == "none of 1; 1 cannot tell"


@pytest.mark.parametrize("ratio", [0.1001, 1.0, 9.999])
def test_it_holds_with_four_fifths_in_the_band(ratio: float) -> None:
    run = vit(*[(ratio, FALL)] * 8, (0.05, FALL), (20.0, FALL))
    verdict = judged(*[run] * 4)
    assert (verdict.word, verdict.value) == ("holds", pytest.approx(0.8))


@pytest.mark.parametrize("ratio", [0.0999, 10.001])
def test_it_fails_if_one_scale_has_more_heads_outside(ratio: float) -> None:
    bad = vit(*[(1.0, FALL)] * 7, *[(ratio, FALL)] * 3)
    verdict = judged(*[vit(*GOOD)] * 3, bad)
    assert (verdict.word, verdict.value) == ("fails", pytest.approx(0.7))


def test_heads_that_never_fall_may_count_either_way() -> None:
    enough = vit(*GOOD, (1.0, NEVER), (1.0, NEVER))
    unclear = vit(*GOOD, *[(1.0, NEVER)] * 3)
    hopeless = vit(*GOOD, (1.0, NEVER), *[(50.0, FALL)] * 3)
    assert judged(*[enough] * 4).word == "holds"
    assert judged(*[vit(*GOOD)] * 3, unclear).word == "no data"
    assert judged(unclear, *[vit(*GOOD)] * 2, hopeless).word == "fails"
    assert judged(*[vit((1.0, NEVER))] * 4).word == "no data"


def test_what_cannot_tell() -> None:
    good = vit(*GOOD)
    assert judged(good, good, good).word == "no data"  # a scale is missing
    assert judged(good, good, good, vit(*GOOD, diverged_at=60)).word == "no data"
    assert judged(*[good] * 4, seeds=2).word == "holds so far"


def test_a_loss_that_has_not_fallen_yet_is_no_excuse() -> None:
    slow = vit(*GOOD).assign(training_loss=("step", np.ones(len(VIT_STEPS))))
    assert judged(*[slow] * 4).word == "holds"
