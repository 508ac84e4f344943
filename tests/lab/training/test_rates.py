"""Learning-rate schedules at the steps one can check in the head."""

import pytest

from rankscope.lab.training.rates import Constant, Cosine, Drops, total


def test_drops() -> None:
    rate = Drops(at=(10, 20))
    assert [rate(step) for step in (0, 9, 10, 19, 20)] == pytest.approx([1, 1, 0.1, 0.1, 0.01])


def test_cosine_between_its_ends() -> None:
    rate = Cosine(span=100, warm_up=20, floor=0.1)
    assert rate(0) == pytest.approx(1 / 20) and rate(19) == 1.0 and rate(20) == 1.0
    assert rate(60) == pytest.approx(0.55)  # halfway: the mean of peak and floor
    assert rate(100) == pytest.approx(0.1) and rate(500) == pytest.approx(0.1)


def test_totals() -> None:
    assert total(Constant(), 7) == 7
    assert total(Drops(at=(5,)), 10) == pytest.approx(5.5)
    assert total(Cosine(span=1000), 1000) == pytest.approx(500.5)  # trapezium of half a cosine
