"""Jumps and other events in lines that are known, and of a run itself."""

from pathlib import Path

import numpy as np
import pytest
import torch

import rankscope as rs
from rankscope.view.events import jumps
from view.viewed_runs import serving, write


def test_a_step_beyond_the_noise_is_a_jump() -> None:
    values = np.cumsum(np.random.default_rng(0).normal(0, 0.01, 200)) + 5
    assert [place for place, _ in jumps(values + 3 * (np.arange(200) >= 120))] == [120]


def test_smooth_short_and_constant_lines_have_none() -> None:
    for values in (np.linspace(1, 2, 100), np.ones(50), np.arange(4.0), np.full(20, np.nan)):
        assert list(jumps(values)) == []


def of_run(path: Path, kind: str) -> list[tuple[float, int]]:
    """Return the step and the place of each event of one kind."""
    with serving(path) as server:
        events = server.get("events", run=server.key(path.name)).json["events"]
    return [(event["x"], event["position"]) for event in events if event["kind"] == kind]


@pytest.mark.parametrize("again", [30, 22], ids=["after the last step", "at an earlier step"])
def test_a_resumed_training_is_an_event(tmp_path: Path, again: int) -> None:
    """Weights stay as they are: nothing but the run tells of it."""
    model = torch.nn.Linear(3, 3)
    for steps in (range(30), range(again, 50)):
        with rs.Tracker(model, tmp_path / "run", schedule=5, resume=True) as tracker:
            for step in steps:
                tracker.observe(step, loss=1.0)
        expected = [(again, (again + 4) // 5)] if steps[0] else []
        assert of_run(tmp_path / "run", "resume") == expected


def test_times_that_no_training_has_are_left_out(tmp_path: Path) -> None:
    wrong = [10**400, "<img>", None, True, [4]]
    write(tmp_path / "run", range(0, 60, 2), resumed_at=[*wrong, 7], diverged_at=-(10**400))
    assert of_run(tmp_path / "run", "resume") == [(7, 4)]
    assert of_run(tmp_path / "run", "diverged") == []


def test_what_breaks_falls_or_jumps_is_an_event(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(20, 20), torch.nn.Linear(20, 20))
    weights = [model[0].weight.data, model[1].weight.data]
    for weight in weights:
        torch.nn.init.eye_(weight)
    with (
        pytest.warns(RuntimeWarning, match="cannot be decomposed"),
        rs.Tracker(model, tmp_path / "run", schedule=1) as tracker,
    ):
        for step in range(40):
            if step == 20:
                weights[0].fill_(1.0)  # rank one
            if step == 30:
                weights[1].fill_(torch.nan)
            loss = 5.0 if step >= 25 else 1.0 + 0.001 * (step % 2)
            tracker.observe(step, loss=loss, rate=0.1 if step < 12 else 0.05)
    with serving(tmp_path) as server:
        events = server.get("events", run=server.key("run")).json["events"]
    assert {(event["kind"], event["x"], event["name"]) for event in events} == {
        ("rate", 12, "rate"),
        ("collapse", 20, "0"),
        ("jump", 20, "0"),
        ("jump", 25, "loss"),
        ("nan", 30, "1"),
    }
