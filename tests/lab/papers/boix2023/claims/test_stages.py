"""Claims B1-B4 on runs in closed form: the whitened network, whose stages are T_k = 1 / |z*|."""

import math
from collections.abc import Mapping

import numpy as np
import pytest
import xarray as xr

from lab.papers.boix2023.toy_runs import ALPHAS, GOAL, STAGES, algorithm_run, flow_run
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
from rankscope.lab.papers.boix2023.stages import stages_in_flows
from rankscope.lab.running.run_key import RunKey

FLOWS = {log10_alpha: flow_run(GOAL, log10_alpha) for log10_alpha in ALPHAS}
SHORT = FLOWS[-300.0].isel(crossing=slice(0, -1))  # the last coordinate stays at zero


def verdict(rule: Rule, flows: Mapping[float, xr.Dataset] = FLOWS, seeds: int = 3) -> Verdict:
    runs = {RunKey("teacher-1", {"log10_alpha": alpha}): ds for alpha, ds in flows.items()}
    runs[RunKey("teacher-1", kind="algorithm")] = algorithm_run(GOAL, STAGES)
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


def test_flows_are_needed_if_the_network_has_a_run_of_algorithm_1() -> None:
    flow = {"log10_alpha": -8.0}
    needed = [RunKey("teacher-1", flow), RunKey("teacher-1", kind="algorithm")]
    others = [
        RunKey("teacher-1", kind="conservation"),
        RunKey("diagonal", flow),
        RunKey("teacher-1", flow, experiment="boix2023/assumptions"),
        RunKey("vit", {"scale": 1.0}),
    ]
    assert list(B1.needs([*needed, *others])) == needed
    assert list(B4.needs([*needed, *others])) == others[:1]


def test_networks_of_two_experiments_are_judged_together_and_stay_apart() -> None:
    places, runs = [("toy-diag", "teacher-1"), ("diag-transformer", "bases")], {}
    for experiment, name in places:
        key = RunKey(name, kind="algorithm", experiment=experiment)
        runs[key] = {0: algorithm_run(GOAL, STAGES)}
        for log10_alpha, ds in FLOWS.items():
            key = RunKey(name, {"log10_alpha": log10_alpha}, experiment=experiment)
            runs[key] = {0: ds}
    for rule in (B1, B2, B3):
        networks = judge(rule, AvailableRuns(runs)).networks
        assert [(network.experiment, network.network) for network in networks] == places


def test_share_of_a_straight_and_of_a_stepped_loss() -> None:
    time = np.linspace(0, 1, 11)
    straight = xr.Dataset({"loss": ("time", 1 - time)}, coords={"time": time})
    stepped = xr.Dataset({"loss": ("time", (time < 0.45).astype(float))}, coords={"time": time})
    assert steepest_share(straight) == pytest.approx(0.1)
    assert steepest_share(stepped) == pytest.approx(1.0)


@pytest.mark.parametrize("rule", [B1, B1_SATURATED])
def test_a_loss_that_is_no_sharper_at_a_smaller_alpha_fails_b1(rule: Rule) -> None:
    assert network(verdict(rule, {**FLOWS, -300.0: FLOWS[-8.0]})).word == "fails"


def test_a_share_that_is_one_cannot_rise_which_the_first_rule_does_not_know() -> None:
    """With four stages all is in the steepest tenth at 1e-300 and at 1e-1000 alike."""
    judged = network(verdict(B1))
    assert judged.word == "fails" and judged.value is not None and abs(judged.value) < 1e-9


@pytest.mark.parametrize("rule", [B1_SATURATED, B2, B3])
def test_a_flow_that_did_not_finish_tells_nothing(rule: Rule) -> None:
    judged = verdict(rule, {**FLOWS, -1000.0: FLOWS[-1000.0].assign_attrs(finished=False)})
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


@pytest.mark.parametrize(
    "flow",
    [
        crossed_together(FLOWS[-300.0]),
        with_intruder(FLOWS[-300.0], later=-1e-4),
        with_intruder(FLOWS[-300.0], later=1e-4),
    ],
    ids=["together", "intruder before", "intruder after"],
)
def test_two_coordinates_in_one_stage_fail_b2(flow: xr.Dataset) -> None:
    judged = network(verdict(B2, {**FLOWS, -300.0: flow}))
    assert (judged.word, judged.value) == ("fails", 2)


@pytest.mark.parametrize(
    ("counts", "farthest"), [([0, 1], 0), ([1, 1], 1), ([1, 3, 0], 3), ([0, 2], 2), ([], None)]
)
def test_the_printed_count_is_the_one_farthest_from_one(
    counts: list[int], farthest: int | None
) -> None:
    assert farthest_from_one(counts) == farthest


def test_a_stage_without_a_coordinate_fails_b2_and_is_printed() -> None:
    judged = verdict(B2, {**FLOWS, -300.0: SHORT})
    assert (network(judged).word, network(judged).value) == ("fails", 0)
    assert judged.tables[0].rows[0] == ("teacher-1", 0, "1e-300", 4, "kq.1", 0)


@pytest.mark.parametrize("fault", ["order", "sign", "never", "wrong b0"])
def test_faults_that_b3_shows(fault: str) -> None:
    flows, ds = dict(FLOWS), FLOWS[-1000.0]
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


def test_the_table_of_b3_shows_errors_in_percent_and_marks_stages_that_count() -> None:
    flows = {**FLOWS, -300.0: SHORT}
    rows = verdict(B3, flows, seeds=1).tables[0].rows
    for stage in stages_in_flows(algorithm_run(GOAL, STAGES), flows):
        if stage.log10_alpha in ALPHAS[1:]:
            column = 5 + 2 * ALPHAS[1:].index(stage.log10_alpha)
            error = None if math.isnan(stage.error) else 100 * stage.error
            assert rows[stage.stage - 1][column : column + 2] == (error, stage.resolved)
    # (t_k - T_k) / T_k = log(0.001 / 0.249) / (2 log(1/alpha)) for |z*| = 0.25
    assert rows[-1][5:9:2] == pytest.approx((-14.98, -1.87), abs=0.01) and rows[-1][9] is None


@pytest.mark.parametrize("rule", [B2, B3])
def test_unresolved_stages_decide_nothing(rule: Rule) -> None:
    flows = {alpha: flow_run(GOAL, alpha) for alpha in (-2.0, -4.0)}
    assert network(verdict(rule, flows)).word == "no data"


@pytest.mark.parametrize(
    ("drift", "error", "finished", "word"),
    [
        (1e-10, 2.0, True, "holds"),
        (1e-7, 2.0, True, "fails"),
        (1e-10, 1e3, True, "fails"),
        (1e-10, 2.0, False, "no data"),
    ],
)
def test_conservation(drift: float, error: float, finished: bool, word: str) -> None:
    ds = xr.Dataset(
        {"drift": ("time", [0.0, drift]), "gd_error": ("step", [1.0, error])},
        attrs={"finished": finished},
    )
    key = RunKey("teacher-1", kind="conservation")
    judged = network(judge(B4, AvailableRuns({key: dict.fromkeys(range(3), ds)})))
    assert judged.word == word and judged.value == (drift if finished else None)
