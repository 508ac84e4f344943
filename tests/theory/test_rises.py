"""Rise times against the closed form of the logistic curve."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.theory.rises import rise_times

examples = settings(max_examples=25, deadline=None)
TIME = torch.linspace(0, 40, 8001, dtype=torch.float64)


def logistic(rate: float, middle: float, height: float = 1.0) -> torch.Tensor:
    return height * torch.sigmoid(rate * (TIME - middle))


@examples
@given(st.floats(2, 8), st.floats(5, 25), st.floats(1e-6, 1e6))
def test_a_logistic_rise_has_its_known_half_time_and_width(
    rate: float, middle: float, height: float
) -> None:
    rises = rise_times(TIME, logistic(rate, middle, height)[:, None])
    width = 2 * math.log(9) / rate
    assert float(rises.half) == pytest.approx(middle, abs=1e-4)
    assert float(rises.width) == pytest.approx(width, rel=1e-3)
    assert float(rises.start) == pytest.approx(middle - width / 2, abs=1e-3)


@examples
@given(st.floats(0.02, 20), st.floats(0.02, 20), st.booleans())
def test_rises_are_separate_when_further_apart_than_the_wider_one(
    first: float, second: float, slow_first: bool
) -> None:
    rates = (2.0, 4.0) if slow_first else (4.0, 2.0)
    gap = min(first, second)
    values = torch.stack([logistic(rates[0], 8), logistic(rates[1], 8 + gap)], dim=-1)
    width = math.log(9)  # of the rate 2, the wider
    if abs(gap - width) > 0.01:
        assert rise_times(TIME, values).separated == (2 if gap > width else 1)


def test_separation_counts_from_the_first_value_on() -> None:
    middles = (5, 10, 15, 15.5, 25)
    values = torch.stack([logistic(4.0, middle) for middle in middles], dim=-1)
    assert rise_times(TIME, values).separated == 3
    assert rise_times(TIME, values.flip(-1)).separated == 1  # in the wrong order
    assert rise_times(TIME, values[:, :0]).separated == 0


def test_overshoot_does_not_move_the_first_passage() -> None:
    dip = 0.3 * torch.exp(-((TIME - 20) ** 2))
    values = torch.stack([logistic(4.0, 10) + dip, logistic(4.0, 10) - dip], dim=-1)
    rises = rise_times(TIME, values)
    torch.testing.assert_close(rises.half, torch.full((2,), 10.0, dtype=torch.float64))


def test_a_value_that_climbs_twice_is_as_wide_as_both_steps() -> None:
    values = 0.6 * logistic(4.0, 10) + 0.4 * logistic(4.0, 20)
    rises = rise_times(TIME, values[:, None])
    assert 9.9 < float(rises.half) < 10.6
    assert float(rises.width) > 10


def test_what_did_not_rise_or_has_not_settled_is_nan() -> None:
    zero, constant = torch.zeros_like(TIME), torch.ones_like(TIME)
    cut_exponential = torch.exp(TIME - 40)
    sliding = logistic(4.0, 39)
    rises = rise_times(TIME, torch.stack([zero, constant, cut_exponential, sliding], dim=-1))
    assert rises.half.isnan().all() and rises.width.isnan().all()
    assert rises.separated == 0


def test_values_of_rounding_size_do_not_count() -> None:
    values = torch.stack([logistic(4.0, 10), logistic(4.0, 20, 1e-9)], dim=-1)
    assert rise_times(TIME, values).separated == 1
    assert rise_times(TIME, values, floor=1e-10).separated == 2
