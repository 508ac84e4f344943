"""Stored runs of the toys in closed form, at any alpha.

The whitened diagonal linear network, L = 1/2 sum (z - z*)^2 from u = alpha, v = 0, follows logistic
curves up to terms of order alpha^2: z = z* / (1 + exp(-2 |z*| (t - t0))) with
|z*| exp(-2 |z*| t0) = alpha^2 / 4. Coordinates win in the order of |z*|, at T = 1 / |z*|.
"""

import math

import numpy as np
import xarray as xr

from rankscope.lab.papers.boix2023.stages import error_dataset, stages_in_flows

THRESHOLD = 1e-3
GOAL, STAGES = np.array([2.0, -0.25, 0.02, -1.0, 0.5, 0.02]), 4
ALPHAS = (-2.0, -8.0, -64.0, -300.0, -1000.0)  # log10


def target(stages: int, p: int) -> np.ndarray:
    """z* of 2p coordinates, K-Q first: `stages` large ones, signs and kinds mixed, others tiny."""
    z = np.full(2 * p, 0.02)
    chosen = np.random.default_rng(0).permutation(2 * p)[:stages]
    z[chosen] = np.geomspace(2, 0.2, stages) * (-1.0) ** np.arange(stages)
    return z


def coordinates(p: int) -> dict[str, object]:
    kinds = ["kq"] * p + ["vo"] * p
    index = [*range(p), *range(p)]
    return {
        "coordinate": [f"l0.h0.{kind}.{i}" for kind, i in zip(kinds, index, strict=True)],
        "layer": ("coordinate", [0] * 2 * p),
        "head": ("coordinate", [0] * 2 * p),
        "kind": ("coordinate", kinds),
        "index": ("coordinate", index),
    }


def flow_run(goal: np.ndarray, log10_alpha: float, *, end: float = 6.0) -> xr.Dataset:
    L = -log10_alpha * math.log(10)
    size, sign = abs(goal), np.sign(goal)
    middle = (np.log(4 * size) + 2 * L) / (2 * size)  # t0, in plain time
    crossing = (middle + np.log(THRESHOLD / (size - THRESHOLD)) / (2 * size)) / L
    # A solver's steps: many where something moves.
    moves = [
        t / L + np.linspace(-15, 15, 60) / (2 * s * L) for t, s in zip(middle, size, strict=True)
    ]
    time = np.unique(np.concatenate([np.linspace(0, end, 200), *moves]))
    time = time[(time >= 0) & (time <= end)]
    log_z = np.log(size) - np.logaddexp(0, -2 * size * (time[:, None] * L - middle))
    log_ratio = log_z + math.log(2) + 2 * L  # of 2 z / alpha^2 = sinh(2 y)
    y = sign * np.logaddexp(log_ratio, np.logaddexp(2 * log_ratio, 0) / 2) / 2
    z = sign * np.exp(log_z)
    order = [i for i in np.argsort(crossing) if 0 < crossing[i] <= end]
    return xr.Dataset(
        {
            "z": (("time", "coordinate"), z),
            "y": (("time", "coordinate"), y),
            "loss": ("time", ((z - goal) ** 2).sum(1) / 2),
            "crossing_time": ("crossing", crossing[order]),
            "crossing_coordinate": ("crossing", np.array(order, dtype=int)),
            "crossing_entered": ("crossing", np.ones(len(order), dtype=np.int8)),
            "crossing_sign": ("crossing", sign[order].astype(int)),
        },
        coords={"time": time, **coordinates(len(goal) // 2)},
        attrs={"log10_alpha": log10_alpha, "finished": True},
    )


def algorithm_run(goal: np.ndarray, stages: int) -> xr.Dataset:
    """Stages 0 .. `stages` of Algorithm 1; stage k begins as its winner becomes active."""
    order = np.argsort(-abs(goal), kind="stable")
    times = np.concatenate([[0.0], 1 / abs(goal[order])])[: stages + 2]
    winner = np.concatenate([[-1], order[:stages]])
    active = np.arange(stages + 1)[:, None] > np.argsort(order)[None]  # (stage, coordinate)
    z = np.where(active, goal, 0.0)
    grown = np.minimum(times[:-1, None] * abs(goal), 1.0)
    return xr.Dataset(
        {
            "stage_time": ("stage", times[:-1]),
            "stage_until": ("stage", times[1:]),
            "stage_margin": ("stage", np.diff(times)),
            # e-foldings: 1 / (2 |z*|) for the drive |z*|, 2 / (4 |z*|) for 4 |z*|, the Hessian of
            # u -> (s u^2 - z*)^2 / 2
            "stage_transition": ("stage", times[:-1]),
            "stage_winner": ("stage", winner),
            "stage_tied": ("stage", [0] * (stages + 1)),
            "stage_sign": ("stage", np.sign([0, *goal[order[:stages]]]).astype(int)),
            "stage_loss": ("stage", ((z - goal) ** 2).sum(1) / 2),
            "stage_z": (("stage", "coordinate"), z),
            "stage_b": (("stage", "coordinate"), 1 - np.sign(goal) * grown),
        },
        coords={"stage": np.arange(stages + 1), **coordinates(len(goal) // 2)},
    )


def full_run(
    sizes: np.ndarray, log10_alpha: float = -4.0, *, end: float = 6.0, points: int = 600
) -> xr.Dataset:
    """Singular values of logistic growth to `sizes` (product K-Q then V-O, k), each descending."""
    L = -log10_alpha * math.log(10)
    time = np.linspace(0, end, points)
    S = sizes / (1 + np.exp(-2 * sizes * (time[:, None, None] * L - half_rise(sizes, L) * L)))
    return xr.Dataset(
        {
            "singular_values": (("time", "product", "k"), S),
            "loss": ("time", ((S - sizes) ** 2).sum((1, 2)) / 2),
        },
        coords={"time": time, "product": ["kq", "vo"]},
        attrs={"log10_alpha": log10_alpha},
    )


def half_rise(sizes: np.ndarray, L: float) -> np.ndarray:
    return (np.log(4 * sizes) + 2 * L) / (2 * sizes * L)


def rises(sizes: np.ndarray, log10_alpha: float = -4.0) -> xr.Dataset:
    """When those values pass 10%, 50% and 90%: logistic curves take log 9 from one to the next."""
    L = -log10_alpha * math.log(10)
    half, wing = half_rise(sizes, L), math.log(9) / (2 * sizes * L)
    variables = {"half_rise": half, "rise_10": half - wing, "rise_90": half + wing}
    return xr.Dataset(
        {name: (("product", "k"), values) for name, values in variables.items()},
        coords={"product": ["kq", "vo"]},
    )


def activation_error_table(goal: np.ndarray, stages: int, alphas: list[float]) -> xr.Dataset:
    flows = {log10_alpha: flow_run(goal, log10_alpha) for log10_alpha in alphas}
    return error_dataset(stages_in_flows(algorithm_run(goal, stages), flows))


def perturbation_run(goal: np.ndarray) -> xr.Dataset:
    """At start time s the coordinates with T < s are active; trial j is off by 0.05 (1 + j/10).

    Linearised at z*, a perturbation decays as exp(-2 |z*| t).
    """
    starts = np.tile([0.8, 1.5, 2.2, 3.1, 4.5], 3)
    time = np.concatenate([[0.0], np.geomspace(0.1, 1000, 200)])
    active = 1 / abs(goal) < starts[:, None]  # (trial, coordinate)
    start = 0.05 * (1 + np.arange(15) / 10)[:, None] * np.cos(np.arange(len(goal)))
    shift = start[:, None] * np.exp(-0.04 * abs(goal) * time[:, None])
    unperturbed = np.where(active, goal, np.nan)[:, None].repeat(len(time), 1)
    return xr.Dataset(
        {
            "perturbed_z": (("trial", "time", "coordinate"), unperturbed + shift),
            "unperturbed_z": (("trial", "time", "coordinate"), unperturbed),
            "distance": (
                ("trial", "time"),
                np.sqrt(np.nansum(np.where(active[:, None], shift, np.nan) ** 2, -1)),
            ),
        },
        coords={
            "time": time,
            **coordinates(len(goal) // 2),
            "start_time": ("trial", starts),
            "noise": ("trial", ["independent"] * 5 + ["tied"] * 5 + ["independent"] * 5),
            "kind": ("trial", ["plateau"] * 10 + ["newly active"] * 5),
        },
    )
