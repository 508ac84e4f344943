"""Stages of Algorithm 1 in flows, on runs in closed form."""

import math

import numpy as np
import pytest
import xarray as xr

from lab.papers.boix2023.toy_runs import ALPHAS, GOAL, STAGES, algorithm_run, flow_run
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.papers.boix2023.stages import (
    StageInFlow,
    error_dataset,
    flows_and_algorithm,
    flows_of,
    short_names,
    stages_in_flows,
)
from rankscope.lab.running.run_key import RunKey

ALGORITHM, FLOW = algorithm_run(GOAL, STAGES), flow_run(GOAL, -1000.0)


def stages_of(flow: xr.Dataset = FLOW, algorithm: xr.Dataset = ALGORITHM) -> list[StageInFlow]:
    return stages_in_flows(algorithm, {flow.attrs["log10_alpha"]: flow})


def test_flows_of_a_network_come_with_the_largest_alpha_first() -> None:
    keys = [RunKey("a", {"log10_alpha": alpha}) for alpha in (-300.0, -2.0, -8.0)]
    others = [RunKey("a", kind="algorithm"), RunKey("b", {"log10_alpha": -8.0})]
    runs = Runs({key: {0: xr.Dataset(attrs=vars(key)), 1: None} for key in (*keys, *others)})
    flows = flows_of(runs, "a", 0)
    assert list(flows) == [-2.0, -8.0, -300.0]
    assert all(vars(RunKey("a", {"log10_alpha": alpha})) == flows[alpha].attrs for alpha in flows)


def test_names_are_short_if_there_is_one_head() -> None:
    assert short_names(ALGORITHM)[0] == "kq.0"
    two = ALGORITHM.assign_coords(head=("coordinate", [0, 1] * 3))
    assert short_names(two)[0] == "l0.h0.kq.0"


@pytest.mark.parametrize("log10_alpha", ALPHAS[1:])
def test_times_and_constants_are_those_of_the_closed_form(log10_alpha: float) -> None:
    stages = stages_of(flow_run(GOAL, log10_alpha))
    sizes, threshold = np.sort(abs(GOAL))[::-1][:STAGES], 1e-3
    for stage, size in zip(stages, sizes, strict=True):
        constant = math.log(4 * size * threshold / (size - threshold)) / (2 * size)
        assert stage.predicted == pytest.approx(1 / size)
        assert stage.constant == pytest.approx(constant)
        assert stage.error == pytest.approx(constant * size / (-log10_alpha * math.log(10)))
        assert stage.same_sign and stage.activations == 1
    assert [stage.winner for stage in stages] == ["kq.0", "vo.0", "vo.1", "kq.1"]
    assert [stage.stage for stage in stages] == [1, 2, 3, 4]


def test_a_stage_is_resolved_if_it_lasts_ten_transitions() -> None:
    """Stage 2 lasts 1/0.97 - 1 = 0.031: 4.6 e-foldings of 1 at 1e-64, 71 at 1e-1000; 10 resolve."""
    goal = np.array([2.0, 1.0, 0.97, 0.25, 0.02, 0.02])
    flows = {log10_alpha: flow_run(goal, log10_alpha) for log10_alpha in (-64.0, -1000.0)}
    stages = stages_in_flows(algorithm_run(goal, STAGES), flows)
    errors = error_dataset(stages)
    assert errors["resolved"].values.tolist() == [[True, False, True, True], [True] * 4]
    assert errors["activation_error"][0, 0] == abs(stages[0].error)
    assert errors["log10_alpha"].values.tolist() == [-64.0, -1000.0]


def test_a_stage_that_did_not_come_to_rest_is_not_resolved() -> None:
    unrest = ALGORITHM.assign(stage_transition=("stage", [np.nan] * (STAGES + 1)))
    assert not any(stage.resolved for stage in stages_of(algorithm=unrest))


@pytest.mark.parametrize(("time", "activations"), [(1.9, 1), (2.1, 2)])
def test_a_late_winner_of_the_stage_before_is_not_counted(time: float, activations: int) -> None:
    """Stages 2 and 3 begin at 1 and 2: the second winner at 1.9 is near 2, and early at 2.1."""
    times = FLOW["crossing_time"].to_numpy().copy()
    times[1] = time
    late = FLOW.assign(crossing_time=("crossing", times)).sortby("crossing_time")
    assert stages_of(late)[2].activations == stages_of(late)[2].newly_active == activations


def test_a_coordinate_that_wins_again_is_read_at_its_second_entry() -> None:
    again = ALGORITHM.assign(stage_winner=("stage", [-1, 0, 0, 4, 1]))
    coordinates = [0, 0, *FLOW["crossing_coordinate"].to_numpy()[2:]]
    twice = FLOW.assign(crossing_coordinate=("crossing", coordinates))
    times = [stage.time for stage in stages_of(twice, again)]
    assert times[:2] == FLOW["crossing_time"].to_numpy()[:2].tolist()
    once = stages_of(FLOW, again)[1]
    assert math.isnan(once.time) and not once.same_sign and once.activations == 0


def test_without_its_winner_a_stage_has_the_entries_around_its_predicted_time() -> None:
    """Stages 2, 3 and 4 begin at 1, 2 and 4, so stage 3 reaches from 1.5 to 3."""
    times = FLOW["crossing_time"].to_numpy().copy()
    times[3] = 2.9
    third = FLOW["crossing_coordinate"].to_numpy()[2]
    early = FLOW.assign(crossing_time=("crossing", times))
    without = early.isel(crossing=np.flatnonzero(early["crossing_coordinate"] != third))
    stage = stages_of(without)[2]
    assert math.isnan(stage.time) and (stage.activations, stage.newly_active) == (0, 1)
    assert stages_of(early)[2].newly_active == 2


def test_needs_are_algorithm_1_and_flows_of_its_networks_between_two_alphas() -> None:
    flows = [RunKey("teacher-1", {"log10_alpha": alpha}) for alpha in (-2.0, -4.0, -32.0, -64.0)]
    algorithm = RunKey("teacher-1", kind="algorithm")
    others = [
        RunKey("teacher-1", kind="conservation"),
        RunKey("diagonal", {"log10_alpha": -8.0}),
        RunKey("teacher-1", {"log10_alpha": -8.0}, experiment="boix2023/assumptions"),
        RunKey("vit", {"scale": 1.0}),
    ]
    keys = [*flows, algorithm, *others]
    assert list(flows_and_algorithm()(keys)) == [*flows, algorithm]
    assert list(flows_and_algorithm(-4.0, -32.0)(keys)) == [*flows[1:3], algorithm]
