import math

import numpy as np
import pytest
import xarray as xr

from findings import grokking
from lab.claims.training_runs import flat, training_run
from rankscope.lab.papers.yunis2024.claims.grokking import SPACING, steepest_drop


def ranks(of: dict[int, float]) -> xr.DataArray:
    return xr.DataArray(list(of.values()), dims="step", coords={"step": list(of)})


def grok(of: dict[int, int]) -> xr.Dataset:
    """A matrix of 100 values of which so many are left at each step; right from the middle on."""
    right = [0.0, *np.linspace(0.1, 0.9, len(of) - 1)]
    spectra = {"fc": flat(100, list(of.values()))}
    return training_run(spectra, steps=list(of), scalars={"validation_accuracy": right})


def test_drops_and_jumps_are_those_of_y9(table, evidence) -> None:
    found = {(row[0], row[1]): row for row in table(grokking.drops).rows}
    spaced = {row[0]: row[1:] for row in table(grokking.spacings).rows}["0.05"]
    for decay, seed, drop, jump, _, end, accuracy in evidence("yunis2024/grok", "Y9"):
        _, _, when, at, _, _, rank, right = found[decay, seed]
        assert at == round(10**drop) and (rank, right) == pytest.approx((end, accuracy))
        assert when == (None if jump is None else round(10**jump))
        if jump is not None:
            assert spaced[seed] == pytest.approx(drop - jump)


def test_the_steepest_drop_is_at_the_step_of_a_step_function() -> None:
    stair = ranks({0: 1.0, 1: 0.9, 1000: 0.9, 1001: 0.4, 1_000_000: 0.4})
    for spacing in (0.01, 0.1):
        at, by = grokking.steepest(stair, spacing)
        assert at == pytest.approx(3, abs=spacing) and by == pytest.approx(0.5, abs=0.01)


def test_on_the_grid_of_y9_it_is_that_of_y9() -> None:
    ds = grok({0: 100, 1: 90, 10: 85, 40: 50, 500: 20, 1000: 10})
    at, _ = grokking.steepest(grokking.mean_rank(ds), SPACING)
    assert at == pytest.approx(steepest_drop(ds))


def test_the_share_of_the_fall_is_of_the_whole_fall() -> None:
    course = ranks({0: 1.0, 100: 0.8, 200: 0.4, 300: 0.2})
    assert grokking.fallen_share(course, 100.0) == pytest.approx(1 / 4)
    assert grokking.fallen_share(course, 150.0) == pytest.approx(1 / 2)


def test_the_row_of_a_run(keep_sweep) -> None:
    keep_sweep("grok", {1.0: grok({0: 100, 1: 90, 100: 90, 101: 30, 1000: 20})})
    ((decay, seed, _, at, by, over, end, accuracy),) = grokking.drops().rows
    assert (decay, seed, end, accuracy) == ("1", 0, pytest.approx(0.2), 0.9)
    assert at == pytest.approx(100, rel=0.12) and 0.5 < by <= 0.61  # the grid is 12% of a step wide
    course = grokking.mean_rank(grok({0: 100, 1: 90, 100: 90, 101: 30, 1000: 20}))
    exactly = 10 ** grokking.steepest(course, SPACING)[0]
    fallen = np.interp(exactly, [0, 1, 100, 101, 1000], [0, 10, 10, 70, 80])
    assert over == pytest.approx(fallen / 80)


def test_the_steepest_fall_between_snapshots_depends_on_the_unit(keep_sweep) -> None:
    # The later a fall, the steeper it is per log10 step: another is the steepest per root of step.
    steps = [0, 1, 2, 100, 101, 10_000, 10_100]
    left = [100, 100, 60, 60, 50, 50, 30]
    keep_sweep("grok", {1.0: grok(dict(zip(steps, left, strict=True)))})
    after, falls = np.array(steps[1:]), -np.diff(left[1:]) / 100
    expected = {
        unit: int((falls / np.diff(time)).argmax())
        for unit, time in {
            "log10 step": np.log10(after),
            "step": after,
            "root": np.sqrt(after),
        }.items()
    }
    assert len(set(expected.values())) == 3
    for seed, unit, start, end, by in grokking.single_snapshots().rows:
        at = expected[unit]
        assert (seed, start, end) == (0, after[at], after[at + 1])
        assert by == pytest.approx(falls[at])


def test_the_drop_is_set_against_the_jump(keep_sweep) -> None:
    ds = grok({0: 100, 1: 90, 1000: 90, 1001: 30, 100_000: 20})
    keep_sweep("grok", {0.0: ds, 1.0: ds})
    after = {row[0]: row[1] for row in grokking.spacings().rows}
    jump = grokking.crossing(ds)
    assert after["0.005"] == pytest.approx(math.log10(1000) - jump, abs=0.005)
