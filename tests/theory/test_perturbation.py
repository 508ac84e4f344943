"""Perturbed runs against closed forms and the weights' own equation."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

from rankscope.theory import whitened_network
from rankscope.theory.perturbation import TAU, Noise, Reference, perturbed, trial
from rankscope.theory.reduction import Reduction
from theory.cases import normal, seeded, vector

GOAL = vector(1.5, -1.0, 0.02)
START = normal(2, 3, seed=0)
LOG_ALPHA = -32 * math.log(10)
EPOCH = 0.1
TIED = {"kind": "plateau", "noise": "tied", "std": 0.05}


def reference(until: float = 2.6) -> Reference:
    return Reference.run(whitened_network(GOAL), *START, LOG_ALPHA, until, epoch=EPOCH)


def at_plateau() -> tuple[Reference, int]:
    """Return a run and an epoch with two coordinates at rest (T = 2/3, 1), one waiting (T = 50)."""
    run = reference()
    return run, len(run.y) - 201


def test_newly_active_epochs_are_those_after_a_weight_reaches_tau() -> None:
    reduction = Reduction.of(*START, LOG_ALPHA)
    # Coordinates are independent, and dy/dt = z* until one is active: y is linear.
    wait = (GOAL.sgn() * reduction.y_at(TAU**2) - reduction.y0) / GOAL
    assert reference().newly_active() == tuple(math.ceil(float(t) / EPOCH) for t in wait[:2])


def test_unperturbed_run_is_recorded_at_every_epoch() -> None:
    run = reference()
    torch.testing.assert_close(
        run.time * -LOG_ALPHA, EPOCH * torch.arange(len(run.y), dtype=torch.float64)
    )
    y = Reduction.of(*START, LOG_ALPHA).y0 + GOAL * EPOCH * 100  # all still wait at epoch 100
    torch.testing.assert_close(run.y[100], y)


def test_tied_noise_decays_along_the_logistic_curve() -> None:
    run, epoch = at_plateau()
    epochs = (0, 5, 10, 20, 40)
    result = trial(run, epoch, epochs=epochs, **TIED, generator=seeded(1))
    assert result.perturbed.tolist() == [True, True, False]
    goal = GOAL[:2]
    ratio = goal / result.perturbed_z[0, :2]
    time = EPOCH * torch.tensor(epochs, dtype=torch.float64)[:, None]
    # dz/dt = 2 |z| (z* - z)
    expected = goal / (1 + (ratio - 1) * torch.exp(-2 * goal.abs() * time))
    torch.testing.assert_close(result.perturbed_z[:, :2], expected, rtol=1e-3, atol=0)
    distance = (expected - goal).norm(dim=1)
    assert distance[0] > 0.03
    torch.testing.assert_close(result.distance, distance, rtol=0.01, atol=1e-5)


def test_independent_noise_follows_the_weights_own_equation() -> None:
    run, epoch = at_plateau()
    options = {"noise": "independent", "std": 0.05}
    begun, mask = perturbed(replace(run.reduction, y0=run.y[epoch]), generator=seeded(2), **options)
    u, v = begun.weights(begun.y0)
    goal = GOAL.numpy()

    def slope(time: float, weights: np.ndarray) -> np.ndarray:
        g = goal[:2] - weights[:2] * weights[2:]
        return np.concatenate([weights[2:] * g, weights[:2] * g])

    alive = torch.cat([u[:2], v[:2]]).numpy()
    path = solve_ivp(slope, (0, 2), alive, t_eval=[0, 0.5, 1, 2], rtol=1e-10, atol=1e-12).y
    result = trial(
        run, epoch, kind="plateau", epochs=(0, 5, 10, 20), generator=seeded(2), **options
    )
    expected = torch.from_numpy((path[:2] * path[2:]).T)
    assert mask.tolist() == result.perturbed.tolist() == [True, True, False]
    torch.testing.assert_close(result.perturbed_z[:, :2], expected, rtol=1e-3, atol=0)


@given(seed=st.integers(0, 10**6), noise=st.sampled_from(["independent", "tied"]))
@settings(max_examples=25, deadline=None)
def test_noise_moves_the_weights_above_tau_and_no_others(seed: int, noise: Noise) -> None:
    u, v = vector(1.0, 1e-2, 1e-6, 1e-30) * normal(2, 4, seed=seed)
    state = Reduction.of(2 * u, 2 * v, -math.log(2))
    begun, mask = perturbed(state, noise=noise, std=0.05, generator=seeded(seed + 1))
    large = torch.maximum(u.abs(), v.abs()) > TAU
    assert mask.tolist() == large.tolist() and large[0] and not large[3]
    first, second = 0.05 * normal(2, 4, seed=seed + 1)
    if noise == "independent":
        moved_u, moved_v = begun.weights(begun.y0)
        torch.testing.assert_close(moved_u[mask], (u + first)[mask])
        torch.testing.assert_close(moved_v[mask], (v + second)[mask])
    else:
        z = (u * v).sgn() * (u + first).square()
        torch.testing.assert_close(begun.z(begun.y0)[mask], z[mask])
        assert torch.equal(begun.log_c, state.log_c)
    assert torch.equal(begun.y0[~mask], state.y0[~mask])
    assert torch.equal(begun.log_c[~mask], state.log_c[~mask])


def test_tied_noise_keeps_v_at_s_u_with_the_sign_u_took() -> None:
    run, epoch = at_plateau()
    state = replace(run.reduction, y0=run.y[epoch])
    u, _ = state.weights(state.y0)
    begun, _ = perturbed(state, noise="tied", std=3.0, generator=seeded(4))
    first, _ = 3.0 * normal(2, 3, seed=4)
    moved_u, moved_v = begun.weights(begun.y0)
    assert bool(((u + first) * u < 0)[:2].any())  # the noise turned a weight around
    torch.testing.assert_close(moved_u[:2], (u + first)[:2])
    torch.testing.assert_close(moved_v[:2], (GOAL.sgn() * moved_u)[:2])


def test_a_trial_past_the_end_of_the_reference_is_refused() -> None:
    run = reference(0.1)
    with pytest.raises(ValueError, match="past the end of the reference, which has"):
        trial(run, len(run.y) - 10, epochs=(0, 10), **TIED, generator=seeded())
