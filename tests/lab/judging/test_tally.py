"""Shares of matrices, lists of exceptions, and rules of several parts."""

import math

import numpy as np
import pytest
import xarray as xr

from rankscope.lab.judging.tally import SeedTally, Tally, all_met, count, exception_table


def of(values: list[float]) -> xr.DataArray:
    return xr.DataArray(
        np.array(values), dims="matrix", coords={"matrix": [f"w{n}" for n in range(len(values))]}
    )


def test_what_is_not_a_number_is_not_counted() -> None:
    values = of([1.0, -1.0, math.nan, math.inf, 2.0])
    found = count(values > 0, measured=values)
    assert found.counted == ("w0", "w1", "w3", "w4")
    assert found.exceptions == ("w1",)
    assert found.unknown == ("w2",)
    assert found.share == 3 / 4
    assert str(found) == "1 of 4: w1; 1 cannot tell"


@pytest.mark.parametrize(("share", "met"), [(0.9, True), (0.91, False)])
def test_a_share_of_nine_tenths_is_at_least_that(share: float, met: bool) -> None:
    values = of([1.0] * 9 + [-1.0])
    assert count(values > 0, measured=values).at_least(share) is met


def test_nothing_counted_tells_nothing() -> None:
    found = count(of([math.nan]) > 0, measured=of([math.nan]))
    assert found.at_least(0.0) is None
    assert math.isnan(found.share)
    assert str(found) == "none of 0; 1 cannot tell"


def test_few_exceptions_are_named_and_many_counted() -> None:
    values = of([-1.0] * 9)
    assert str(count(values > 0, measured=values)) == "9 of 9"
    assert str(count(values[:3] > 0, measured=values[:3])) == "3 of 3: w0, w1, w2"
    assert str(count(values < 0, measured=values)) == "none of 9"


def test_the_exception_table_names_every_exception_with_its_seeds() -> None:
    many = tuple(f"w{n}" for n in range(9))
    tallies = [
        SeedTally("vgg", 0, "falls", Tally(many, many)),
        SeedTally("vgg", 1, "falls", Tally(many, ("w8",), ("dead",))),
        SeedTally("lm", 0, "falls", Tally(many, ())),
        SeedTally("vgg", 0, "rises", Tally(many, (), ("dead",))),
    ]
    (table,) = exception_table(tallies)
    assert table.rows == (
        ("vgg", "falls", "seed 0 1: w8; seed 0: w0, w1, w2, w3, w4, w5, w6, w7", "seed 1: dead"),
        ("vgg", "rises", "-", "seed 0: dead"),
    )
    assert exception_table(tallies[2:3]) == []


@pytest.mark.parametrize(
    ("parts", "met"),
    [([True, True], True), ([True, None], None), ([None, False], False), ([], True)],
)
def test_a_part_that_fails_outweighs_one_that_cannot_tell(
    parts: list[bool | None], met: bool | None
) -> None:
    assert all_met(parts) is met
