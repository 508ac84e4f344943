"""Algorithm 1 on the whitened network, whose stages are T_k = 1 / |z*|, with what resolves them."""

import numpy as np
import xarray as xr

from lab.papers.boix2023.toy_runs import algorithm_run

STAGES = 4
GOAL = np.array([2.0, -0.25, 0.02, -1.0, 0.5, 0.02])
ALPHAS = (-2.0, -8.0, -64.0, -300.0, -1000.0)


def algorithm(goal: np.ndarray = GOAL) -> xr.Dataset:
    ds = algorithm_run(goal, STAGES)
    sizes = np.concatenate([[np.inf], np.sort(abs(goal))[::-1][:STAGES]])
    return ds.assign(
        stage_sign=("stage", [0, 1, -1, 1, -1]),
        stage_margin=ds["stage_until"] - ds["stage_time"],
        # e-foldings: drive |z*|, and 4 |z*| for the Hessian of u -> (s u^2 - z*)^2 / 2
        stage_transition=("stage", 1 / (2 * sizes) + 2 / (4 * sizes)),
    )
