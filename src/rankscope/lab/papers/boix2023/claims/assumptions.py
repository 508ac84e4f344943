"""Claim B5: Assumptions 4.2-4.4 hold on the toy task.

Each run holds the trials of the perturbation experiment at one alpha. Along `stage` it holds the
direct checks, which are about alpha -> 0 and the same at every alpha.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
import xarray as xr

from rankscope.lab.judging.rule import Measured, Rule
from rankscope.lab.judging.selected_runs import Runs, runs_of
from rankscope.lab.judging.verdict import Cell
from rankscope.lab.papers.boix2023.runs import by_network
from rankscope.lab.running.run_key import RunKey

PAPER_ALPHA = -32.0  # log10
BOUND = 0.05
TRIALS = 0.9  # share of the trials
TIE = 1e-9  # of the time a winner won at
AFTER = (100, 300, 1000)  # epochs after which trials are looked at; the last decides
PERTURBED_RUNS = runs_of(experiment="boix2023/assumptions")


def runs_at_paper_alpha(keys: Sequence[RunKey]) -> Collection[RunKey]:
    """Need the perturbed runs at the paper's alpha, 1e-32."""
    perturbed = PERTURBED_RUNS(keys)
    return [key for key in perturbed if key.variant["log10_alpha"] == PAPER_ALPHA]


def measure_returns(runs: Runs) -> Iterator[Measured]:
    """Ask that after 1000 epochs 90% of the trials at alpha = 1e-32 are near the reference.

    A trial is near if |z - z_ref| is at most 5% of |z_ref|, both over the perturbed coordinates.
    z_ref is z of the run without the perturbation. A seed without trials cannot tell.
    """
    for key in runs:
        for seed, ds in runs[key].items():
            near = relative_distances(ds).isel(time=-1).to_numpy() <= BOUND  # NaN is not near
            share = float(near.mean()) if len(near) else None
            met = None if share is None else share >= TRIALS
            rows = tuple(_distance_rows(ds))
            yield Measured(share, met, rows=rows).at(key, seed)


def relative_distances(ds: xr.Dataset) -> xr.DataArray:
    """Return |z - z_ref| / |z_ref| (trial, time) over the perturbed coordinates."""
    reference = np.sqrt((ds["unperturbed_z"] ** 2).sum("coordinate"))  # others are NaN
    distances: xr.DataArray = ds["distance"] / reference
    return distances


def _distance_rows(ds: xr.Dataset) -> Iterator[Mapping[str, Cell]]:
    """Yield a row for each kind of trial and noise: how many are near, and how far they end."""
    for group, in_group in _groups(ds).items():
        distances = relative_distances(ds).isel(trial=np.flatnonzero(in_group))
        at_end = distances.isel(time=-1).to_numpy()
        yield {
            "trials": group,
            "of": len(at_end),
            **{str(epoch): _back(distances.sel(time=epoch, method="nearest")) for epoch in AFTER},
            "median": float(np.median(at_end)),
            "farthest": float(at_end.max()),
        }


B5 = Rule(
    claim="B5",
    sentence="Assumptions 4.2-4.4 hold: perturbed runs come back to the unperturbed one",
    quantity=f"share of trials within {BOUND:.0%} of the unperturbed run after 1000 epochs",
    bound=f">= {TRIALS:g}",
    measure=measure_returns,
    needs=runs_at_paper_alpha,
    table=(
        "trials within 5% of the unperturbed run after so many epochs, and their distances from "
        "it at the end, relative to it"
    ),
    changed=True,
    reason=(
        "The first rule divides what is left by a perturbation that may be near zero, and lets the "
        "farthest trial decide."
    ),
)


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


B5_FIRST = Rule(
    claim="B5-first",
    headline="B5",
    sentence=B5.sentence,
    quantity="largest distance in z after 1000 epochs relative to the perturbation's",
    bound=f"<= {BOUND:g}",
    measure=measure_trials,
    needs=PERTURBED_RUNS,
    table=(
        "trials that are back after so many epochs, and the distance that is left at the end; "
        "undisturbed: nothing else becomes active in the run without perturbation"
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
    for group, in_group in _groups(ds).items():
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


def _groups(ds: xr.Dataset) -> dict[str, np.ndarray]:
    """Return where the trials of each kind and noise are."""
    pairs = zip(ds["kind"].to_numpy(), ds["noise"].to_numpy(), strict=True)
    groups = np.array([f"{kind}, {noise}" for kind, noise in pairs])
    return {group: groups == group for group in sorted(set(groups.tolist()), reverse=True)}
