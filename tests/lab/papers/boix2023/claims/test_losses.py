"""Claim B1 on losses that are straight, and on runs in closed form."""

from collections.abc import Mapping

import numpy as np
import pytest
import xarray as xr

from lab.papers.boix2023.toy_runs import ALPHAS, GOAL, STAGES, algorithm_run, flow_run
from rankscope.lab.judging.available_runs import AvailableRuns
from rankscope.lab.judging.rule import Rule
from rankscope.lab.judging.study import judge
from rankscope.lab.judging.verdict import NetworkVerdict, Verdict
from rankscope.lab.papers.boix2023.claims.losses import (
    B1,
    B1_FIRST,
    distance_from_staircase,
    mean_sizes,
    steepest_share,
)
from rankscope.lab.running.run_key import RunKey

FLOWS = {log10_alpha: flow_run(GOAL, log10_alpha) for log10_alpha in ALPHAS}


def verdict(rule: Rule, flows: Mapping[float, xr.Dataset], algorithm: xr.Dataset) -> Verdict:
    runs = {RunKey("teacher-1", {"log10_alpha": alpha}): ds for alpha, ds in flows.items()}
    runs[RunKey("teacher-1", kind="algorithm")] = algorithm
    return judge(
        rule, AvailableRuns({key: dict.fromkeys(range(3), ds) for key, ds in runs.items()})
    )


def network(judged: Verdict) -> NetworkVerdict:
    (only,) = judged.networks
    assert only.network == "teacher-1"
    return only


def straight(percent: float, *, end: float = 1.0, finished: bool = True) -> xr.Dataset:
    """A loss that falls from 100 in a straight line, by twice so many percent until time 1."""
    loss = [100.0, 100 - 2 * percent * end]
    return xr.Dataset(
        {"loss": ("time", loss)}, coords={"time": [0.0, end]}, attrs={"finished": finished}
    )


def steps(*times: float, tied: int = 0) -> xr.Dataset:
    """Stages at these times, at losses of 100, 90, 80 and so on."""
    return xr.Dataset(
        {
            "stage_time": ("stage", list(times)),
            "stage_loss": ("stage", 100.0 - 10 * np.arange(len(times))),
            "stage_tied": ("stage", [0] * (len(times) - 1) + [tied]),
        },
        coords={"stage": np.arange(len(times))},
    )


def judged(percents: Mapping[float, float], algorithm: xr.Dataset | None = None) -> NetworkVerdict:
    flows = {log10_alpha: straight(percent) for log10_alpha, percent in percents.items()}
    return network(verdict(B1, flows, steps(0.0, 1.0) if algorithm is None else algorithm))


FALLING = {-4.0: 20.0, -8.0: 10.0, -16.0: 5.0, -32.0: 3.0}


def test_a_distance_that_falls_to_three_percent_holds() -> None:
    assert (judged(FALLING).word, judged(FALLING).value) == ("holds", pytest.approx(0.03))


@pytest.mark.parametrize(
    "changed",
    [{-32.0: 3.01}, {-16.0: 10.0}, {-8.0: 20.5}, {-16.0: 2.9}],
    ids=["too far at the end", "one stays", "one rises", "the last rises"],
)
def test_one_that_does_not_fall_or_ends_too_far_fails(changed: dict[float, float]) -> None:
    assert judged(FALLING | changed).word == "fails"


def test_only_alphas_from_1e_4_to_1e_32_are_read() -> None:
    others = {-2.0: 1.0, -64.0: 40.0}
    assert judged(FALLING | others).word == "holds"
    flows = {alpha: straight(percent) for alpha, percent in FALLING.items()}
    flows[-64.0] = straight(40.0, finished=False)
    assert network(verdict(B1, flows, steps(0.0, 1.0))).word == "holds"


@pytest.mark.parametrize(
    "percents", [{-4.0: 20.0, -16.0: 2.0}, {-32.0: 2.0}, {-2.0: 20.0, -64.0: 2.0}]
)
def test_without_1e_32_or_a_larger_alpha_it_cannot_tell(percents: dict[float, float]) -> None:
    assert judged(percents).word == "no data"


def test_where_algorithm_1_ties_it_cannot_tell() -> None:
    flows = {alpha: straight(percent) for alpha, percent in FALLING.items()}
    tied = verdict(B1, flows, steps(0.0, 1.0, tied=3))
    assert (network(tied).word, network(tied).value) == ("no data", None)
    assert tied.remarks[0] == (
        "teacher-1, seed 0: Algorithm 1 ties in stage 1, so this seed cannot tell"
    )


def test_where_algorithm_1_finds_no_stage_it_cannot_tell() -> None:
    assert judged(FALLING, steps(0.0)).word == "no data"
    assert judged(FALLING, steps(0.0, 1.5)).word == "no data"  # begins after the flow


@pytest.mark.parametrize("rule", [B1, B1_FIRST])
def test_a_flow_that_did_not_finish_tells_nothing(rule: Rule) -> None:
    flows = {alpha: straight(percent) for alpha, percent in FALLING.items()}
    flows[-8.0] = straight(10.0, finished=False)
    made = verdict(rule, flows, steps(0.0, 1.0))
    assert network(made).word == "no data" and "gave up" in made.remarks[-1]


def test_the_distance_ends_with_the_last_stage_within_the_flow() -> None:
    """The loss, 100 - 20 t, is apart by 20 t until 1 and by 20 t - 10 until 2: by 10 and by 20."""
    flow = straight(10.0, end=2.5)
    assert distance_from_staircase(flow, steps(0.0, 1.0)) == pytest.approx(0.1)
    for algorithm in (steps(0.0, 1.0, 2.0), steps(0.0, 1.0, 2.0, 2.6)):
        assert distance_from_staircase(flow, algorithm) == pytest.approx((10 + 20) / 2 / 100)


def test_mean_sizes_of_straight_lines() -> None:
    first, last = np.array([1.0, -1, -1, 0, -2, 0]), np.array([3.0, 1, 3, 2, -4, 0])
    np.testing.assert_allclose(mean_sizes(first, last), [2, 0.5, 1.25, 1, 3, 0])


@pytest.mark.parametrize("log10_alpha", [-8.0, -64.0])
def test_the_distance_is_that_of_a_dense_sum(log10_alpha: float) -> None:
    flow, algorithm = FLOWS[log10_alpha], algorithm_run(GOAL, STAGES)
    last = float(algorithm["stage_time"][-1])
    time = (np.arange(200_000) + 0.5) * last / 200_000
    loss = np.interp(time, flow["time"], flow["loss"])
    stage = (time[:, None] >= algorithm["stage_time"].to_numpy()).sum(1) - 1
    apart = abs(loss - algorithm["stage_loss"].to_numpy()[stage]).mean() / float(flow["loss"][0])
    assert distance_from_staircase(flow, algorithm) == pytest.approx(apart, rel=1e-3)


def test_the_flow_itself_holds() -> None:
    flows = {alpha: flow_run(GOAL, alpha) for alpha in (-4.0, -8.0, -16.0, -32.0)}
    assert network(verdict(B1, flows, algorithm_run(GOAL, STAGES))).word == "holds"


def test_share_of_a_straight_and_of_a_stepped_loss() -> None:
    time = np.linspace(0, 1, 11)
    falling = xr.Dataset({"loss": ("time", 1 - time)}, coords={"time": time})
    stepped = xr.Dataset({"loss": ("time", (time < 0.45).astype(float))}, coords={"time": time})
    assert steepest_share(falling) == pytest.approx(0.1)
    assert steepest_share(stepped) == pytest.approx(1.0)


def test_the_first_rule_asks_that_the_share_rises_at_each_alpha() -> None:
    algorithm = algorithm_run(GOAL, STAGES)
    some = {alpha: FLOWS[alpha] for alpha in (-2.0, -8.0, -64.0)}
    assert network(verdict(B1_FIRST, some, algorithm)).word == "holds"
    same = {**FLOWS, -300.0: FLOWS[-8.0]}
    assert network(verdict(B1_FIRST, same, algorithm)).word == "fails"


def test_a_share_that_is_one_cannot_rise_which_the_first_rule_does_not_know() -> None:
    """With four stages all is in the steepest tenth at 1e-300 and at 1e-1000 alike."""
    first = network(verdict(B1_FIRST, FLOWS, algorithm_run(GOAL, STAGES)))
    assert first.word == "fails" and first.value is not None and abs(first.value) < 1e-9
