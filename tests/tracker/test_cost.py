"""The cost that a tracker states is what its snapshots took."""

import importlib
import time

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import rankscope as rs
from rankscope.tracker.cost import Cost
from tracker.tracked import network, take_step


def test_the_cost_grows_with_each_snapshot(tmp_path) -> None:
    model = network()
    with rs.Tracker(model, tmp_path / "run", schedule=1, places=3, strict=True) as tracker:
        assert tracker.cost == Cost()
        for step in range(4):
            tracker.observe(step)
            take_step(model, step)
            tracker.flush()
            assert tracker.cost.snapshots == step + 1
        cost = tracker.cost
    ds = rs.open(tmp_path / "run")
    lost = float(ds["tracker_wait_seconds"].sum() + ds["tracker_copy_seconds"].sum())
    np.testing.assert_allclose(cost.seconds, lost, rtol=1e-12)
    np.testing.assert_allclose(cost.measuring_seconds, ds["tracker_compute_seconds"].sum())
    weights = sum(p.nbytes for p in model.parameters() if p.ndim == 2)
    assert cost.bytes == ds.attrs["tracker_bytes"] == 4 * weights  # three copies and the reference
    assert str(cost).startswith("4 snapshots: training lost")


def test_waiting_for_a_free_place_is_lost_time(tmp_path) -> None:
    def slow(tensors, directions) -> dict[str, float]:
        time.sleep(0.2)
        return {}

    slow.directions = {}
    model = nn.Linear(4, 4)
    with rs.Tracker(model, tmp_path / "run", schedule=1, places=1, probe=slow) as tracker:
        began = time.perf_counter()
        for step in range(3):
            tracker.observe(step)
        elapsed = time.perf_counter() - began
        tracker.flush()
        cost = tracker.cost
    assert 0.35 <= cost.seconds <= elapsed + 0.05 and cost.measuring_seconds >= 0.6


@pytest.mark.parametrize("measure", [rs.Activations("0"), rs.Gradients(at="backward")])
def test_hooks_are_lost_time(tmp_path, monkeypatch, measure) -> None:
    def slow(*args: object) -> Tensor:
        time.sleep(0.1)
        return original(*args)

    name = "as_tokens" if measure.name == "activations" else "_dense"
    module = importlib.import_module(f"rankscope.measures.{measure.name}")
    original = getattr(module, name)
    monkeypatch.setattr(module, name, slow)
    model = nn.Sequential(nn.Linear(4, 4))
    with rs.Tracker(model, tmp_path / "run", schedule=1, measure=measure) as tracker:
        for step in range(2):
            model(torch.randn(3, 4)).sum().backward()
            tracker.observe(step)
            tracker.flush()
    assert 0.2 <= tracker.cost.seconds < 1.0


def test_memory_does_not_add_up_when_a_run_goes_on(tmp_path) -> None:
    for start in (0, 2):
        with rs.Tracker(network(), tmp_path / "run", schedule=1, resume=start > 0) as tracker:
            tracker.observe(start)
        held = rs.open(tmp_path / "run").attrs["tracker_bytes"]
        assert held == tracker.cost.bytes


def test_a_tracker_that_failed_has_a_cost(tmp_path) -> None:
    model = nn.Linear(4, 4)
    with torch.no_grad():
        model.weight.fill_(1.0)
    (tmp_path / "run").write_text("not a run")
    with pytest.warns(RuntimeWarning):
        tracker = rs.Tracker(model, tmp_path / "run" / "inside")
    assert tracker.cost == Cost()
