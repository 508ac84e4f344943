"""Stored simulation runs against the theory called by hand."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from rankscope import store
from rankscope.lab.papers.boix2023.simulations.algorithm import AlgorithmRun
from rankscope.lab.papers.boix2023.simulations.conservation import ConservationRun
from rankscope.lab.papers.boix2023.simulations.flow import FlowRun
from rankscope.lab.papers.boix2023.simulations.task import DiagonalTask, horizon
from rankscope.theory import diagonal_attention, flow, incremental

TASK = DiagonalTask(d=3, tokens=3, samples=20)


def quiet(fraction: float) -> None:
    assert 0 <= fraction <= 1


def test_task_is_reproducible_and_realisable() -> None:
    toy, again, other = TASK.build(0), TASK.build(0), TASK.build(1)
    assert torch.equal(toy.u0, again.u0) and torch.equal(toy.network.target, again.network.target)
    assert not torch.equal(toy.u0, other.u0)
    # Half the teacher's products: V-O enters the output once, so at K-Q = 0 targets halve.
    half = DiagonalTask(d=3, tokens=3, samples=20, teacher_scale=0.5).build(0)
    assert torch.equal(half.network.x, toy.network.x)
    # The teacher's own z has no loss: find it again from the same generator.
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(20, 3, 3, generator=generator, dtype=torch.float64)
    K, Q, V, O = torch.randn(4, 3, generator=generator, dtype=torch.float64)  # noqa: E741
    assert toy.network.loss(torch.cat([K * Q, V * O])) == 0
    torch.testing.assert_close(half.network.target, diagonal_attention(x, 0.5 * K * Q, 0.5 * V * O))


def test_flow_run_stores_the_flow(tmp_path: Path) -> None:
    FlowRun(TASK, -16.0, stages=2).execute(tmp_path / "run", seed=0, progress=quiet)
    ds = store.open(tmp_path / "run")
    toy = TASK.build(0)
    end = horizon(toy, 2)
    trajectory = flow(toy.network, toy.u0, toy.v0, -16 * math.log(10), end)
    np.testing.assert_array_equal(ds["time"], trajectory.time)
    for name in ("z", "y", "loss"):
        np.testing.assert_array_equal(ds[name], getattr(trajectory, name))
    assert ds.attrs["log10_alpha"] == -16
    assert ds.attrs["gradient_evaluations"] == trajectory.gradient_evaluations
    assert ds["crossing_time"].values.tolist() == [
        crossing.time for crossing in trajectory.crossings
    ]
    assert ds["coordinate"].values.tolist() == [str(c) for c in toy.network.coordinates]
    assert ds["kind"].values.tolist() == ["kq"] * 3 + ["vo"] * 3


def test_algorithm_run_stores_the_stages_before_the_horizon(tmp_path: Path) -> None:
    AlgorithmRun(TASK, stages=2).execute(tmp_path / "run", seed=0, progress=quiet)
    ds = store.open(tmp_path / "run")
    toy = TASK.build(0)
    end = horizon(toy, 2)
    stages = [stage for stage in incremental(toy.network, 6) if stage.time < end]
    assert ds.sizes["stage"] == len(stages)
    assert ds["stage_time"].values.tolist() == [stage.time for stage in stages]
    assert ds["stage_winner"].values.tolist() == [-1, *(stage.winner for stage in stages[1:])]
    for k, stage in enumerate(stages):
        np.testing.assert_array_equal(ds["stage_z"][k], stage.z)
        np.testing.assert_array_equal(ds["stage_b"][k], stage.b)
        assert float(ds["stage_hessian_u"][k]) == stage.certificate.hessian_u


def test_horizon_asks_for_no_more_stages_than_there_are() -> None:
    toy = DiagonalTask(d=1, tokens=2, samples=5).build(0)
    with pytest.raises(ValueError, match="fewer than 3 stages"):
        horizon(toy, 3)


def test_conservation_run(tmp_path: Path) -> None:
    run = ConservationRun(TASK, log10_alpha=-2.0, stages=1, rate=0.05, steps=5)
    run.execute(tmp_path / "run", seed=0, progress=quiet)
    ds = store.open(tmp_path / "run")
    assert float(ds["drift"][0]) == 0
    assert 0 < float(ds["drift"].max()) < 1e-8
    assert ds["gd_error"].shape == (5,)
    assert 0 < float(ds["gd_error"].max()) < 16
