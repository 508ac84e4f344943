"""Claim B5 of boix2023: Assumptions 4.2-4.4 hold on the toy task.

Runs are named <network>/alpha-1e-32; each holds the trials of the perturbation experiment at that
alpha, and along `stage` the direct checks, which are about alpha -> 0.
"""

from collections.abc import Iterator

import numpy as np
import xarray as xr

from rankscope.lab.experiment import Results
from rankscope.lab.verdict import Cell, Outcome, Table, Verdict, judge
from rankscope.theory.perturbation import NOISES

PAPER_ALPHA = -32.0  # log10
BOUND = 0.05
TIE = 1e-9  # of the time a winner won at
REACHED = 1e-2  # of |u^{k+1}|
AFTER = ("100", "300", "1000")  # epochs after which trials are looked at; the last decides
TITLE = (
    "trials whose distance is down to 5% after so many epochs, and what is left of it at the end"
)


def assumptions_hold(results: Results) -> Verdict:
    """B5. Assumptions 4.2-4.4 hold on the toy task.

    Yes: winners are unique; the smallest eigenvalue of the Hessian of u -> L(u, s u) on the support
    is positive; |change of z| after 1000 epochs is at most 5% of the perturbation, in every trial
    at alpha = 1e-32.
    """
    outcomes, rows = _nothing_yet(results), list[tuple[Cell, ...]]()
    for network, seed, ds in _runs(results):
        rows += _trial_rows(network, seed, ds)
        if float(ds.attrs["log10_alpha"]) == PAPER_ALPHA:
            left = shares(ds).isel(time=-1).to_numpy()
            worst = float(np.max(left)) if len(left) else None  # NaN stays, and fails
            certified = unique_winners(ds) and strict_minima(ds)
            outcomes[network][seed] = (
                worst,
                None if worst is None else certified and worst <= BOUND,
            )
    columns = ("network", "seed", "alpha", "trials", "of", *AFTER, "undisturbed", "median", "worst")
    return judge(
        "B5",
        "Assumptions 4.2-4.4 hold: perturbed runs come back to the unperturbed one",
        outcomes,
        bound=f"<= {BOUND:g}",
        quantity="largest distance in z after 1000 epochs relative to the perturbation's",
        evidence=(
            "undisturbed: where nothing else becomes active in the run without perturbation",
            *_sentences(results),
        ),
        tables=[Table(columns, tuple(rows), TITLE)],
    )


def assumptions_hold_in_the_limit(results: Results) -> Verdict:
    """B5, a second rule. Yes: winners are unique; the smallest eigenvalue is positive; as
    alpha -> 0, noise on theta^k is down to 5% after 1000 epochs, and from near theta^k with the
    winner begun the flow ends within 1% of theta^{k+1}, in every stage.

    Made after seeing what the first rule measures: it compares runs at equal times. At 1e-32 stages
    follow each other within few relaxation times, and noise of 1e-2 on a weight of 1e-5 lets it
    become active log(1000) e-foldings earlier: distances then say how far apart in time two runs
    are that go the same way.
    """
    outcomes, rows = _nothing_yet(results), list[tuple[Cell, ...]]()
    for network, seed, ds in _runs(results):
        if float(ds.attrs["log10_alpha"]) != PAPER_ALPHA:
            continue  # the same stages
        # NaN, of a stage that did not come to rest, is to fail
        *left, reached = (
            float(ds[f"stage_{name}"].max(skipna=False)) for name in (*NOISES, "reached")
        )
        returned = all(share <= BOUND for share in left) and reached <= REACHED
        outcomes[network][seed] = (max(left), unique_winners(ds) and strict_minima(ds) and returned)
        smallest = (
            float(ds[f"stage_{n}"].min()) for n in ("relative_margin", "hessian_u", "constant")
        )
        rows.append((network, seed, ds.sizes["stage"] - 1, *smallest, *left, reached))
    names = ("margin / T_k", "eigenvalue", "c_k", "independent", "tied", "theta^{k+1}")
    return judge(
        "B5-limit",
        "Assumptions 4.2-4.4 hold as alpha -> 0, nothing else moving",
        outcomes,
        bound=f"<= {BOUND:g}",
        quantity="largest distance in z after 1000 epochs relative to the perturbation's",
        evidence=(
            "of the worst stage: margin of the winner, smallest eigenvalue, c_k of Assumption 4.3, "
            "what is left of either noise, distance from theta^{k+1} (4.4)",
        ),
        tables=[Table(("network", "seed", "stages", *names), tuple(rows), "direct checks")],
    )


def shares(ds: xr.Dataset) -> xr.DataArray:
    """(trial, time): the distance relative to that just after the perturbation."""
    return ds["distance"] / ds["distance"].isel(time=0)


def unique_winners(ds: xr.Dataset) -> bool:
    """Assumption 4.2, of every stage; also that no coordinate which left has no drive."""
    return bool((ds["stage_relative_margin"] > TIE).all() and (ds["stage_left_drive"] > TIE).all())


def strict_minima(ds: xr.Dataset) -> bool:
    """Assumption 4.3, of every stage; false where one did not come to rest (NaN)."""
    return bool((ds["stage_hessian_u"] > 0).all())


def undisturbed(ds: xr.Dataset) -> np.ndarray:
    """(trial): only coordinates that were perturbed become active; of plateaus, none does."""
    kind, rising, activated = (ds[name].to_numpy() for name in ("kind", "rising", "activated"))
    found: np.ndarray = (activated == rising) & ((kind != "plateau") | (rising == 0))
    return found


def _trial_rows(network: str, seed: int, ds: xr.Dataset) -> Iterator[tuple[Cell, ...]]:
    """For each kind of trial and noise: how many are back, and shares at the end."""
    alpha = f"1e{ds.attrs['log10_alpha']:g}"
    alone = undisturbed(ds)
    pairs = zip(ds["kind"].to_numpy(), ds["noise"].to_numpy(), strict=True)
    groups = np.array([f"{kind}, {noise}" for kind, noise in pairs])
    for group in sorted(set(groups.tolist()), reverse=True):
        chosen = groups == group
        share = shares(ds).isel(trial=np.flatnonzero(chosen))
        end = share.isel(time=-1).to_numpy()
        back = (_back(share.sel(time=int(epochs), method="nearest")) for epochs in AFTER)
        isolated = end[alone[chosen]]
        both = f"{_back(isolated)} of {len(isolated)}"
        yield (
            network,
            seed,
            alpha,
            group,
            len(end),
            *back,
            both,
            float(np.median(end)),
            float(end.max()),
        )


def _back(share: xr.DataArray | np.ndarray) -> int:
    return int((share <= BOUND).sum())


def _sentences(results: Results) -> Iterator[str]:
    for network, seed, ds in _runs(results):
        if float(ds.attrs["log10_alpha"]) == PAPER_ALPHA:
            yield from (f"{network}, seed {seed}: {each}" for each in ds.attrs["assumptions"])


def _nothing_yet(results: Results) -> dict[str, dict[int, Outcome]]:
    return {name.partition("/")[0]: {} for name in results}


def _runs(results: Results) -> Iterator[tuple[str, int, xr.Dataset]]:
    for name, seeds in results.items():
        yield from ((name.partition("/")[0], seed, ds) for seed, ds in seeds.items())
