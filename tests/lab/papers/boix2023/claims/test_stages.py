"""Claims B2 and B3 on runs in closed form: the whitened network, with stages T_k = 1 / |z*|."""

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
from rankscope.lab.papers.boix2023.claims.losses import B1
from rankscope.lab.papers.boix2023.claims.stages import (
    B2,
    B2_FIRST,
    B3,
    B3_FIRST,
    farthest_from_one,
)
from rankscope.lab.papers.boix2023.stages import stages_in_flows
from rankscope.lab.running.run_key import RunKey

FLOWS = {log10_alpha: flow_run(GOAL, log10_alpha) for log10_alpha in ALPHAS}
SHORT = FLOWS[-300.0].isel(crossing=slice(0, -1))  # the last coordinate stays at zero
ALGORITHM = algorithm_run(GOAL, STAGES)
TIED = ALGORITHM.assign(stage_tied=("stage", [0, 3, 0, 0, 0]))


def verdict(
    rule: Rule,
    flows: Mapping[float, xr.Dataset] = FLOWS,
    *,
    algorithm: xr.Dataset = ALGORITHM,
    seeds: int = 3,
) -> Verdict:
    runs = {RunKey("teacher-1", {"log10_alpha": alpha}): ds for alpha, ds in flows.items()}
    runs[RunKey("teacher-1", kind="algorithm")] = algorithm
    return judge(
        rule, AvailableRuns({key: dict.fromkeys(range(seeds), ds) for key, ds in runs.items()})
    )


def network(judged: Verdict) -> NetworkVerdict:
    (only,) = judged.networks
    assert only.network == "teacher-1"
    return only


@pytest.mark.parametrize("rule", [B2, B2_FIRST, B3, B3_FIRST])
def test_all_hold_for_the_flow_itself(rule: Rule) -> None:
    assert network(verdict(rule)).word == "holds"


def test_networks_of_two_experiments_are_judged_together_and_stay_apart() -> None:
    places, runs = [("toy-diag", "teacher-1"), ("diag-transformer", "bases")], {}
    for experiment, name in places:
        key = RunKey(name, kind="algorithm", experiment=experiment)
        runs[key] = {0: ALGORITHM}
        for log10_alpha, ds in FLOWS.items():
            key = RunKey(name, {"log10_alpha": log10_alpha}, experiment=experiment)
            runs[key] = {0: ds}
    for rule in (B1, B2, B3):
        networks = judge(rule, AvailableRuns(runs)).networks
        assert [(network.experiment, network.network) for network in networks] == places


@pytest.mark.parametrize("rule", [B2, B2_FIRST, B3, B3_FIRST])
def test_a_flow_that_did_not_finish_tells_nothing(rule: Rule) -> None:
    judged = verdict(rule, {**FLOWS, -1000.0: FLOWS[-1000.0].assign_attrs(finished=False)})
    assert network(judged).word == "no data" and "gave up" in judged.remarks[-1]


@pytest.mark.parametrize("rule", [B2, B3])
def test_flows_above_1e_8_are_not_read(rule: Rule) -> None:
    flows = {**FLOWS, -2.0: crossed_together(FLOWS[-2.0]).assign_attrs(finished=False)}
    assert network(verdict(rule, flows)).word == "holds"


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


@pytest.mark.parametrize("rule", [B2, B2_FIRST])
@pytest.mark.parametrize(
    "flow",
    [
        crossed_together(FLOWS[-300.0]),
        with_intruder(FLOWS[-300.0], later=-1e-4),
        with_intruder(FLOWS[-300.0], later=1e-4),
    ],
    ids=["together", "intruder before", "intruder after"],
)
def test_two_coordinates_in_one_stage_fail_b2(flow: xr.Dataset, rule: Rule) -> None:
    judged = verdict(rule, {**FLOWS, -300.0: flow})
    assert (network(judged).word, network(judged).value) == ("fails", 2)
    assert all(row[2] == "1e-300" and row[-1] == 2 for row in judged.tables[0].rows)


def test_two_coordinates_in_place_of_the_winner_fail_b2() -> None:
    """The second winner never comes; two coordinates that Algorithm 1 does not name do."""
    both = with_intruder(with_intruder(FLOWS[-300.0], later=1e-4), later=2e-4)
    second = FLOWS[-300.0]["crossing_coordinate"].to_numpy()[1]
    flow = both.isel(crossing=np.flatnonzero(both["crossing_coordinate"] != second))
    judged = network(verdict(B2, {**FLOWS, -300.0: flow}))
    assert (judged.word, judged.value) == ("fails", 2)


def test_a_stage_without_a_coordinate_fails_the_first_rule_of_b2_alone() -> None:
    flows = {**FLOWS, -300.0: SHORT}
    judged, first = verdict(B2, flows), verdict(B2_FIRST, flows)
    assert (network(judged).word, network(judged).value) == ("holds", 1)
    assert (network(first).word, network(first).value) == ("fails", 0)
    assert first.tables[0].rows[0] == ("teacher-1", 0, "1e-300", 4, "kq.1", 0)


@pytest.mark.parametrize(
    ("counts", "farthest"), [([0, 1], 0), ([1, 1], 1), ([1, 3, 0], 3), ([0, 2], 2), ([], None)]
)
def test_the_printed_count_is_the_one_farthest_from_one(
    counts: list[int], farthest: int | None
) -> None:
    assert farthest_from_one(counts) == farthest


def test_where_algorithm_1_ties_b2_cannot_tell() -> None:
    for flows in (FLOWS, {**FLOWS, -300.0: crossed_together(FLOWS[-300.0])}):
        judged = verdict(B2, flows, algorithm=TIED)
        assert (network(judged).word, network(judged).value) == ("no data", None)
        assert judged.remarks[0].startswith("teacher-1, seed 0: Algorithm 1 ties in stage 1, so")
    assert network(verdict(B2_FIRST, algorithm=TIED)).word == "holds"


@pytest.mark.parametrize("rule", [B2, B2_FIRST, B3, B3_FIRST])
def test_unresolved_stages_decide_nothing(rule: Rule) -> None:
    flows = {alpha: flow_run(GOAL, alpha) for alpha in (-2.0, -4.0, -6.0)}
    assert network(verdict(rule, flows)).word == "no data"


@pytest.mark.parametrize("rule", [B3, B3_FIRST])
@pytest.mark.parametrize("fault", ["order", "sign", "never", "wrong b0"])
def test_faults_that_b3_shows(fault: str, rule: Rule) -> None:
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
    assert network(verdict(rule, flows)).word == "fails"


def late(
    errors: Mapping[float, float], *, winner: int = 3, algorithm: xr.Dataset = ALGORITHM
) -> dict[float, xr.Dataset]:
    """Flows whose winners come at T_k, and the winner of one stage later by so many percent."""
    times, winners = (algorithm[f"stage_{name}"].to_numpy()[1:] for name in ("time", "winner"))
    flows = {}
    for log10_alpha, percent in errors.items():
        delayed = times * np.where(np.arange(1, len(times) + 1) == winner, 1 + percent / 100, 1)
        flows[log10_alpha] = xr.Dataset(
            {
                "crossing_time": ("crossing", delayed),
                "crossing_coordinate": ("crossing", winners),
                "crossing_entered": ("crossing", np.ones(len(times), dtype=np.int8)),
                "crossing_sign": ("crossing", algorithm["stage_sign"].to_numpy()[1:]),
            },
            coords={"time": [0.0, 6.0]},
            attrs={"finished": True},
        )
    return flows


@pytest.mark.parametrize(
    ("errors", "word"),
    [
        ({-64.0: 2.0, -300.0: 0.99, -1000.0: 0.5}, "holds"),
        ({-64.0: -2.0, -300.0: 0.99, -1000.0: -0.5}, "holds"),  # sizes are compared
        ({-64.0: 2.0, -300.0: 1.01, -1000.0: 0.5}, "fails"),
        ({-64.0: 0.5, -300.0: 0.5, -1000.0: 0.2}, "fails"),
        ({-64.0: 0.9, -300.0: 0.5, -1000.0: 0.6}, "fails"),
        ({-300.0: 0.9, -1000.0: 0.5, -3000.0: 0.2}, "holds"),
        ({-300.0: 1.1, -1000.0: 0.5, -3000.0: 0.2}, "fails"),
        # 1e-300 is read, though it is none of the three smallest
        ({-300.0: 1.1, -1000.0: 0.5, -3000.0: 0.2, -9000.0: 0.1}, "fails"),
        # the three smallest have to fall, and not 1e-8
        ({-8.0: 0.1, -64.0: 2.0, -300.0: 0.9, -1000.0: 0.5}, "holds"),
        ({-300.0: 0.9, -1000.0: 0.5}, "no data"),
        ({-64.0: 2.0, -200.0: 0.9, -1000.0: 0.5}, "no data"),
    ],
)
def test_errors_fall_to_one_percent(errors: dict[float, float], word: str) -> None:
    judged = network(verdict(B3, late(errors)))
    assert judged.word == word
    if -300.0 in errors:
        assert judged.value == pytest.approx(errors[-300.0] / 100)


@pytest.mark.parametrize(("winner", "word"), [(1, "fails"), (2, "holds")])
def test_stages_count_if_they_are_resolved_at_the_largest_of_three_alphas(
    winner: int, word: str
) -> None:
    """Stage 2 lasts 1/0.97 - 1 = 0.031, which is not resolved at 1e-64 but at 1e-1000."""
    algorithm = algorithm_run(np.array([2.0, 1.0, 0.97, 0.25, 0.02, 0.02]), STAGES)
    flows = late(dict.fromkeys((-64.0, -300.0, -1000.0), -20.0), winner=winner, algorithm=algorithm)
    for percent, log10_alpha in ((0.9, -64.0), (0.5, -300.0), (0.2, -1000.0)):
        times = flows[log10_alpha]["crossing_time"].to_numpy().copy()
        times[3] *= 1 + percent / 100
        flows[log10_alpha] = flows[log10_alpha].assign(crossing_time=("crossing", times))
    assert network(verdict(B3, flows, algorithm=algorithm)).word == word


def test_resolved_stages_have_to_come_in_order_at_1e_8_too() -> None:
    flows = late({-8.0: 0.0, -64.0: 2.0, -300.0: 0.9, -1000.0: 0.5})
    resolved = [s.stage for s in stages_in_flows(ALGORITHM, {-8.0: flows[-8.0]}) if s.resolved]
    assert len(resolved) > 1
    sign = flows[-8.0]["crossing_sign"].to_numpy().copy()
    sign[resolved[0] - 1] *= -1
    flows[-8.0] = flows[-8.0].assign(crossing_sign=("crossing", sign))
    assert network(verdict(B3, flows)).word == "fails"


def test_the_tables_of_b3_show_errors_in_percent_and_mark_stages_that_count() -> None:
    flows = {**FLOWS, -300.0: SHORT}
    rows = verdict(B3_FIRST, flows, seeds=1).tables[0].rows
    stages = stages_in_flows(ALGORITHM, flows)
    at_64 = {stage.stage: stage.resolved for stage in stages if stage.log10_alpha == -64.0}
    other_rows = verdict(B3, flows, seeds=1).tables[0].rows
    for stage in stages:
        if stage.log10_alpha in ALPHAS[1:]:
            column = 5 + 2 * ALPHAS[1:].index(stage.log10_alpha)
            error = None if math.isnan(stage.error) else 100 * stage.error
            assert rows[stage.stage - 1][column : column + 2] == (error, stage.resolved)
            cells = other_rows[stage.stage - 1][column : column + 2]
            assert cells == (error, at_64[stage.stage])
    # (t_k - T_k) / T_k = log(0.001 / 0.249) / (2 log(1/alpha)) for |z*| = 0.25
    assert rows[-1][5:9:2] == pytest.approx((-14.98, -1.87), abs=0.01) and rows[-1][9] is None
