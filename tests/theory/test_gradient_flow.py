"""Gradient flow against the whitened network's closed form, Algorithm 1 and its symmetries."""

import math
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import RK45, OdeSolver, solve_ivp
from torch import Tensor

from rankscope.theory import (
    Crossing,
    DiagonalNetwork,
    Trajectory,
    flow,
    linear_network,
    square_error,
    whitened_network,
)
from rankscope.theory.fields import LogField
from rankscope.theory.gradient_flow import March
from rankscope.theory.reduction import Reduction
from theory.cases import (
    LOG10,
    WhitenedSolution,
    attention_task,
    correlated,
    leaving,
    reference_stages,
    start,
    vector,
)

few = settings(max_examples=3, deadline=None)
seeds = st.integers(0, 999)
OPTIMUM = (1.0, -0.5, 0.25, 0.8)


def solutions(log10_alpha: int, *, seed: int = 0) -> list[WhitenedSolution]:
    u0, v0 = (weights.tolist() for weights in start(len(OPTIMUM), seed=seed))
    return [WhitenedSolution(a, u, v, log10_alpha) for a, u, v in zip(OPTIMUM, u0, v0, strict=True)]


@cache
def plain_flow(log10_alpha: int) -> Trajectory:
    return whitened_flow(log10_alpha)


def whitened_flow(log10_alpha: int, *, seed: int = 0, **options) -> Trajectory:
    u0, v0 = start(len(OPTIMUM), seed=seed)
    return flow(whitened_network(vector(*OPTIMUM)), u0, v0, log10_alpha * LOG10, 5.0, **options)


def order(path: Trajectory) -> list[tuple[int, bool, int]]:
    return [(crossing.coordinate, crossing.entered, crossing.sign) for crossing in path.crossings]


def crossing_times(path: Trajectory) -> Tensor:
    return torch.tensor([crossing.time for crossing in path.crossings], dtype=torch.float64)


@pytest.mark.parametrize("log10_alpha", [-2, -8, -64, -300, -1000, -10000])
def test_activation_times_are_the_closed_form(log10_alpha: int) -> None:
    path = plain_flow(log10_alpha)
    expected = sorted((s.time(1e-2), i) for i, s in enumerate(solutions(log10_alpha)))
    signs = np.sign(OPTIMUM)
    assert order(path) == [(i, True, signs[i]) for _, i in expected]
    # `tolerance` is a local error in y, and y's error is that in time x |g| x log(1/alpha)
    times = torch.tensor([time for time, _ in expected], dtype=torch.float64)
    allowed = 1e-2 / (-log10_alpha * LOG10)
    torch.testing.assert_close(crossing_times(path), times, rtol=0, atol=allowed)
    assert path.finished and path.message == "4 coordinates became active by time 5"


def test_a_smaller_tolerance_is_more_exact() -> None:
    path = whitened_flow(-8, tolerance=1e-5)
    times = vector(*sorted(s.time(1e-2) for s in solutions(-8)))
    torch.testing.assert_close(crossing_times(path), times, rtol=0, atol=2e-6)


@pytest.mark.parametrize(("log10_alpha", "seed"), [(-1, 0), (-1, 1), (-8, 2), (-8, 3), (-10000, 1)])
def test_the_path_is_the_closed_form(log10_alpha: int, seed: int) -> None:
    times = torch.linspace(0, 5, 23, dtype=torch.float64)
    path = whitened_flow(log10_alpha, seed=seed, times=times)
    assert torch.equal(path.time, times)
    expected = vector(
        *(s.z(t) for t in times.tolist() for s in solutions(log10_alpha, seed=seed))
    ).view(23, 4)
    torch.testing.assert_close(path.z, expected, rtol=2e-2, atol=1e-9)
    torch.testing.assert_close(path.loss, (path.z - vector(*OPTIMUM)).square().sum(1) / 2)
    u0, v0 = start(4, seed=seed)
    alpha = math.exp(log10_alpha * LOG10)
    torch.testing.assert_close(path.u[0], alpha * u0)
    torch.testing.assert_close(path.v[0], alpha * v0)
    torch.testing.assert_close(path.u * path.v, path.z)


def test_the_distance_to_the_limit_times_is_of_order_one_over_log_alpha() -> None:
    """Check that log(1/alpha) (t_k - T_k), T_k = 1 / |z*|_(k), is one constant at every alpha."""
    limit = vector(*sorted(1 / abs(a) for a in OPTIMUM))
    constants = torch.stack(
        [
            -power * LOG10 * (crossing_times(plain_flow(power)) - limit)
            for power in (-64, -300, -1000, -10000)
        ]
    )
    assert bool((constants.abs() > 0.1).all())
    torch.testing.assert_close(constants, constants[:1].expand(4, 4), rtol=0, atol=2e-2)


@pytest.mark.parametrize(("name", "powers"), [("three", (-64, -1000)), ("five", (-64, -300))])
def test_flow_agrees_with_algorithm_1_where_a_coordinate_leaves_and_comes_back(
    name: str, powers: tuple[int, int]
) -> None:
    network = leaving(name)
    stages = reference_stages(network.x.numpy(), network.target.numpy())
    until = 1.3 * stages[-1].time
    events = [event for s in stages for event in ((s.winner, True), *((i, False) for i in s.left))]
    ends = [stage.time for stage in stages[1:]] + [until]
    middles = vector(*((stage.time + end) / 2 for stage, end in zip(stages, ends, strict=True)))
    constants = []
    for power in powers:
        path = flow(network, *start(network.p), power * LOG10, until, times=middles)
        assert [(c.coordinate, c.entered) for c in path.crossings] == events
        firsts = dict.fromkeys(stage.winner for stage in stages)
        assert [c.coordinate for c in path.activations] == list(firsts)
        entries = [c for c in path.crossings if c.entered]
        assert [c.sign for c in entries] == [np.sign(s.z[s.winner]) for s in stages]
        delays = [c.time - s.time for c, s in zip(entries, stages, strict=True)]
        constants.append([-power * LOG10 * delay for delay in delays])
    # t_k - T_k = c_k / log(1/alpha), the same c_k at each alpha
    torch.testing.assert_close(vector(*constants[0]), vector(*constants[1]), rtol=2e-2, atol=5e-2)
    # and between activations z rests at theta^k
    expected = torch.from_numpy(np.stack([stage.z for stage in stages]))
    torch.testing.assert_close(path.z, expected, rtol=1e-4, atol=1e-4)


@few
@given(
    seeds,
    st.permutations(range(3)),
    st.lists(st.sampled_from([-1.0, 1.0]), min_size=3, max_size=3),
    st.booleans(),
)
def test_permuting_flipping_and_swapping_weights_does_so_to_the_flow(
    seed: int, places: list[int], signs: list[float], swap: bool
) -> None:
    """Apply (u, v) -> (-u, -v) and (u, v) -> (v, u) to permuted coordinates (App. A.3)."""
    network, weights = correlated(3, seed=seed), start(3, seed=seed)
    permuted = linear_network(network.x[:, places], network.target)
    u0, v0 = (vector(*signs) * part[places] for part in weights)
    options = {"times": torch.linspace(0, 4, 9, dtype=torch.float64), "tolerance": 1e-4}
    path = flow(network, *weights, -8 * LOG10, 4, **options)
    other = flow(permuted, *((v0, u0) if swap else (u0, v0)), -8 * LOG10, 4, **options)
    torch.testing.assert_close(other.z, path.z[:, places], rtol=2e-3, atol=1e-6)
    assert [(places[i], *rest) for i, *rest in order(other)] == order(path)
    torch.testing.assert_close(crossing_times(other), crossing_times(path), rtol=1e-4, atol=0)
    u, v = (other.v, other.u) if swap else (other.u, other.v)
    torch.testing.assert_close(u, vector(*signs) * path.u[:, places], rtol=2e-3, atol=1e-6)
    torch.testing.assert_close(v, vector(*signs) * path.v[:, places], rtol=2e-3, atol=1e-6)


@few
@given(seeds, st.floats(0.2, 5))
def test_scaling_the_loss_scales_time(seed: int, factor: float) -> None:
    network, (u0, v0) = correlated(3, seed=seed), start(3, seed=seed)
    scaled = DiagonalNetwork(
        network.h, lambda p, t: factor * square_error(p, t), (network.x, network.target), 3
    )
    times = torch.linspace(0, 4, 9, dtype=torch.float64)
    path = flow(network, u0, v0, -8 * LOG10, 4, times=times, tolerance=1e-4)
    other = flow(scaled, u0, v0, -8 * LOG10, 4 / factor, times=times / factor, tolerance=1e-4)
    known = min(len(path.time), len(other.time))  # 4 / factor may round to below the last time
    assert known >= 8
    torch.testing.assert_close(other.z[:known], path.z[:known], rtol=2e-3, atol=1e-6)
    assert order(other) == order(path)
    torch.testing.assert_close(
        crossing_times(other) * factor, crossing_times(path), rtol=1e-4, atol=0
    )


@pytest.mark.parametrize(
    ("network", "u0", "v0"),
    [
        (correlated(4, seed=3), *start(4)),
        (leaving("three"), *start(3)),
        (attention_task(0, samples=20), *start(6)),
        (whitened_network(vector(1.0, -0.5)), vector(1, 0), vector(0, 1)),
    ],
    ids=["correlated", "leaving", "head", "zeros in the start"],
)
def test_both_coordinate_systems_follow_an_explicit_solver(
    network: DiagonalNetwork, u0: Tensor, v0: Tensor
) -> None:
    """Compare with Eq. 4 of the weights, solved with DOP853."""

    def slope(time: float, state: np.ndarray) -> np.ndarray:
        u, v = torch.from_numpy(state).chunk(2)
        g = network.g(u * v)
        return 3 * LOG10 * torch.cat([v * g, u * g]).numpy()

    begin, times = 1e-3 * torch.cat([u0, v0]).numpy(), torch.linspace(0, 6, 25, dtype=torch.float64)
    known = solve_ivp(slope, (0, 6), begin, "DOP853", times.numpy(), rtol=1e-11, atol=1e-14).y
    u, v = torch.from_numpy(known.T.copy()).chunk(2, -1)
    path, other = (
        flow(network, u0, v0, -3 * LOG10, 6, coordinates=which, times=times, tolerance=tolerance)
        for which, tolerance in (("y", 1e-5), ("uv", 1e-9))
    )
    for followed in (path, other):
        torch.testing.assert_close(followed.z, u * v, rtol=1e-3, atol=1e-8)
        torch.testing.assert_close(followed.u, u, rtol=1e-3, atol=1e-7)
        torch.testing.assert_close(followed.v, v, rtol=1e-3, atol=1e-7)
    torch.testing.assert_close(path.y, other.y, rtol=1e-3, atol=5e-3)
    assert len(path.activations) >= 2 and order(path) == order(other)
    torch.testing.assert_close(crossing_times(path), crossing_times(other), rtol=1e-4, atol=0)


@pytest.mark.parametrize(
    "network", [whitened_network(vector(*OPTIMUM)), attention_task(0), attention_task(1)]
)
def test_integrated_weights_conserve_the_difference_of_their_squares(
    network: DiagonalNetwork,
) -> None:
    """Check Eq. 5 of boix2023 where it is not built in; u^2 and v^2 grow to 1e4 times u^2 - v^2."""
    path = flow(network, *start(network.p), -2 * LOG10, 5.0, coordinates="uv")
    conserved = path.u.square() - path.v.square()
    assert path.finished and float((path.u.square() / conserved.abs()).max()) > 3e3
    drift = float((conserved / conserved[0] - 1).abs().max())
    assert 0 < drift < 1e-8


def test_y_of_integrated_weights_is_known_where_u_and_v_round_to_one_number() -> None:
    """Compare with asinh(2 z* / c) / 2, which z = (c/2) sinh 2y gives for y at rest."""
    path = whitened_flow(-9, coordinates="uv", tolerance=1e-8)
    u0, v0 = start(4)
    c = 1e-18 * (u0**2 - v0**2).abs()
    expected = torch.asinh(2 * vector(*OPTIMUM) / c) / 2
    torch.testing.assert_close(path.y[-1], expected, rtol=1e-2, atol=0)


def test_only_the_times_asked_for_are_recorded() -> None:
    path, free = whitened_flow(-8, times=vector(0.5, 1.0, 5.0)), plain_flow(-8)
    assert path.time.tolist() == [0.5, 1.0, 5.0] and path.z.shape == (3, 4)
    assert float(free.time[0]) == 0 and float(free.time[-1]) == 5
    assert bool((free.time.diff() > 0).all())
    assert torch.equal(crossing_times(path), crossing_times(free))


class AtRest(LogField):
    """A field without motion, whose solver's first step has length 1."""

    def solver(self, until: float, tolerance: float) -> OdeSolver:
        return RK45(lambda time, state: 0 * state, 0.0, self.start, until, first_step=1.0)

    def longest_step(self, state: np.ndarray) -> float:
        return math.inf


def test_recorded_times_increase_though_the_last_step_is_as_short_as_rounding() -> None:
    reduction = Reduction.of(*start(len(OPTIMUM)), -8 * LOG10)
    system = AtRest(whitened_network(vector(*OPTIMUM)), reduction, -8 * LOG10)
    march, until = March(system, threshold=1e-2, times=None), math.nextafter(1.0, 2.0)
    march.go(until, tolerance=1e-3)
    assert [time for time, _ in march.recorded] == [0.0, 0.25, 0.5, 0.75, 1.0, until]


def test_the_flow_stops_once_enough_coordinates_are_active() -> None:
    path, whole = whitened_flow(-64, stop_after=2), plain_flow(-64)
    assert path.finished and "2 coordinates became active" in path.message
    assert order(path) == order(whole)[:2]
    assert crossing_times(path)[-1] <= path.time[-1] < crossing_times(whole)[2]
    assert path.gradient_evaluations < whole.gradient_evaluations


def test_a_coordinate_above_the_threshold_from_the_start_is_active_at_once() -> None:
    path = flow(whitened_network(vector(1.0, 0.0)), vector(1, 1), vector(0.5, 0.5), -1.0, 40.0)
    assert path.crossings[:2] == (Crossing(0, 0.0, True, 1), Crossing(1, 0.0, True, 1))
    # z_1 falls: (c/2) sinh 2y with dy/dt = -z; out of the support at its closed form's time
    c = 0.75 * math.exp(-2)

    def y(z: float) -> float:
        return math.asinh(2 * z / c) / 2

    def antiderivative(y: float) -> float:
        return math.log(math.tanh(y)) / c  # of 2 / (c sinh 2y)

    left = antiderivative(y(0.5 * math.exp(-2))) - antiderivative(y(1e-2))
    (crossing,) = path.crossings[2:]
    assert (crossing.coordinate, crossing.entered, crossing.sign) == (1, False, 1)
    assert crossing.time == pytest.approx(left, rel=1e-3)
    assert [crossing.coordinate for crossing in path.activations] == [0, 1]


def test_loss_never_rises_along_the_flow() -> None:
    path = flow(correlated(5, seed=1), *start(5), -64 * LOG10, 20.0)
    assert len(path.activations) >= 3
    assert bool((path.loss.diff() <= 1e-9 * path.loss[0]).all())


def test_evaluations_hardly_grow_as_alpha_falls() -> None:
    at = {power: plain_flow(power).gradient_evaluations for power in (-32, -300)}
    assert at[-300] <= 2 * at[-32]


def test_progress_rises_to_one_and_inputs_are_left_alone() -> None:
    shares: list[float] = []
    u0, v0 = start(4)
    copies = u0.clone(), v0.clone()
    state = torch.get_rng_state()
    flow(whitened_network(vector(*OPTIMUM)), u0, v0, -8 * LOG10, 2, progress=shares.append)
    assert shares == sorted(shares) and shares[-1] == 1.0
    assert torch.equal(u0, copies[0]) and torch.equal(v0, copies[1])
    assert torch.equal(state, torch.get_rng_state())
