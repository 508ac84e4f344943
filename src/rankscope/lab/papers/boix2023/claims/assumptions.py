"""Claim B5: Assumptions 4.2-4.4 hold on the toy task.

Each run holds the trials of the perturbation experiment at one alpha. Along `stage` it holds the
direct checks, which are about alpha -> 0 and the same at every alpha.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import xarray as xr

from rankscope.lab.judging.rule import Measured, Rule
from rankscope.lab.judging.selected_runs import Runs, runs_of
from rankscope.lab.judging.verdict import Cell
from rankscope.lab.papers.boix2023.runs import by_network
from rankscope.theory.perturbation import NOISES

PAPER_ALPHA = -32.0  # log10
BOUND = 0.05
TIE = 1e-9  # of the time a winner won at
REACHED = 1e-2  # of |u^{k+1}|
AFTER = (100, 300, 1000)  # epochs after which trials are looked at; the last decides
PERTURBED_RUNS = runs_of(experiment="boix2023/assumptions")


def measure_trials(runs: Runs) -> Iterator[Measured]:
    """Ask that after 1000 epochs every trial at alpha = 1e-32 is back.

    A trial is back if its distance in z is at most 5% of that just after the perturbation. Winners
    also have to be unique, and the smallest eigenvalue of the Hessian of u -> L(u, s u) on the
    support has to be positive. A seed without trials cannot tell. Other alphas are evidence only.
    """
    for network, of_network in by_network(runs).items():
        by_alpha = of_network.by("log10_alpha")
        for seed, ds in by_alpha[PAPER_ALPHA].items():
            left = shares(ds).isel(time=-1).to_numpy()
            worst = float(np.max(left)) if len(left) else None  # NaN stays, and fails
            yield Measured(
                worst,
                None if worst is None else _certified(ds) and worst <= BOUND,
                rows=tuple(
                    {"alpha": f"1e{alpha:g}", **row}
                    for alpha in reversed(by_alpha)
                    for row in _trial_rows(by_alpha[alpha][seed])
                ),
                remarks=tuple(
                    f"{network.title}, seed {seed}: {sentence}"
                    for sentence in ds.attrs["assumptions"]
                ),
            ).at(network, seed)


B5 = Rule(
    claim="B5",
    sentence="Assumptions 4.2-4.4 hold: perturbed runs come back to the unperturbed one",
    quantity="largest distance in z after 1000 epochs relative to the perturbation's",
    bound=f"<= {BOUND:g}",
    measure=measure_trials,
    needs=PERTURBED_RUNS,
    table=(
        "trials that are back after so many epochs, and the distance that is left at the end; "
        "undisturbed: nothing else becomes active in the run without perturbation"
    ),
)


def measure_stages(runs: Runs) -> Iterator[Measured]:
    """Ask that noise on each theta^k of Algorithm 1 dies out as alpha -> 0.

    Winners have to be unique and the smallest eigenvalue positive, as for B5. With nothing else
    moving, noise on theta^k is down to 5% after 1000 epochs. From near theta^k with the winner
    begun, the flow ends within 1% of theta^{k+1}. A stage that did not come to rest fails.
    """
    for network, of_network in by_network(runs).items():
        for seed, ds in of_network.by("log10_alpha")[PAPER_ALPHA].items():
            *left, reached = (
                float(ds[f"stage_{name}"].max(skipna=False)) for name in (*NOISES, "reached")
            )
            returned = all(share <= BOUND for share in left) and reached <= REACHED
            row: Mapping[str, Cell] = {
                "stages": ds.sizes["stage"] - 1,
                "margin / T_k": float(ds["stage_relative_margin"].min()),
                "eigenvalue": float(ds["stage_hessian_u"].min()),
                "c_k": float(ds["stage_constant"].min()),
                **dict(zip(NOISES, left, strict=True)),
                "theta^{k+1}": reached,
            }
            yield Measured(max(left), _certified(ds) and returned, rows=(row,)).at(network, seed)


B5_LIMIT = replace(
    B5,
    claim="B5-limit",
    headline="B5",
    sentence="Assumptions 4.2-4.4 hold as alpha -> 0, nothing else moving",
    quantity="largest share of the noise on a stage of Algorithm 1 that is left after 1000 epochs",
    measure=measure_stages,
    table=(
        "direct checks, worst stage: the winner's margin, the smallest eigenvalue, c_k of "
        "Assumption 4.3, what is left of either noise, the distance from theta^{k+1} (4.4)"
    ),
    reason=(
        "Made after the first runs: B5 compares runs at equal times. At 1e-32 stages follow each "
        "other within few relaxation times, and noise lets a weight become active earlier, so "
        "the distance measures a delay between two runs on the same path."
    ),
)


def shares(ds: xr.Dataset) -> xr.DataArray:
    """Return the distance (trial, time) relative to that just after the perturbation."""
    return ds["distance"] / ds["distance"].isel(time=0)


def _certified(ds: xr.Dataset) -> bool:
    """Return whether Assumptions 4.2 and 4.3 hold in every stage.

    A stage that did not come to rest has NaN and fails. Coordinates that left need a drive too.
    """
    unique = (ds["stage_relative_margin"] > TIE).all() and (ds["stage_left_drive"] > TIE).all()
    return bool(unique and (ds["stage_hessian_u"] > 0).all())


def undisturbed(ds: xr.Dataset) -> np.ndarray:
    """Return for each trial whether only perturbed coordinates become active; on plateaus none."""
    kind, rising, activated = (ds[name].to_numpy() for name in ("kind", "rising", "activated"))
    alone: np.ndarray = (activated == rising) & ((kind != "plateau") | (rising == 0))
    return alone


def _trial_rows(ds: xr.Dataset) -> Iterator[Mapping[str, Cell]]:
    """Yield a row for each kind of trial and noise: how many are back, and what is left."""
    pairs = zip(ds["kind"].to_numpy(), ds["noise"].to_numpy(), strict=True)
    groups = np.array([f"{kind}, {noise}" for kind, noise in pairs])
    for group in sorted(set(groups.tolist()), reverse=True):
        in_group = groups == group
        share = shares(ds).isel(trial=np.flatnonzero(in_group))
        left = share.isel(time=-1).to_numpy()
        left_alone = left[undisturbed(ds)[in_group]]
        yield {
            "trials": group,
            "of": len(left),
            **{str(epoch): _back(share.sel(time=epoch, method="nearest")) for epoch in AFTER},
            "undisturbed": f"{_back(left_alone)} of {len(left_alone)}",
            "median": float(np.median(left)),
            "worst": float(left.max()),
        }


def _back(share: xr.DataArray | np.ndarray) -> int:
    return int((share <= BOUND).sum())
