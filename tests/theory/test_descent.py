"""Gradient descent against its exact identity, its limit and autograd."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.theory import Trajectory, descend, diagonal_head, linear_network, whitened_network
from theory.cases import WhitenedSolution, normal, start, vector

examples = settings(max_examples=10, deadline=None)
seeds = st.integers(0, 999)
EPSILON = 2.0**-52


def whitened_descent(rate: float, steps: int, **options) -> Trajectory:
    network, u0, v0 = whitened_network(vector(1.0)), vector(1), vector(0.5)
    return descend(network, u0, v0, 1e-4, rate=rate, steps=steps, **options)


@examples
@given(seeds, st.floats(1e-3, 0.3), st.sampled_from([0.9, 1e-2, 1e-16]))
def test_each_step_changes_the_conserved_quantity_by_its_factor(
    seed: int, rate: float, alpha: float
) -> None:
    """Check u^2 - v^2 <- (u^2 - v^2)(1 - rate^2 g^2), up to the rounding of u^2 and v^2."""
    network = diagonal_head(normal(6, 3, 2, seed=seed), normal(6, 3, 2, seed=seed + 1))
    path = descend(network, *start(4, seed=seed), alpha, rate=rate, steps=20)
    assert path.finished and len(path.time) == 21
    c = path.u**2 - path.v**2
    g = torch.stack([network.g(z) for z in path.z])
    expected = (c * (1 - rate**2 * g**2))[:-1]
    size = (path.u**2 + path.v**2)[1:]
    assert bool(((c[1:] - expected).abs() <= 8 * EPSILON * size).all())


@examples
@given(seeds)
def test_steps_are_those_of_autograd_on_the_loss(seed: int) -> None:
    x, target = normal(6, 3, seed=seed), normal(6, seed=seed + 1)
    u0, v0 = start(3, seed=seed)
    copies = u0.clone(), v0.clone()
    path = descend(linear_network(x, target), u0, v0, 0.5, rate=0.1, steps=10)
    assert torch.equal(u0, copies[0]) and torch.equal(v0, copies[1])
    u, v = 0.5 * u0, 0.5 * v0
    for step in range(11):
        torch.testing.assert_close(path.u[step], u)
        torch.testing.assert_close(path.v[step], v)
        assert float(path.time[step]) == pytest.approx(step * 0.1 / math.log(2))
        u, v = u.detach().requires_grad_(), v.detach().requires_grad_()
        loss = ((x * u * v).sum(1) - target).square().mean() / 2
        assert float(path.loss[step]) == pytest.approx(float(loss.detach()))
        du, dv = torch.autograd.grad(loss, (u, v))
        u, v = (u - 0.1 * du).detach(), (v - 0.1 * dv).detach()
    torch.testing.assert_close(path.z, path.u * path.v)
    assert path.gradient_evaluations == 10 and path.log_alpha == math.log(0.5)


def test_descent_tends_to_the_flow_at_first_order_in_the_rate() -> None:
    exact = WhitenedSolution(1.0, 1.0, 0.5, -4)
    crossing = exact.time(1e-2)
    logs, times = [], []
    for rate, steps in ((0.04, 200), (0.02, 400), (0.01, 800)):  # all until t = 8
        path = whitened_descent(rate, steps)
        logs.append(math.log(float(path.z[-1])) - math.log(exact.z(float(path.time[-1]))))
        times.append(path.crossings[0].time - crossing if path.crossings else math.nan)
    assert logs[0] / logs[1] == pytest.approx(2, abs=0.15)
    assert logs[1] / logs[2] == pytest.approx(2, abs=0.08)
    assert times[0] / times[1] == pytest.approx(2, abs=0.15)
    assert abs(times[2]) < 1e-2


@pytest.mark.parametrize("sign", [1, -1])
def test_crossings_say_when_and_how(sign: int) -> None:
    network = whitened_network(vector(sign * 1.0, 0.0))
    path = descend(network, vector(1, 1), vector(0.5, 0.2), 1e-4, rate=0.01, steps=1200)
    (crossing,) = path.crossings
    assert (crossing.coordinate, crossing.entered, crossing.sign) == (0, True, sign)
    step = crossing.time * -math.log(1e-4) / 0.01
    before, after = path.z[math.floor(step), 0].abs(), path.z[math.ceil(step), 0].abs()
    assert before < 1e-2 <= after
    # evenly in log |z| between the two steps
    share = math.log(1e-2 / before) / math.log(after / before)
    assert step % 1 == pytest.approx(share, abs=1e-6)
    assert path.finished and path.message == "1 coordinate became active in 1200 steps"


def test_a_coordinate_that_falls_below_the_threshold_is_reported() -> None:
    path = descend(
        whitened_network(vector(0.0)), vector(1.0), vector(0.5), 0.9, rate=0.1, steps=2000
    )
    assert [(c.entered, c.sign) for c in path.crossings][-1] == (False, 1)


def test_divergence_keeps_what_came_before() -> None:
    path = whitened_descent(5.0, 500)
    assert not path.finished
    assert "diverged at step" in path.message and "lower the rate" in path.message
    assert 1 < len(path.time) < 500
    assert bool(path.z.isfinite().all()) and bool(path.u.isfinite().all())
    assert path.gradient_evaluations == len(path.time)


def test_records_are_every_few_steps_and_at_the_last() -> None:
    path, whole = whitened_descent(0.01, 25, every=10), whitened_descent(0.01, 25)
    assert torch.equal(path.time, whole.time[[0, 10, 20, 25]])
    assert torch.equal(path.z, whole.z[[0, 10, 20, 25]])


def test_descent_stops_once_enough_coordinates_are_active() -> None:
    whole = whitened_descent(0.01, 1200)
    path = whitened_descent(0.01, 1200, stop_after=1)
    assert path.finished and path.crossings == whole.crossings
    assert path.gradient_evaluations == len(path.time) - 1 < 1200
    assert float(path.z[-1]) >= 1e-2 > float(path.z[-2])


@pytest.mark.parametrize(
    ("rate", "steps", "every"),
    [(0.0, 1, 1), (-1.0, 1, 1), (math.nan, 1, 1), (0.1, 0, 1), (0.1, 3, 0)],
)
def test_no_steps_are_refused(rate: float, steps: int, every: int) -> None:
    with pytest.raises(ValueError, match="above 0"):
        whitened_descent(rate, steps, every=every)


@pytest.mark.parametrize("alpha", [0.0, -1e-3, 1.0, 2.0, math.nan])
def test_an_alpha_outside_0_to_1_is_refused(alpha: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        descend(whitened_network(vector(1.0)), vector(1.0), vector(0.0), alpha, rate=0.1, steps=1)


def test_starts_that_do_not_fit_are_refused() -> None:
    network = whitened_network(vector(1.0, 2.0))
    with pytest.raises(ValueError, match="1 entries, the network 2"):
        descend(network, vector(1.0), vector(0.0), 0.1, rate=0.1, steps=1)
