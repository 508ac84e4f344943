import math

import pytest

from rankscope.lab.papers.boix2023.figures.axes import log_inverse, power_of_ten


@pytest.mark.parametrize(
    ("exponent", "text"), [(-8, "-8"), (-1000.0, "-1000"), (-10000.0, "-10000"), (-0.5, "-0.5")]
)
def test_powers_of_ten(exponent: float, text: str) -> None:
    assert power_of_ten(exponent) == f"$10^{{{text}}}$"


def test_log_inverse_agrees_where_alpha_is_a_float_and_goes_on_where_it_is_not() -> None:
    assert log_inverse(-8) == pytest.approx(math.log(1 / 1e-8))
    assert log_inverse(-10000.0) == pytest.approx(10000 * math.log(10))
