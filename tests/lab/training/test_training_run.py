"""Stored values, divergence and failures of one training."""

import copy
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr

from lab.training.toy_task import Clouds, CloudTask, silent
from rankscope import store, truncate
from rankscope.interventions import reestimate_batchnorm
from rankscope.lab.running.processes import attempt
from rankscope.lab.running.run_key import RunKey
from rankscope.lab.running.stored_run import StoredRun
from rankscope.lab.training import loop
from rankscope.lab.training.evaluation import Truncation
from rankscope.lab.training.optimizers import AdamW, Sgd
from rankscope.lab.training.order import Order, generator
from rankscope.lab.training.rates import Drops
from rankscope.lab.training.training_run import TrainingRun
from rankscope.tracker import Epochs, Every

RUN = TrainingRun(
    task=CloudTask(),
    optimizer=Sgd(rate=0.1, decay=0.01),
    steps=60,
    batch=20,
    snapshots=Every(10),
    rate=Drops(at=(30,)),
    truncation=Truncation(norm_samples=40),
    paper_decay=0.001,
)


def executed(run: TrainingRun, path: Path, *, seed: int = 0) -> xr.Dataset:
    run.execute(path, seed=seed, progress=silent)
    return store.open(path).load()


def same_but_for_times(one: xr.Dataset, other: xr.Dataset) -> None:
    clocks = [name for name in one if str(name).endswith("_seconds")]
    xr.testing.assert_identical(
        one.drop_vars(clocks).drop_attrs(), other.drop_vars(clocks).drop_attrs()
    )


def test_what_is_stored(tmp_path: Path) -> None:
    ds = executed(RUN, tmp_path / "run")
    assert ds["step"].to_numpy().tolist() == [0, 10, 20, 30, 40, 50, 60]
    assert ds["matrix"].to_numpy().tolist() == ["conv1", "conv2", "head"]
    assert np.isnan(ds["loss"][0]) and np.isfinite(ds["loss"][1:]).all()
    assert ds["rate"].to_numpy() == pytest.approx([0.1] * 3 + [0.01] * 3 + [0.0])
    assert float(ds["training_loss"][-1]) < 0.5 * float(ds["training_loss"][0])
    assert float(ds["validation_accuracy"][-1]) > 0.9
    expected = {"decay": 0.01, "paper_decay": 0.001, "diverged_at": None, "unit": "images"}
    assert expected.items() <= ds.attrs.items()
    assert ds.attrs["decay_sum"] == pytest.approx(0.01 * (30 * 0.1 + 30 * 0.01))
    assert len(ds.attrs["last_bias"]) == 2 and ds.attrs["speed"] > 0


def test_the_loop_is_plain_sgd(tmp_path: Path) -> None:
    run = replace(RUN, optimizer=AdamW(rate=0.01, decay=0.1), clip=0.5, accumulate=2)
    ds = executed(run, tmp_path / "run")
    problem = Clouds(0)
    model, order = problem.model, Order(60, 20, seed=0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    for step in range(60):
        optimizer.param_groups[0]["lr"] = 0.01 * (1 if step < 30 else 0.1)
        images, labels = problem.draw(order(step), generator(0, "noise", step))
        optimizer.zero_grad()
        for half in (slice(10), slice(10, 20)):
            (problem.loss(model, images[half], labels[half]) / 2).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    values = torch.linalg.svdvals(model.conv2.weight.detach().double().flatten(1))
    stored = ds["singular_values"].sel(matrix="conv2")[-1, :5].to_numpy()
    np.testing.assert_allclose(stored, values.numpy(), rtol=1e-4)


def test_truncated_losses_are_those_of_truncate(tmp_path: Path) -> None:
    run = replace(RUN, steps=10, evaluation_samples=50)
    ds = executed(run, tmp_path / "run")
    problem = Clouds(0)
    fixed, norm = list(problem.fixed(50)), [(b[0],) for b in problem.fixed(40)]
    for part in ("full", "top", "bottom"):
        half = (
            copy.deepcopy(problem.model)
            if part == "full"
            else truncate(problem.model, keep=0.5, part=part)
        )
        reestimate_batchnorm(half, norm)
        half.eval()
        with torch.no_grad():
            total = sum(float(problem.loss(half, *batch)) * len(batch[0]) for batch in fixed)
        assert float(ds[f"{part}_loss"][0]) == pytest.approx(total / 50, rel=1e-5)
    assert float(ds["full_loss"][0]) != float(ds["training_loss"][0])


@pytest.mark.parametrize(("steps", "end"), [(60, 30), (25, 25)])
def test_divergence_is_recorded(tmp_path: Path, steps: int, end: int) -> None:
    run = replace(RUN, task=CloudTask(explode_below=0.5), steps=steps)
    with pytest.warns(RuntimeWarning, match="cannot be decomposed"):
        ds = executed(run, tmp_path / "run")
    assert ds.attrs["diverged_at"] == end and ds["step"].to_numpy().tolist() == [0, 10, 20, end]
    assert np.isnan(ds["singular_values"].sel(step=end)).all() and "last_bias" not in ds.attrs


def test_a_loss_that_never_was_finite_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The data or the network is wrong, not the training; the run cannot be resumed."""
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", -1.0)
    run = replace(RUN, task=CloudTask(explode_below=math.inf))
    stored = StoredRun(RunKey("toy"), 0, run, tmp_path / "run")
    with pytest.warns(RuntimeWarning, match="cannot be decomposed"):
        failure = attempt(stored, silent).failure
    assert failure is not None and "loss of the untrained network is inf" in failure
    assert stored.state == "interrupted" and not list(tmp_path.glob("*.checkpoint*"))


def test_a_run_that_another_process_finished_is_left_alone(tmp_path: Path) -> None:
    ours, theirs = (StoredRun(RunKey("toy"), 0, RUN, tmp_path / "run") for _ in range(2))
    assert attempt(theirs, silent).failure is None
    before = store.open(ours.path).load()
    assert attempt(ours, silent).failure is None  # it was missing when our command began
    xr.testing.assert_identical(store.open(ours.path).load(), before)


def test_threads_do_not_change_a_run(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        two = executed(RUN, tmp_path / "two")
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    same_but_for_times(two, executed(RUN, tmp_path / "one"))


def test_the_papers_cadence(tmp_path: Path) -> None:
    ds = executed(replace(RUN, snapshots=Epochs(15), steps=32), tmp_path / "run")
    assert ds["step"].to_numpy().tolist() == [0, 3, 6, 9, 12, 15, 30, 32]


def test_bfloat16_on_the_cpu(tmp_path: Path) -> None:
    ds = executed(replace(RUN, precision="bfloat16"), tmp_path / "run")
    assert float(ds["training_loss"][-1]) < 0.5 * float(ds["training_loss"][0])
    exact = executed(RUN, tmp_path / "exact")
    assert not np.array_equal(ds["training_loss"], exact["training_loss"])


def test_a_batch_must_fit_and_divide(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="batch a multiple of accumulate"):
        replace(RUN, batch=20, accumulate=3)
    with pytest.raises(ValueError, match="a batch of 61 needs as many training samples, got 60"):
        executed(replace(RUN, batch=61), tmp_path / "run")
