"""Claims B1-B4 of boix2023: stages of the loss and of the coordinates, and the conservation law.

Runs are named <network>/alpha-1e-8, <network>/algorithm, <network>/conservation. What is compared
with Algorithm 1 is read from the flows alone: the times at which |z| crosses a threshold.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import xarray as xr

from rankscope.lab.comparison import LARGEST_ALPHA, StageInFlow, stages_in_flows
from rankscope.lab.experiment import Results
from rankscope.lab.verdict import Cell, Outcome, Table, Verdict, judge

ROUNDING = 16.0  # float64 roundings in one step of gradient descent


def loss_is_stagewise(results: Results) -> Verdict:
    """B1. Yes: the share of the loss's decrease that falls in the steepest tenth of rescaled time
    rises at each smaller alpha (or is 1 to nine digits and cannot rise).
    """
    outcomes, alphas = _nothing_yet(results), list[float]()
    rows: list[tuple[Cell, ...]] = []
    for network, seed, flows in _flows(results):
        alphas = list(flows)
        shares = {alpha: steepest_share(ds) for alpha, ds in flows.items()}
        rises = np.diff(list(shares.values()))
        whole = np.array(list(shares.values())[1:]) > 1 - 1e-9
        outcomes[network][seed] = (rises.min(), ((rises > 0) | whole).all())
        rows.append((network, seed, *(round(share, 4) for share in shares.values())))
    return judge(
        "B1",
        "the loss falls in stages: plateaus and drops that are sharper the smaller alpha is",
        outcomes,
        bound="> 0",
        quantity="smallest rise of the share from one alpha to the next",
        tables=[
            Table(
                ("network", "seed", *(f"1e{alpha:g}" for alpha in alphas)),
                tuple(rows),
                "share of the loss's decrease in the steepest tenth of rescaled time, by alpha",
            )
        ],
    )


def steepest_share(ds: xr.Dataset, *, cells: int = 2000) -> float:
    """Of the whole decrease of the loss, the share within the steepest tenth of the time axis."""
    time, loss = ds["time"].to_numpy(), ds["loss"].to_numpy()
    falls = -np.diff(np.interp(np.linspace(time[0], time[-1], cells + 1), time, loss))
    falls = np.sort(falls)[::-1]
    return float(falls[: cells // 10].sum() / falls.sum())


def one_coordinate_per_stage(results: Results) -> Verdict:
    """B2. Yes: at every alpha <= 1e-8, when a coordinate of the flow has become active in a
    resolved stage, no other does within the first half of that stage.
    """
    outcomes = _nothing_yet(results)
    for network, seed, flows in _flows(results):
        stages = stages_in_flows(results[f"{network}/algorithm"][seed], flows)
        counts = [stage.activations for stage in stages if stage.resolved]
        outcomes[network][seed] = (max(counts, default=None), _all(n == 1 for n in counts))
    return judge(
        "B2",
        "at most one coordinate becomes active per stage",
        outcomes,
        bound="= 1",
        quantity="most coordinates in a resolved stage",
    )


def times_converge(results: Results) -> Verdict:
    """B3. Yes: on resolved stages the flow's coordinates come in Algorithm 1's order, with its
    signs, and log(1/alpha) (t_k - T_k) agrees within 5% between the two smallest alphas.
    """
    outcomes, tables = _nothing_yet(results), []
    for network, seed, flows in _flows(results):
        stages = stages_in_flows(results[f"{network}/algorithm"][seed], flows)
        disagreement = _disagreement(stages, *sorted(flows)[:2])
        agrees = None if disagreement is None else disagreement <= 0.05
        in_order = all(_in_order([s for s in stages if s.alpha == alpha]) for alpha in flows)
        outcomes[network][seed] = (disagreement, agrees and in_order)
        tables.append(_error_table(f"{network}, seed {seed}", stages))
    return judge(
        "B3",
        "trajectories converge to Algorithm 1's: same order, times within O(1/log(1/alpha)) of T_k",
        outcomes,
        bound="<= 0.05",
        quantity="largest disagreement of log(1/alpha) (t_k - T_k) between the two smallest alphas",
        tables=tables,
    )


def conservation_holds(results: Results) -> Verdict:
    """B4. Yes: u^2 - v^2 drifts by less than 1e-8 of u^2 + v^2 along the flow in (u, v), and one
    step of gradient descent multiplies it by 1 - rate^2 g^2 to rounding.
    """
    runs = {name: seeds for name, seeds in results.items() if name.endswith("/conservation")}
    outcomes: dict[str, dict[int, Outcome]] = {}
    rows = []
    for name, seeds in runs.items():
        network = name.removesuffix("/conservation")
        outcomes[network] = {}
        for seed, ds in seeds.items():
            drift, error = float(ds["drift"].max()), float(ds["gd_error"].max())
            outcomes[network][seed] = (drift, drift < 1e-8 and error <= ROUNDING)
            rows.append((network, seed, drift, round(error, 2)))
    columns = ("network", "seed", "drift of the flow", "error of GD's identity, in roundings")
    return judge(
        "B4",
        "u^2 - v^2 is conserved along the flow",
        outcomes,
        bound="< 1e-8",
        quantity="drift relative to u^2 + v^2",
        tables=[Table(columns, tuple(rows), "the conservation law")],
    )


def _disagreement(stages: list[StageInFlow], smallest: float, next_smallest: float) -> float | None:
    """The largest over stages that are resolved at both alphas."""
    by_place = {(each.alpha, each.stage): each for each in stages if each.resolved}
    pairs = [
        (each.constant, by_place[next_smallest, each.stage].constant)
        for each in by_place.values()
        if each.alpha == smallest and (next_smallest, each.stage) in by_place
    ]
    return max((abs(b / a - 1) for a, b in pairs), default=None)


def _in_order(stages: list[StageInFlow]) -> bool:
    resolved = [each for each in stages if each.resolved]
    times = [each.time for each in resolved]
    return all(each.same_sign for each in resolved) and bool((np.diff(times) > 0).all())


def _error_table(title: str, stages: list[StageInFlow]) -> Table:
    """Errors in percent where stages can be resolved."""
    shown = [each for each in stages if each.alpha <= LARGEST_ALPHA]
    alphas = sorted({each.alpha for each in shown}, reverse=True)
    rows: list[tuple[Cell, ...]] = []
    for k in sorted({each.stage for each in shown}):
        row = sorted((each for each in shown if each.stage == k), key=lambda each: -each.alpha)
        errors = (f"{100 * each.error:+.2f}{'*' if each.resolved else ' '}" for each in row)
        rows.append((k, row[0].winner, round(row[0].predicted, 4), *errors))
    columns = ("stage", "winner", "T_k", *(f"1e{alpha:g}" for alpha in alphas))
    return Table(columns, tuple(rows), f"{title}: (t_k - T_k) / T_k in percent; * is resolved")


def _all(outcomes: Iterable[bool]) -> bool | None:
    """None of nothing: where no stage is resolved, nothing is said."""
    found = list(outcomes)
    return all(found) if found else None


def _nothing_yet(results: Results) -> dict[str, dict[int, Outcome]]:
    return {network: {} for network in _networks(results)}


def _networks(results: Results) -> list[str]:
    return [name.removesuffix("/algorithm") for name in results if name.endswith("/algorithm")]


def _flows(results: Results) -> Iterator[tuple[str, int, dict[float, xr.Dataset]]]:
    """(network, seed, flows by log10 alpha, the largest alpha first)."""
    for network in _networks(results):
        runs = [name for name in results if name.startswith(f"{network}/alpha-")]
        for seed in results[f"{network}/algorithm"]:
            flows = [results[name][seed] for name in runs]
            flows.sort(key=lambda ds: -ds.attrs["log10_alpha"])
            yield network, seed, {float(ds.attrs["log10_alpha"]): ds for ds in flows}
