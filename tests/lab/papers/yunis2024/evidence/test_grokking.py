import math

import numpy as np
import pytest
import xarray as xr

from lab.papers.archived import evidence, table
from lab.papers.yunis2024.closed_form_runs import flat, training_run
from lab.papers.yunis2024.evidence.swept_runs import swept
from rankscope.lab.papers.yunis2024.claims.grokking import SPACING, Y9, steepest_drop
from rankscope.lab.papers.yunis2024.evidence import grokking


def ranks(by_step: dict[int, float]) -> xr.DataArray:
    return xr.DataArray(list(by_step.values()), dims="step", coords={"step": list(by_step)})


def grok(left: dict[int, int]) -> xr.Dataset:
    """Leave so many of 100 values of a matrix at each step; accuracy rises steadily."""
    accuracy = [0.0, *np.linspace(0.1, 0.9, len(left) - 1)]
    spectra = {"fc": flat(100, list(left.values()))}
    return training_run(spectra, steps=list(left), scalars={"validation_accuracy": accuracy})


def test_drops_and_jumps_are_those_of_y9() -> None:
    rows = {row[:2]: row[2:] for row in table(grokking.drops).rows}
    spaced = {row[0]: row[1:] for row in table(grokking.spacings).rows}["0.05"]
    for row in evidence("yunis2024", Y9):
        _, seed, decay, drop, jump, _, end, accuracy = row.values()
        jump_step, drop_step, _, _, *ends = rows[decay, seed]
        assert drop_step == round(10**drop) and ends == pytest.approx([end, accuracy])
        assert jump_step == (None if jump is None else round(10**jump))
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


def test_the_row_of_a_run() -> None:
    ds = grok({0: 100, 1: 90, 100: 90, 101: 30, 1000: 20})
    ((decay, seed, _, at, by, over, end, accuracy),) = grokking.drops(swept("grok", {1.0: ds})).rows
    assert (decay, seed, end, accuracy) == ("1", 0, pytest.approx(0.2), 0.9)
    assert at == pytest.approx(100, rel=0.12) and 0.5 < by <= 0.61  # the grid is 12% of a step wide
    exactly = 10 ** grokking.steepest(grokking.mean_rank(ds), SPACING)[0]
    fallen = np.interp(exactly, [0, 1, 100, 101, 1000], [0, 10, 10, 70, 80])
    assert over == pytest.approx(fallen / 80)


def test_the_steepest_fall_between_snapshots_depends_on_the_unit() -> None:
    # The later a fall, the steeper it is per log10 step: another is the steepest per root of step.
    steps = [0, 1, 2, 100, 101, 10_000, 10_100]
    left = [100, 100, 60, 60, 50, 50, 30]
    runs = swept("grok", {1.0: grok(dict(zip(steps, left, strict=True)))})
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
    for seed, unit, start, end, by in grokking.single_snapshots(runs).rows:
        at = expected[unit]
        assert (seed, start, end) == (0, after[at], after[at + 1])
        assert by == pytest.approx(falls[at])


def test_the_drop_is_set_against_the_jump() -> None:
    ds = grok({0: 100, 1: 90, 1000: 90, 1001: 30, 100_000: 20})
    after = {row[0]: row[1] for row in grokking.spacings(swept("grok", {0.0: ds, 1.0: ds})).rows}
    jump = grokking.crossing(ds)
    assert after["0.005"] == pytest.approx(math.log10(1000) - jump, abs=0.005)
