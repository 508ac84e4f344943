"""Claims B1-B4 on runs in closed form: the whitened network, whose stages are T_k = 1 / |z*|."""

import math
from collections.abc import Callable, Mapping

import numpy as np
import pytest
import xarray as xr

from figures.toy_runs import algorithm_run, flow_run
from rankscope.lab.claims.stages import (
    conservation_holds,
    loss_is_stagewise,
    loss_is_stagewise_until_saturated,
    one_coordinate_per_clear_stage,
    one_coordinate_per_stage,
    steepest_share,
    times_converge,
    times_converge_on_clear_stages,
)
from rankscope.lab.comparison import stages_in_flows
from rankscope.lab.verdict import Verdict

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


def results(
    flows: Mapping[float, xr.Dataset] | None = None, seeds: int = 3
) -> dict[str, dict[int, xr.Dataset]]:
    flows = flows or {alpha: flow_run(GOAL, alpha) for alpha in ALPHAS}
    runs = {f"teacher-1/alpha-1e{alpha:g}": ds for alpha, ds in flows.items()}
    runs["teacher-1/algorithm"] = algorithm()
    return {name: dict.fromkeys(range(seeds), ds) for name, ds in runs.items()}


def test_all_hold_for_the_flow_itself() -> None:
    for claim in (
        loss_is_stagewise_until_saturated,
        one_coordinate_per_stage,
        one_coordinate_per_clear_stage,
        times_converge,
        times_converge_on_clear_stages,
    ):
        assert claim(results()).holds == "yes"
        assert claim(results(seeds=2)).holds == "undecided"


def test_share_of_a_straight_and_of_a_stepped_loss() -> None:
    time = np.linspace(0, 1, 11)
    straight = xr.Dataset({"loss": ("time", 1 - time)}, coords={"time": time})
    stepped = xr.Dataset({"loss": ("time", (time < 0.45).astype(float))}, coords={"time": time})
    assert steepest_share(straight) == pytest.approx(0.1)
    assert steepest_share(stepped) == pytest.approx(1.0)


def test_a_loss_that_is_no_sharper_at_a_smaller_alpha_fails_b1() -> None:
    flows = {alpha: flow_run(GOAL, alpha) for alpha in ALPHAS}
    flows[-300.0] = flows[-8.0].assign_attrs(log10_alpha=-300.0)
    assert loss_is_stagewise(results(flows)).holds == "no"
    assert loss_is_stagewise_until_saturated(results(flows)).holds == "no"


def test_a_share_that_is_one_cannot_rise_which_the_first_rule_does_not_know() -> None:
    """With four stages all is in the steepest tenth at 1e-300 and at 1e-1000 alike."""
    judged = loss_is_stagewise(results())
    assert judged.holds == "no" and abs(judged.value) < 1e-9


@pytest.mark.parametrize("claim", [loss_is_stagewise_until_saturated, one_coordinate_per_stage])
def test_a_flow_that_did_not_finish_tells_nothing(claim: Callable[..., Verdict]) -> None:
    flows = {alpha: flow_run(GOAL, alpha) for alpha in ALPHAS}
    flows[-1000.0] = flows[-1000.0].assign_attrs(finished=False)
    assert claim(results(flows)).holds == "undecided"


def crossed_together(ds: xr.Dataset) -> xr.Dataset:
    """The third coordinate becomes active right after the second."""
    times = ds["crossing_time"].to_numpy().copy()
    times[2] = times[1] + 1e-3
    return ds.assign(crossing_time=("crossing", times))


def with_intruder(ds: xr.Dataset, *, later: float) -> xr.Dataset:
    """A coordinate that Algorithm 1 never names becomes active near the second winner."""
    extra = ds[[name for name in ds if name.startswith("crossing_")]].isel(crossing=[1])
    extra = extra.assign(
        crossing_time=extra["crossing_time"] + later, crossing_coordinate=("crossing", [2])
    )
    crossings = xr.concat([extra, ds[list(extra)]], "crossing").sortby("crossing_time")
    return ds.drop_vars(list(extra)).merge(crossings)


@pytest.mark.parametrize("later", [-1e-4, 1e-4])
def test_an_intruder_fails_b2(later: float) -> None:
    flows = {alpha: flow_run(GOAL, alpha) for alpha in ALPHAS}
    flows[-300.0] = with_intruder(flows[-300.0], later=later)
    verdict = one_coordinate_per_stage(results(flows))
    assert (verdict.holds, verdict.value) == ("no", 2)


def test_two_coordinates_in_one_stage_fail_b2() -> None:
    flows = {alpha: flow_run(GOAL, alpha) for alpha in ALPHAS}
    flows[-300.0] = crossed_together(flows[-300.0])
    verdict = one_coordinate_per_stage(results(flows))
    assert (verdict.holds, verdict.value) == ("no", 2)


@pytest.mark.parametrize("fault", ["order", "sign", "never", "wrong b0"])
def test_faults_that_b3_shows(fault: str) -> None:
    flows = {alpha: flow_run(GOAL, alpha) for alpha in ALPHAS}
    ds = flows[-1000.0]
    if fault == "order":
        swapped = ds["crossing_coordinate"].to_numpy()[[1, 0, 2, 3]]
        flows[-1000.0] = ds.assign(crossing_coordinate=("crossing", swapped))
    elif fault == "sign":
        flows[-1000.0] = ds.assign(crossing_sign=-ds["crossing_sign"])
    elif fault == "never":
        flows[-1000.0] = ds.isel(crossing=slice(1, None))
    else:  # with b^0 = 0 times are wrong by a constant, which log(1/alpha) magnifies
        flows = {
            a: each.assign(crossing_time=each.crossing_time + 0.1) for a, each in flows.items()
        }
    assert times_converge(results(flows)).holds == "no"


def test_constants_of_b3_are_those_of_the_closed_form() -> None:
    """log(1/alpha) (t_k - T_k) = log(4 |z*| threshold / (|z*| - threshold)) / (2 |z*|)."""
    table = times_converge(results()).tables[0]
    threshold = 1e-3
    for row, size in zip(table.rows, np.sort(abs(GOAL))[::-1][:STAGES], strict=True):
        constant = math.log(4 * size * threshold / (size - threshold)) / (2 * size)
        for column, alpha in zip(row[3:], ALPHAS[1:], strict=True):
            expected = 100 * constant / (-alpha * math.log(10)) * size
            assert float(str(column).strip("* ")) == pytest.approx(expected, abs=0.0051)


def test_a_coordinate_that_stays_at_zero_has_no_error() -> None:
    flows = {alpha: flow_run(GOAL, alpha) for alpha in ALPHAS}
    flows[-300.0] = flows[-300.0].isel(crossing=slice(0, -1))
    cells = [cell for row in times_converge(results(flows)).tables[0].rows for cell in row[3:]]
    per_row = len(ALPHAS) - 1
    assert cells.pop(-per_row + ALPHAS[1:].index(-300.0)) == "-*"
    assert all(math.isfinite(float(str(cell).strip("* "))) for cell in cells)


def test_unresolved_stages_decide_nothing() -> None:
    """At 1e-8 the gap of stages 3 and 4 is below 10 transitions; at 1e-2 none is resolved."""
    flows = {alpha: flow_run(GOAL, alpha) for alpha in (-2.0, -4.0)}
    for claim in (one_coordinate_per_stage, times_converge):
        assert claim(results(flows)).holds == "undecided"


def test_a_stage_is_clear_if_those_before_it_are_resolved() -> None:
    """Stage 2 lasts 1/0.97 - 1 = 0.031: 4.6 e-foldings of 1 at 1e-64, 71 at 1e-1000; 10 resolve."""
    goal = np.array([2.0, 1.0, 0.97, 0.25, 0.02, 0.02])
    flows = {alpha: flow_run(goal, alpha) for alpha in (-64.0, -1000.0)}
    found = stages_in_flows(algorithm(goal), flows)
    assert [stage.resolved for stage in found] == [True, False, True, True] + [True] * 4
    assert [stage.clear for stage in found] == [True, False, False, False] + [True] * 4


@pytest.mark.parametrize(
    ("drift", "error", "holds"), [(1e-10, 2.0, "yes"), (1e-7, 2.0, "no"), (1e-10, 1e3, "no")]
)
def test_conservation(drift: float, error: float, holds: str) -> None:
    ds = xr.Dataset(
        {"drift": ("time", [0.0, drift]), "gd_error": ("step", [1.0, error])},
        attrs={"finished": True},
    )
    verdict = conservation_holds({"teacher-1/conservation": dict.fromkeys(range(3), ds)})
    assert verdict.holds == holds
    assert verdict.value == drift
