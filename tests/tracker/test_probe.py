"""Probes: measurements of the user's own at each snapshot."""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import rankscope as rs
from rankscope.tracker import Probe


class Energy:
    """The share of squared norm in the leading directions, and the running mean of the norm."""

    def __init__(self, directions: Mapping[str, int]) -> None:
        self.directions = directions
        self.threads: set[str] = set()

    def __call__(
        self, tensors: Mapping[str, Tensor], directions: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        self.threads.add(threading.current_thread().name)
        W, V = tensors["0.weight"].double(), directions["0"]
        assert V.shape == (5, 2)  # of the shorter side
        return {
            "energy": (W @ V).square().sum() / W.square().sum(),
            "mean": tensors["1.running_mean"].sum(),
        }


def model() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6))


@pytest.mark.parametrize(("beside", "top"), [("thread", 100), ("process", 1)])
def test_a_probe_sees_the_weights_of_its_snapshot(
    tmp_path: Path, beside: Literal["thread", "process"], top: int
) -> None:
    """It may ask for more directions than overlaps need."""
    network, probe = model(), Energy({"0": 2})
    assert isinstance(probe, Probe)
    energies, means = [], []
    tracker = rs.Tracker(
        network, tmp_path / "run", schedule=1, probe=probe, strict=True, beside=beside, top=top
    )
    with tracker, torch.no_grad():
        for step in range(3):
            tracker.observe(step, loss=step)
            S = torch.linalg.svdvals(network[0].weight.double())
            energies.append(float(S[:2].square().sum() / S.square().sum()))
            means.append(float(network[1].running_mean.sum()))
            network(torch.randn(8, 5, generator=torch.Generator().manual_seed(step)))
            network[0].weight.mul_(torch.linspace(0.5, 2, 5))
    run = rs.open(tmp_path / "run")
    np.testing.assert_allclose(run["energy"], energies, rtol=1e-6)
    np.testing.assert_allclose(run["mean"], means, rtol=1e-6)
    assert run["loss"].to_numpy().tolist() == [0, 1, 2]
    assert run["change_singular_values"].sizes["matrix"] == 1  # none of buffers, norms, biases
    assert probe.threads == {"rankscope-tracker"}


def test_directions_of_an_unknown_matrix(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="directions are asked of 'fc', which is not among"):
        rs.Tracker(model(), tmp_path / "run", probe=Energy({"fc": 2}))


def test_a_plain_function_is_a_probe_without_directions(tmp_path: Path) -> None:
    net = model()
    seen: list[dict[str, Any]] = []

    def first_entry(tensors: Any, directions: Any) -> dict[str, Any]:
        seen.append(dict(directions))
        return {"first_entry": tensors["0.weight"][0, 0]}

    with rs.Tracker(net, tmp_path / "run", schedule=1, probe=first_entry, strict=True) as tracker:
        tracker.observe(0)
    assert seen == [{}]
    stored = float(rs.open(tmp_path / "run").first_entry[0])
    assert stored == net.state_dict()["0.weight"][0, 0].item()


def test_a_failing_probe_lets_training_go_on(tmp_path: Path) -> None:
    tracker = rs.Tracker(model(), tmp_path / "run", schedule=1, probe=Energy({"0": 3}))
    tracker.observe(0)
    with pytest.warns(RuntimeWarning, match="training goes on"):
        tracker.close()
    assert tracker.failed is not None
