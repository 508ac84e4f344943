"""Coordinate y against its defining formulas in decimals of 60 digits and any exponent."""

import math
from decimal import Decimal, localcontext

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rankscope.theory.reduction import LARGEST, Reduction, checked_start
from theory.cases import LOG10, vector

examples = settings(max_examples=25, deadline=None)
sizes = st.floats(1e-3, 1e3)
weights = st.tuples(sizes, st.sampled_from([-1.0, 1.0])).map(math.prod) | st.just(0.0)


def exact_z(c: Decimal, y: float) -> Decimal:
    double = Decimal(y) * 2
    return c / 4 * (double.exp() - (-double).exp())


def plain(log_alpha: float) -> Reduction:
    """Return a reduction with c = alpha^2 and y0 = 0 in each of three coordinates."""
    return Reduction.of(vector(1, 1, 1), vector(0, 0, 0), log_alpha)


@examples
@given(st.lists(st.tuples(weights, weights), min_size=1, max_size=5), st.floats(-30, -0.1))
def test_weights_come_back_from_y(pairs: list[tuple[float, float]], log_alpha: float) -> None:
    assume(all(abs(abs(u) - abs(v)) > 1e-2 * max(abs(u), abs(v)) for u, v in pairs))
    u0, v0 = torch.tensor(pairs, dtype=torch.float64).unbind(1)
    copies = u0.clone(), v0.clone()
    reduction, alpha = Reduction.of(u0, v0, log_alpha), math.exp(log_alpha)
    u, v = reduction.weights(reduction.y0)
    torch.testing.assert_close(u, alpha * u0, rtol=1e-12, atol=0)
    torch.testing.assert_close(v, alpha * v0, rtol=1e-12, atol=0)
    torch.testing.assert_close(reduction.z(reduction.y0), u * v, rtol=1e-10, atol=0)
    torch.testing.assert_close(reduction.dz_dy(reduction.y0), u**2 + v**2, rtol=1e-10, atol=0)
    torch.testing.assert_close(reduction.y_at(u * v), reduction.y0, rtol=1e-10, atol=1e-13)
    assert torch.equal(u0, copies[0]) and torch.equal(v0, copies[1])


def test_nearly_equal_weights_keep_their_product() -> None:
    u0 = vector(3, 0.7, -5)
    v0 = u0 * (1 - 2.0**-40)
    reduction = Reduction.of(u0, v0, -1.0)
    expected = u0 * v0 * math.exp(-2)
    torch.testing.assert_close(reduction.z(reduction.y0), expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("power", [-8, -64, -300, -1000, -10000])
@pytest.mark.parametrize("z", [1e-12, 1e-3, 1.0, -0.3, 250.0])
def test_z_and_y_at_every_alpha(power: int, z: float) -> None:
    reduction = plain(power * LOG10)
    # Compute y of z in floating point, then z of that y in decimals.
    y = reduction.y_at(abs(z)) * math.copysign(1, z)
    with localcontext(prec=60):
        c = Decimal(10) ** (2 * power)
        # y and log c are near 2.3 |power|, and their rounding is the uncertainty of z.
        allowed = 8 * 2.0**-52 * abs(power) * LOG10
        for computed_z, one_y in zip(reduction.z(y).tolist(), y.tolist(), strict=True):
            assert computed_z == pytest.approx(float(exact_z(c, one_y)), rel=allowed)
            assert computed_z == pytest.approx(z, rel=allowed)
        slope = c / 2 * ((2 * Decimal(y[0].item())).exp() + (-2 * Decimal(y[0].item())).exp())
    assert float(reduction.dz_dy(y)[0]) == pytest.approx(float(slope), rel=allowed)


@examples
@given(st.floats(-5e4, 5e4), st.floats(-2.4e4, -0.1))
def test_z_is_odd_and_its_slope_even_and_both_finite(y: float, log_alpha: float) -> None:
    reduction, ys = plain(log_alpha), vector(y, y, y)
    assert torch.equal(reduction.z(-ys), -reduction.z(ys))
    assert torch.equal(reduction.dz_dy(-ys), reduction.dz_dy(ys))
    assert bool(reduction.z(ys).isfinite().all()) and bool((reduction.dz_dy(ys) >= 0).all())


@pytest.mark.parametrize("y", [1e3, 1e10, 1e300, -1e300, math.inf, -math.inf])
def test_a_trial_far_out_stays_finite(y: float) -> None:
    reduction = plain(-8 * LOG10)
    z = reduction.z(vector(y, y, y))
    torch.testing.assert_close(z, torch.full_like(z, math.copysign(LARGEST, y) / 2))
    u, v = reduction.weights(vector(y, y, y))
    assert not bool(u.isnan().any()) and not bool(v.isnan().any())


def test_weights_keep_the_conserved_quantity_and_the_sign_of_the_larger_one() -> None:
    u0, v0 = vector(-2, 0.5, 1), vector(1, -3, 0)
    reduction = Reduction.of(u0, v0, -1.0)
    ys = torch.linspace(-2, 2, 9, dtype=torch.float64)[:, None].expand(9, 3)
    u, v = reduction.weights(ys)
    expected = ((u0**2 - v0**2) * math.exp(-2)).expand(9, 3)
    torch.testing.assert_close(u**2 - v**2, expected)
    torch.testing.assert_close(u * v, reduction.z(ys))
    assert bool((u[:, 0] < 0).all() and (v[:, 1] < 0).all() and (u[:, 2] > 0).all())


def test_y_counts_the_papers_b_down() -> None:
    """Check that log_alpha(u + v) -> 1 - y / log(1/alpha) as alpha -> 0."""
    log_alpha = -1000 * LOG10
    reduction = Reduction.of(vector(1.0), vector(0.2), log_alpha)
    for share in (0.0, 0.25, 0.9):
        y = reduction.y0 + share * 1000 * LOG10
        with localcontext(prec=60):
            c = Decimal(10) ** -2000 * Decimal("0.96")
            total = c.sqrt() * Decimal(float(y)).exp()  # u + v = sqrt(c) e^y
            b = float(total.ln() / Decimal(log_alpha))
        assert b == pytest.approx(1 - share, abs=1e-3)


@pytest.mark.parametrize("log_alpha", [0.0, 0.5, -math.inf, math.inf, math.nan])
def test_an_alpha_outside_0_to_1_is_refused(log_alpha: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        plain(log_alpha)


@pytest.mark.parametrize("v", [2.0, -2.0])
def test_equal_sizes_are_refused(v: float) -> None:
    with pytest.raises(ValueError, match=r"coordinate 1: .*Assumption 4\.2"):
        checked_start(vector(1, 2, 3), vector(0, v, 0))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_starts_that_are_not_finite_are_refused(bad: float) -> None:
    for u0, v0 in [(vector(1, bad), vector(0, 0)), (vector(1, 1), vector(0, bad))]:
        with pytest.raises(ValueError, match="NaN or infinite"):
            checked_start(u0, v0)


def test_starts_are_taken_to_double() -> None:
    u0, v0 = checked_start(torch.ones(2), torch.zeros(2))
    assert u0.dtype == v0.dtype == torch.float64
