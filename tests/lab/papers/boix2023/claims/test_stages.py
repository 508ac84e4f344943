"""Claims B1-B4 on runs in closed form: the whitened network, whose stages are T_k = 1 / |z*|."""

import math
from collections.abc import Mapping

import numpy as np
import pytest
import xarray as xr

from lab.papers.boix2023.stage_runs import ALPHAS, GOAL, STAGES, algorithm
from lab.papers.boix2023.toy_runs import flow_run
from rankscope.lab.judging.available_runs import AvailableRuns
from rankscope.lab.judging.rule import Rule
from rankscope.lab.judging.study import judge
from rankscope.lab.judging.verdict import NetworkVerdict, Verdict
from rankscope.lab.papers.boix2023.claims.stages import (
    B1,
    B1_SATURATED,
    B2,
    B2_CLEAR,
    B3,
    B3_CLEAR,
    B4,
    farthest_from_one,
    steepest_share,
)
from rankscope.lab.running.run import RunKey

FLOWS = {log10_alpha: flow_run(GOAL, log10_alpha) for log10_alpha in ALPHAS}


def flow_key(log10_alpha: float, network: str = "teacher-1") -> RunKey:
    return RunKey(network, {"log10_alpha": log10_alpha})


def verdict(rule: Rule, flows: Mapping[float, xr.Dataset] = FLOWS, seeds: int = 3) -> Verdict:
    runs = {flow_key(log10_alpha): ds for log10_alpha, ds in flows.items()}
    runs[RunKey("teacher-1", kind="algorithm")] = algorithm()
    return judge(
        rule, AvailableRuns({key: dict.fromkeys(range(seeds), ds) for key, ds in runs.items()})
    )


def network(judged: Verdict) -> NetworkVerdict:
    (only,) = judged.networks
    assert only.network == "teacher-1"
    return only


@pytest.mark.parametrize("rule", [B1_SATURATED, B2, B2_CLEAR, B3, B3_CLEAR])
def test_all_hold_for_the_flow_itself(rule: Rule) -> None:
    assert network(verdict(rule)).word == "holds"
    assert network(verdict(rule, seeds=2)).word == "holds so far"


def test_flows_are_needed_if_the_network_has_a_run_of_algorithm_1() -> None:
    needed = [flow_key(-8.0), RunKey("teacher-1", kind="algorithm")]
    others = [
        RunKey("teacher-1", kind="conservation"),
        flow_key(-8.0, "diagonal"),
        RunKey("teacher-1", {"log10_alpha": -32.0}, experiment="boix2023/assumptions"),
        RunKey("vit", {"scale": 1.0}),
    ]
    for rule in (B1, B1_SATURATED, B2, B2_CLEAR, B3, B3_CLEAR):
        assert list(rule.needs([*needed, *others])) == needed
    assert list(B4.needs([*needed, *others])) == others[:1]


def test_networks_of_two_experiments_are_judged_together_and_stay_apart() -> None:
    runs = {}
    for experiment, name in (("toy-diag", "teacher-1"), ("diag-transformer", "bases")):
        runs[RunKey(name, kind="algorithm", experiment=experiment)] = {0: algorithm()}
        for log10_alpha, ds in FLOWS.items():
            key = RunKey(name, {"log10_alpha": log10_alpha}, experiment=experiment)
            runs[key] = {0: ds}
    for rule in (B1, B2, B3):
        networks = judge(rule, AvailableRuns(runs)).networks
        assert [(each.experiment, each.network) for each in networks] == [
            ("toy-diag", "teacher-1"),
            ("diag-transformer", "bases"),
        ]


def test_share_of_a_straight_and_of_a_stepped_loss() -> None:
    time = np.linspace(0, 1, 11)
    straight = xr.Dataset({"loss": ("time", 1 - time)}, coords={"time": time})
    stepped = xr.Dataset({"loss": ("time", (time < 0.45).astype(float))}, coords={"time": time})
    assert steepest_share(straight) == pytest.approx(0.1)
    assert steepest_share(stepped) == pytest.approx(1.0)


def test_a_loss_that_is_no_sharper_at_a_smaller_alpha_fails_b1() -> None:
    flows = dict(FLOWS)
    flows[-300.0] = flows[-8.0].assign_attrs(log10_alpha=-300.0)
    assert network(verdict(B1, flows)).word == "fails"
    assert network(verdict(B1_SATURATED, flows)).word == "fails"


def test_a_share_that_is_one_cannot_rise_which_the_first_rule_does_not_know() -> None:
    """With four stages all is in the steepest tenth at 1e-300 and at 1e-1000 alike."""
    judged = network(verdict(B1))
    assert judged.word == "fails" and judged.value is not None and abs(judged.value) < 1e-9


@pytest.mark.parametrize("rule", [B1_SATURATED, B2, B3])
def test_a_flow_that_did_not_finish_tells_nothing(rule: Rule) -> None:
    flows = dict(FLOWS)
    flows[-1000.0] = flows[-1000.0].assign_attrs(finished=False)
    judged = verdict(rule, flows)
    assert network(judged).word == "no data" and "gave up" in judged.remarks[-1]


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
    flows = dict(FLOWS)
    flows[-300.0] = with_intruder(flows[-300.0], later=later)
    judged = network(verdict(B2, flows))
    assert (judged.word, judged.value) == ("fails", 2)


def test_two_coordinates_in_one_stage_fail_b2() -> None:
    flows = dict(FLOWS)
    flows[-300.0] = crossed_together(flows[-300.0])
    judged = network(verdict(B2, flows))
    assert (judged.word, judged.value) == ("fails", 2)


@pytest.mark.parametrize(
    ("counts", "farthest"), [([0, 1], 0), ([1, 1], 1), ([1, 3, 0], 3), ([0, 2], 2), ([], None)]
)
def test_the_printed_count_is_the_one_farthest_from_one(
    counts: list[int], farthest: int | None
) -> None:
    assert farthest_from_one(counts) == farthest


def test_a_stage_without_a_coordinate_fails_b2_and_is_printed() -> None:
    flows = dict(FLOWS)
    flows[-300.0] = flows[-300.0].isel(crossing=slice(0, -1))
    judged = verdict(B2, flows)
    assert (network(judged).word, network(judged).value) == ("fails", 0)
    assert judged.tables[0].rows[0] == ("teacher-1", 0, "1e-300", 4, "kq.1", 0)


@pytest.mark.parametrize("fault", ["order", "sign", "never", "wrong b0"])
def test_faults_that_b3_shows(fault: str) -> None:
    flows = dict(FLOWS)
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
            log10_alpha: flow.assign(crossing_time=flow.crossing_time + 0.1)
            for log10_alpha, flow in flows.items()
        }
    assert network(verdict(B3, flows)).word == "fails"


def test_constants_of_b3_are_those_of_the_closed_form() -> None:
    """log(1/alpha) (t_k - T_k) = log(4 |z*| threshold / (|z*| - threshold)) / (2 |z*|)."""
    table = verdict(B3, seeds=1).tables[0]
    threshold = 1e-3
    for row, size in zip(table.rows, np.sort(abs(GOAL))[::-1][:STAGES], strict=True):
        constant = math.log(4 * size * threshold / (size - threshold)) / (2 * size)
        for column, alpha in zip(row[5:], ALPHAS[1:], strict=True):
            expected = 100 * constant / (-alpha * math.log(10)) * size
            assert float(str(column).strip("* ")) == pytest.approx(expected, abs=0.0051)


def test_a_coordinate_that_stays_at_zero_has_no_error() -> None:
    flows = dict(FLOWS)
    flows[-300.0] = flows[-300.0].isel(crossing=slice(0, -1))
    cells = [cell for row in verdict(B3, flows, 1).tables[0].rows for cell in row[5:]]
    per_row = len(ALPHAS) - 1
    assert cells.pop(-per_row + ALPHAS[1:].index(-300.0)) == "-*"
    assert all(math.isfinite(float(str(cell).strip("* "))) for cell in cells)


def test_unresolved_stages_decide_nothing() -> None:
    """At 1e-8 the gap of stages 3 and 4 is below 10 transitions; at 1e-2 none is resolved."""
    flows = {alpha: flow_run(GOAL, alpha) for alpha in (-2.0, -4.0)}
    for rule in (B2, B3):
        assert network(verdict(rule, flows)).word == "no data"


@pytest.mark.parametrize(
    ("drift", "error", "word"),
    [(1e-10, 2.0, "holds"), (1e-7, 2.0, "fails"), (1e-10, 1e3, "fails")],
)
@pytest.mark.parametrize("finished", [True, False])
def test_conservation(drift: float, error: float, word: str, finished: bool) -> None:
    ds = xr.Dataset(
        {"drift": ("time", [0.0, drift]), "gd_error": ("step", [1.0, error])},
        attrs={"finished": finished},
    )
    key = RunKey("teacher-1", kind="conservation")
    judged = network(judge(B4, AvailableRuns({key: dict.fromkeys(range(3), ds)})))
    assert judged.word == (word if finished else "no data")
    assert judged.value == (drift if finished else None)
