"""Assumptions 4.2-4.4 on networks whose stages and curvatures are known in closed form."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from rankscope.theory import DiagonalNetwork, incremental, linear_network, whitened_network
from rankscope.theory.assumptions import (
    check_noise_robustness,
    check_nondegeneracy,
    check_return_to_rest,
    check_returns,
    check_strict_minima,
)
from rankscope.theory.perturbation import Trial
from theory.cases import loss_network, seeded, vector

GOAL = vector(-2.0, 1.25, 0.5)


def test_margins_of_the_whitened_network() -> None:
    network = whitened_network(GOAL)
    check = check_nondegeneracy(
        network, list(incremental(network, 3)), vector(1, 1, 1), vector(0, 0, 0)
    )
    # T_k = 1 / |z*| is 0.5, 0.8, 2; the last winner has no rival
    assert check.holds and "holds" in check.sentence
    assert check.details["margin"] == pytest.approx((math.inf, 0.3, 1.2, math.inf))
    assert check.value == pytest.approx(0.3 / 0.5)


def test_a_tie_is_a_failure_of_nondegeneracy() -> None:
    network = whitened_network(vector(1.0, -1.0, 0.3))
    check = check_nondegeneracy(
        network, list(incremental(network, 1)), vector(1, 1, 1), vector(0, 0, 0)
    )
    assert not check.holds and check.value < check.bound
    assert "stage 1 has no unique winner" in check.sentence


def test_equal_weights_at_the_start_are_a_failure() -> None:
    network = whitened_network(GOAL)
    u0, v0 = vector(1, 1, -1), vector(0.5, 0.5, 1)
    check = check_nondegeneracy(network, list(incremental(network, 3)), u0, v0)
    assert not check.holds and "|u0| = |v0|" in check.sentence


def leaving(last_drive: float) -> tuple[DiagonalNetwork, Tensor]:
    """Return a linear network in which coordinate 1 leaves with the drive -`last_drive`.

    Its inputs have covariance A; coordinates 0 and 2 rest.
    """
    A = torch.tensor([[1.0, 0.8, 0.0], [0.8, 1.0, 0.5], [0.0, 0.5, 1.0]], dtype=torch.float64)
    x, best = torch.linalg.cholesky(A).T * math.sqrt(3), vector(1, 0, 1)
    r = A @ best - vector(0, last_drive, 0)
    return linear_network(x, torch.linalg.solve(x.T, 3 * r)), best


@pytest.mark.parametrize(("drive", "holds"), [(0.3, True), (0.0, False)])
def test_the_drive_of_a_coordinate_that_left_must_not_be_zero(drive: float, holds: bool) -> None:
    network, best = leaving(drive)
    stage = list(incremental(network, 1))[1]
    stages = [replace(stage, z=best, left=(1,), margin=1.0)]
    check = check_nondegeneracy(network, stages, vector(1, 1, 1), vector(0, 0, 0))
    largest = float(network.g(torch.zeros_like(best)).abs().max())
    assert check.details["left_drive"] == pytest.approx((drive / largest,), abs=1e-12)
    assert check.holds == holds


def test_curvature_of_the_whitened_network() -> None:
    network = whitened_network(GOAL)
    check = check_strict_minima(network, list(incremental(network, 3)), radius=1e-3)
    # L = (s u^2 - z*)^2 / 2 has second derivative 4 |z*| at rest
    expected = (math.inf, 8.0, 5.0, 2.0)
    assert check.holds
    assert check.details["hessian_u"] == pytest.approx(expected)
    assert check.details["constant"] == pytest.approx(
        tuple(curvature / 2 for curvature in expected), rel=2e-3
    )
    assert check.value == pytest.approx(2.0 / 8.0)


def test_the_constant_at_a_distance_is_the_worse_direction() -> None:
    network = whitened_network(vector(1.0))
    check = check_strict_minima(network, list(incremental(network, 1)), radius=0.5)
    # ((1 - r)^2 - 1)^2 / 2 / r^2 = (2 - r)^2 / 2
    assert check.details["constant"][1] == pytest.approx(1.5**2 / 2)


def test_a_flat_valley_is_a_failure_and_noise_along_it_stays() -> None:
    network = loss_network(lambda z: (z[0] + z[1] - 2).square() / 2, 2)
    flat = [replace(next(incremental(network, 1)), z=vector(1, 1))]
    check = check_strict_minima(network, flat)
    assert not check.holds and "stage 0 does not rest at a strict minimum" in check.sentence
    assert check.details["hessian_u"] == pytest.approx((0.0,), abs=1e-12)
    check = check_return_to_rest(network, flat, 100.0, generator=seeded())
    assert not check.holds and "tied noise at stage 0 is still at" in check.sentence
    assert min(check.details["tied"] + check.details["independent"]) > 0.05


def test_a_saddle_is_a_failure() -> None:
    network = loss_network(lambda z: (z[0] - 1).square() - (z[1] - 1).square(), 2)
    saddle = replace(next(incremental(network, 1)), z=vector(1, 1))
    check = check_strict_minima(network, [saddle])
    assert not check.holds and check.value == pytest.approx(-1)
    assert check.details["constant"][0] < 0


def test_a_stage_that_did_not_come_to_rest_is_a_failure() -> None:
    network = whitened_network(GOAL)
    stages = [replace(stage, converged=False) for stage in incremental(network, 1)]
    assert not check_strict_minima(network, stages).holds
    assert not check_noise_robustness(network, stages, generator=seeded()).holds
    assert not check_return_to_rest(network, stages, 1.0, generator=seeded()).holds


def test_noise_does_not_lead_away_in_the_whitened_network() -> None:
    network = whitened_network(GOAL)
    stages = list(incremental(network, 3))
    check = check_noise_robustness(network, stages, generator=seeded(), draws=1)
    assert check.holds and check.value < 1e-4 and len(check.details["reached"]) == 4


def bistable() -> DiagonalNetwork:
    """Return a network with two wells, at z = (1/2, 3/2) and (3/2, 3/2).

    Once z_1 has grown, z_0 = 1 is a ridge between them.
    """

    def loss(z: Tensor) -> Tensor:
        x = z[0] - 1
        return (1 - 2 * z[1]) * x.square() / 2 + 2 * x**4 + (z[1] - 1).square() / 4

    return loss_network(loss, 2)


@pytest.mark.parametrize("well", [0.5, 1.5])
def test_noise_that_decides_between_two_wells_is_a_failure(well: float) -> None:
    network = bistable()
    zero, first = list(incremental(network, 1))
    assert first.z.tolist() == pytest.approx([1.0, 0.0])
    wells = torch.tensor([well, 1.5], dtype=torch.float64)
    assert float(network.g(wells).abs().max()) < 1e-12
    second = replace(first, index=2, winner=1, drive=0.5, z=wells)
    check = check_noise_robustness(network, [zero, first, second], generator=seeded(), draws=3)
    assert not check.holds and "elsewhere than stage 2" in check.sentence
    other = torch.tensor([2 - well, 1.5], dtype=torch.float64)
    apart = float((other.sqrt() - second.u).norm() / second.u.norm())
    assert check.details["reached"][1] < 1e-3
    assert check.details["reached"][2] == pytest.approx(apart, rel=1e-3)


@pytest.mark.parametrize(("time", "holds"), [(0.4, False), (2.0, True)])
def test_what_is_left_of_noise_on_the_whitened_network(time: float, holds: bool) -> None:
    network = whitened_network(vector(1.5))
    check = check_return_to_rest(network, list(incremental(network, 1)), time, generator=seeded(5))
    generator = seeded(5)
    torch.randn(2, 1, generator=generator, dtype=torch.float64)  # independent noise comes first
    noise = 0.05 * float(torch.randn(2, 1, generator=generator, dtype=torch.float64)[0])
    start = (math.sqrt(1.5) + noise) ** 2
    # dz/dt = 2 z (z* - z)
    end = 1.5 / (1 + (1.5 / start - 1) * math.exp(-3 * time))
    assert check.details["tied"][1] == pytest.approx((end - 1.5) / (start - 1.5), abs=3e-3)
    assert check.details["tied"][0] == 0  # nothing there to perturb
    assert check.holds == holds


def trial_with(shares: list[float]) -> Trial:
    """Return a trial with one perturbed coordinate at distances `shares` and one newly active."""
    z = torch.stack([vector(*shares), torch.linspace(0, 1, len(shares), dtype=torch.float64)], 1)
    mask = torch.tensor([True, False])
    epochs = tuple(range(len(shares)))
    return Trial("plateau", "tied", 0.05, 2.0, epochs, mask, z, torch.zeros_like(z))


def test_returns_are_judged_by_the_worst_trial() -> None:
    good = trial_with([2.0, 0.5, 0.02])
    check = check_returns([good])
    assert check.holds and check.value == pytest.approx(0.01)
    assert check.details["share_all"] == pytest.approx((math.hypot(0.02, 1) / 2,))
    check = check_returns([good, trial_with([1.0, 0.01, 0.06])])
    assert not check.holds and check.value == pytest.approx(0.06)
    assert "tied noise at time 2 (plateau) is still at 0.06" in check.sentence
