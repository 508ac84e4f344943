"""Shares of matrices, and rules of several parts."""

import math

import numpy as np
import pytest
import xarray as xr

from rankscope.lab.claims.tally import all_met, tally


def of(values: list[float]) -> xr.DataArray:
    return xr.DataArray(
        np.array(values), dims="matrix", coords={"matrix": [f"w{n}" for n in range(len(values))]}
    )


def test_what_is_not_a_number_is_not_counted() -> None:
    values = of([1.0, -1.0, math.nan, math.inf, 2.0])
    found = tally(values > 0, measured=values)
    assert found.counted == ("w0", "w1", "w3", "w4")
    assert found.exceptions == ("w1",)
    assert found.share == 3 / 4
    assert str(found) == "1 of 4: w1"


@pytest.mark.parametrize(("share", "met"), [(0.9, True), (0.91, False)])
def test_a_share_of_nine_tenths_is_at_least_that(share: float, met: bool) -> None:
    values = of([1.0] * 9 + [-1.0])
    assert tally(values > 0, measured=values).at_least(share) is met


def test_nothing_counted_tells_nothing() -> None:
    found = tally(of([math.nan]) > 0, measured=of([math.nan]))
    assert found.at_least(0.0) is None
    assert math.isnan(found.share)


def test_many_exceptions_are_counted_and_some_named() -> None:
    values = of([-1.0] * 9)
    text = str(tally(values > 0, measured=values))
    assert text == "9 of 9: w0, w1, w2, w3, w4, w5 and 3 more"
    assert str(tally(values < 0, measured=values)) == "none of 9"


@pytest.mark.parametrize(
    ("parts", "met"),
    [([True, True], True), ([True, None], None), ([None, False], False), ([], True)],
)
def test_a_part_that_fails_outweighs_one_that_cannot_tell(
    parts: list[bool | None], met: bool | None
) -> None:
    assert all_met(parts) is met
