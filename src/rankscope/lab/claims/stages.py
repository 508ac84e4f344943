"""Claims B1-B4 of boix2023: stages of the loss and of the coordinates, and the conservation law.

Runs are named <network>/alpha-1e-8, <network>/algorithm, <network>/conservation. What is compared
with Algorithm 1 is read from the flows alone: the times at which |z| crosses a threshold.
"""

import math
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import xarray as xr

from rankscope.lab.comparison import LARGEST_ALPHA, StageInFlow, flows_of, stages_in_flows
from rankscope.lab.experiment import Claim, Results
from rankscope.lab.verdict import Cell, Outcome, Table, Verdict, judge

CLEAR = "counts stages before which all are resolved: others delay what follows them"
ROUNDING = 16.0  # float64 roundings in one step of gradient descent


def loss_is_stagewise(results: Results) -> Verdict:
    """B1. The loss falls in stages: plateaus and drops that are sharper the smaller alpha is.

    Yes: the share of the loss's decrease that falls in the steepest tenth of rescaled time rises at
    each smaller alpha.
    """
    return _sharper("B1", results, saturated=2.0)


def loss_is_stagewise_until_saturated(results: Results) -> Verdict:
    """B1-saturated, a second rule made after the first runs: B1, where a share that is 1 to nine
    digits need not rise any more.
    """
    return _sharper("B1-saturated", results, saturated=1 - 1e-9)


def _sharper(key: str, results: Results, *, saturated: float) -> Verdict:
    outcomes, alphas = _nothing_yet(results), list[float]()
    rows: list[tuple[Cell, ...]] = []
    for network, seed, flows in _flows(results):
        alphas = list(flows)
        shares = np.array([steepest_share(ds) for ds in flows.values()])
        rises = np.diff(shares)[shares[1:] <= saturated]
        outcome = (rises.min(initial=1.0), bool((rises > 0).all()))
        outcomes[network][seed] = outcome if _finished(flows.values()) else (None, None)
        rows.append((network, seed, *(round(float(share), 4) for share in shares)))
    columns = ("network", "seed", *(f"1e{alpha:g}" for alpha in alphas))
    title = "share of the loss's decrease in the steepest tenth of rescaled time, by alpha"
    return judge(
        key,
        "the loss falls in stages: plateaus and drops that are sharper the smaller alpha is",
        outcomes,
        bound="> 0",
        quantity="smallest rise, alpha by alpha, of the loss's share in the steepest tenth of time",
        evidence=["B1 where a share of 1 need not rise"] if saturated < 1 else [],
        tables=[Table(columns, tuple(rows), title)] if key == "B1" else [],
    )


def steepest_share(ds: xr.Dataset, *, cells: int = 2000) -> float:
    """Of the whole decrease of the loss, the share within the steepest tenth of the time axis."""
    time, loss = ds["time"].to_numpy(), ds["loss"].to_numpy()
    falls = -np.diff(np.interp(np.linspace(time[0], time[-1], cells + 1), time, loss))
    falls = np.sort(falls)[::-1]
    whole = falls.sum()
    return float(falls[: cells // 10].sum() / whole) if whole > 0 else math.nan


def one_coordinate_per_stage(results: Results) -> Verdict:
    """B2. At most one coordinate becomes active per stage.

    Yes: at every alpha <= 1e-8, in each resolved stage, counted from half of the one before to half
    of its own, exactly one coordinate of the flow becomes active. A stage in which none does is
    none of the flow's.
    """
    return _one_at_a_time("B2", results, lambda stage: stage.resolved)


def one_coordinate_per_clear_stage(results: Results) -> Verdict:
    """B2-clear, a second rule made after the first runs: B2 on clear stages alone.

    The reason: a stage that is not resolved ends late, and what it delays can fall into a later
    stage that is resolved by its own numbers.
    """
    return _one_at_a_time("B2-clear", results, lambda stage: stage.clear)


def _one_at_a_time(key: str, results: Results, counts: Callable[[StageInFlow], bool]) -> Verdict:
    outcomes, rows = _nothing_yet(results), list[tuple[Cell, ...]]()
    for network, seed, flows in _flows(results):
        stages = stages_in_flows(results[f"{network}/algorithm"][seed], flows)
        counted = [stage for stage in stages if counts(stage)]
        found = [stage.activations for stage in counted]
        outcome = (max(found, default=None), _all(n == 1 for n in found))
        outcomes[network][seed] = outcome if _finished(flows.values()) else (None, None)
        rows += (
            (network, seed, f"1e{each.alpha:g}", each.stage, each.winner, each.activations)
            for each in counted
            if each.activations != 1
        )
    columns = ("network", "seed", "alpha", "stage", "winner", "coordinates")
    others = Table(columns, tuple(rows), "stages in which not exactly one becomes active")
    return judge(
        key,
        "at most one coordinate becomes active per stage",
        outcomes,
        bound="= 1",
        quantity="coordinates that become active in the stage farthest from one",
        evidence=[CLEAR] if key == "B2-clear" else [],
        tables=[others] if rows else [],
    )


def times_converge(results: Results) -> Verdict:
    """B3. Trajectories converge to Algorithm 1's: order, and times within O(1/log(1/alpha)) of T_k.

    Yes: on resolved stages the flow's coordinates come in Algorithm 1's order, with its signs, and
    log(1/alpha) (t_k - T_k) agrees within 5% between the two smallest alphas.
    """
    return _as_predicted("B3", results, lambda stage: stage.resolved)


def times_converge_on_clear_stages(results: Results) -> Verdict:
    """B3-clear, a second rule made after the first runs: B3 on clear stages alone."""
    return _as_predicted("B3-clear", results, lambda stage: stage.clear)


def _as_predicted(key: str, results: Results, counts: Callable[[StageInFlow], bool]) -> Verdict:
    outcomes, tables = _nothing_yet(results), list[Table]()
    for network, seed, flows in _flows(results):
        stages = stages_in_flows(results[f"{network}/algorithm"][seed], flows)
        counted = [stage for stage in stages if counts(stage)]
        disagreement = _disagreement(counted, sorted(flows)[:2])
        in_order = all(_in_order([s for s in counted if s.alpha == alpha]) for alpha in flows)
        agrees = None if disagreement is None else disagreement <= 0.05 and in_order
        outcome = (disagreement, agrees)
        outcomes[network][seed] = outcome if _finished(flows.values()) else (None, None)
        if key == "B3":
            tables.append(_error_table(f"{network}, seed {seed}", stages))
    return judge(
        key,
        "trajectories converge to Algorithm 1's: same order, times within O(1/log(1/alpha)) of T_k",
        outcomes,
        bound="<= 0.05",
        quantity="largest disagreement of log(1/alpha) (t_k - T_k) between the two smallest alphas",
        evidence=[CLEAR] if key == "B3-clear" else [],
        tables=tables,
    )


def conservation_holds(results: Results) -> Verdict:
    """B4. u^2 - v^2 is conserved along the flow.

    Yes: it drifts by less than 1e-8 of itself along the flow in (u, v), and one step of gradient
    descent multiplies it by 1 - rate^2 g^2 to rounding.
    """
    runs = {name: seeds for name, seeds in results.items() if name.endswith("/conservation")}
    outcomes: dict[str, dict[int, Outcome]] = {}
    rows = []
    for name, seeds in runs.items():
        network = name.removesuffix("/conservation")
        outcomes[network] = {}
        for seed, ds in seeds.items():
            drift, error = float(ds["drift"].max()), float(ds["gd_error"].max())
            outcome = (drift, drift < 1e-8 and error <= ROUNDING)
            outcomes[network][seed] = outcome if _finished([ds]) else (None, None)
            rows.append((network, seed, drift, round(error, 2)))
    columns = ("network", "seed", "drift of the flow", "error of GD's identity, in roundings")
    return judge(
        "B4",
        "u^2 - v^2 is conserved along the flow",
        outcomes,
        bound="< 1e-8",
        quantity="drift relative to u^2 - v^2 itself",
        tables=[Table(columns, tuple(rows), "the conservation law")],
    )


def _disagreement(stages: list[StageInFlow], alphas: list[float]) -> float | None:
    """Of the constants at two alphas, the largest over the stages given at both."""
    first, second = (
        {each.stage: each.constant for each in stages if each.alpha == alpha} for alpha in alphas
    )
    both = first.keys() & second.keys()
    return max((abs(second[k] / first[k] - 1) for k in both), default=None)


def _in_order(stages: list[StageInFlow]) -> bool:
    times = [each.time for each in stages]
    return all(each.same_sign for each in stages) and bool((np.diff(times) > 0).all())


def _error_table(title: str, stages: list[StageInFlow]) -> Table:
    """Errors in percent where stages can be resolved."""
    shown = [each for each in stages if each.alpha <= LARGEST_ALPHA]
    alphas = sorted({each.alpha for each in shown}, reverse=True)
    rows: list[tuple[Cell, ...]] = []
    for k in sorted({each.stage for each in shown}):
        row = sorted((each for each in shown if each.stage == k), key=lambda each: -each.alpha)
        rows.append((k, row[0].winner, round(row[0].predicted, 4), *map(_shown_error, row)))
    columns = ("stage", "winner", "T_k", *(f"1e{alpha:g}" for alpha in alphas))
    return Table(columns, tuple(rows), f"{title}: (t_k - T_k) / T_k in percent; * is resolved")


def _shown_error(stage: StageInFlow) -> str:
    """ "-" where the flow did not activate the coordinate before its end."""
    error = "-" if math.isnan(stage.error) else f"{100 * stage.error:+.2f}"
    return f"{error}{'*' if stage.resolved else ' '}"


def _finished(flows: Iterable[xr.Dataset]) -> bool:
    """Whether all came to their end; a flow that the solver gave up on tells nothing."""
    return all(ds.attrs["finished"] for ds in flows)


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
        for seed in results[f"{network}/algorithm"]:
            yield network, seed, flows_of(results, network, seed)


# Of flows beside Algorithm 1: the rules that were fixed before any run, each with its second one.
STAGE_CLAIMS: dict[str, Claim] = {
    "B1": loss_is_stagewise,
    "B1-saturated": loss_is_stagewise_until_saturated,
    "B2": one_coordinate_per_stage,
    "B2-clear": one_coordinate_per_clear_stage,
    "B3": times_converge,
    "B3-clear": times_converge_on_clear_stages,
}
