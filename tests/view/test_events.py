"""Jumps and other events in lines that are known."""

import numpy as np

from rankscope.view.events import jumps


def test_a_step_beyond_the_noise_is_a_jump() -> None:
    values = np.cumsum(np.random.default_rng(0).normal(0, 0.01, 200)) + 5
    assert [place for place, _ in jumps(values + 3 * (np.arange(200) >= 120))] == [120]


def test_smooth_short_and_constant_lines_have_none() -> None:
    for values in (np.linspace(1, 2, 100), np.ones(50), np.arange(4.0), np.full(20, np.nan)):
        assert list(jumps(values)) == []
