"""Windows of due steps: which optimizer step belongs to which snapshot, and what is told."""

import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim.optimizer import _global_optimizer_post_hooks

import rankscope as rs

Batch = Tensor


def model_and_optimizer() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4)).double()
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def backward(model: nn.Module) -> None:
    model.zero_grad()
    model(torch.randn(8, 6, dtype=torch.float64)).square().mean().backward()


def test_only_due_steps_have_updates_and_each_its_own(tmp_path) -> None:
    model, optimizer = model_and_optimizer()
    updates = {}
    with rs.Tracker(model, tmp_path / "run", schedule=3, measure=rs.Updates()) as tracker:
        for step in range(8):
            backward(model)
            tracker.observe(step)
            before = model[0].weight.detach().clone()
            optimizer.step()
            updates[step] = torch.linalg.svdvals(model[0].weight.detach() - before).numpy()
    ds = rs.open(tmp_path / "run").sel(matrix="0")
    assert list(ds.step.values) == [0, 3, 6]
    for step in (0, 3, 6):
        measured = ds.update_singular_values.sel(step=step)
        np.testing.assert_allclose(measured, updates[step], rtol=1e-6)


def test_gradient_accumulation_has_one_update(tmp_path) -> None:
    model, optimizer = model_and_optimizer()
    with rs.Tracker(model, tmp_path / "run", schedule=1, measure=rs.Updates()) as tracker:
        for step in range(3):
            for _ in range(4):
                model(torch.randn(8, 6, dtype=torch.float64)).square().mean().backward()
            tracker.observe(step)
            before = model[0].weight.detach().clone()
            optimizer.step()
            update = torch.linalg.svdvals(model[0].weight.detach() - before).numpy()
    ds = rs.open(tmp_path / "run").sel(matrix="0")
    np.testing.assert_allclose(ds.update_singular_values[-1], update, rtol=1e-6)


def test_a_step_that_the_loss_scale_skips_is_told(tmp_path) -> None:
    """A GradScaler steps no optimizer when a gradient is infinite."""
    model, optimizer = model_and_optimizer()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    tracker = rs.Tracker(model, tmp_path / "run", schedule=1, measure=rs.Updates(), strict=True)
    with tracker, pytest.warns(RuntimeWarning, match="no torch optimizer stepped on the model"):
        for step in range(3):
            model.zero_grad()
            loss = model(torch.randn(8, 6, dtype=torch.float64)).square().mean()
            scaler.scale(loss).backward()
            tracker.observe(step)
            if step == 1:
                model[0].weight.grad[0, 0] = float("inf")
            scaler.step(optimizer)
            scaler.update()
    ds = rs.open(tmp_path / "run").sel(matrix="0")
    assert np.isfinite(ds.update_norm_ratio[[0, 2]]).all() and np.isnan(ds.update_norm_ratio[1])


def test_an_optimizer_that_steps_inside_backward_is_told_once(tmp_path) -> None:
    model, _ = model_and_optimizer()
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}

    def step_now(parameter: Tensor) -> None:
        optimizers[parameter].step()
        parameter.grad = None

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step_now)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with rs.Tracker(model, tmp_path / "run", schedule=1, measure=rs.Updates()) as tracker:
            for step in range(4):
                tracker.observe(step)
                model(torch.randn(8, 6, dtype=torch.float64)).square().mean().backward()
    (message,) = [str(w.message) for w in caught]
    assert "steps inside backward" in message and tracker.failed is None
    ds = rs.open(tmp_path / "run")
    assert np.isfinite(ds.singular_values.sel(matrix="0")).all()
    assert np.isnan(ds.update_norm_ratio).all()


def test_a_training_without_a_torch_optimizer_is_told_once(tmp_path) -> None:
    model, _ = model_and_optimizer()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with rs.Tracker(model, tmp_path / "run", schedule=1, measure=rs.Updates()) as tracker:
            for step in range(4):
                tracker.observe(step)
    (message,) = [str(w.message) for w in caught]
    assert "no torch optimizer stepped" in message and "updates are NaN" in message


def test_an_optimizer_of_another_model_is_none_of_its_business(tmp_path) -> None:
    model, optimizer = model_and_optimizer()
    other, others = model_and_optimizer()
    with rs.Tracker(model, tmp_path / "run", schedule=1, measure=rs.Updates()) as tracker:
        tracker.observe(0)
        backward(model)
        backward(other)
        others.step()
        before = model[0].weight.detach().clone()
        optimizer.step()
        others.step()
    update = torch.linalg.svdvals(model[0].weight.detach() - before).numpy()
    measured = rs.open(tmp_path / "run").update_singular_values.sel(step=0, matrix="0")
    np.testing.assert_allclose(measured, update, rtol=1e-6)


def test_a_measure_that_fails_is_told_and_the_rest_is_measured(tmp_path, monkeypatch) -> None:
    def broken(*arguments: object, **options: object) -> None:
        raise RuntimeError("out of paper")

    monkeypatch.setattr("rankscope.measures.updates.leading_share", broken)
    model, optimizer = model_and_optimizer()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with rs.Tracker(model, tmp_path / "run", schedule=1, measure=rs.Updates()) as tracker:
            for step in range(3):
                tracker.observe(step)
                backward(model)
                optimizer.step()
    (message,) = [str(w.message) for w in caught]
    assert "cannot measure updates (RuntimeError: out of paper)" in message
    assert tracker.failed is None
    ds = rs.open(tmp_path / "run")
    assert np.isfinite(ds.singular_values.sel(matrix="0")).all()
    assert np.isnan(ds.update_singular_values).all()


def test_flush_hands_over_what_waits_for_its_optimizer_step(tmp_path) -> None:
    model, _ = model_and_optimizer()
    with rs.Tracker(model, tmp_path / "run", schedule=1, measure=rs.Updates()) as tracker:
        tracker.observe(0)
        assert tracker.committed is None
        tracker.flush()
        assert tracker.committed == 0


def test_nothing_is_seen_inside_paused(tmp_path) -> None:
    model, optimizer = model_and_optimizer()
    with rs.Tracker(model, tmp_path / "run", schedule=1, measure=rs.Updates()) as tracker:
        tracker.observe(0)
        with tracker.paused():
            backward(model)
            optimizer.step()
        backward(model)
        before = model[0].weight.detach().clone()
        optimizer.step()
    ds = rs.open(tmp_path / "run").sel(matrix="0")
    assert before is not None and ds.sizes["step"] == 1


def test_a_tracker_that_is_forgotten_leaves_no_hook(tmp_path) -> None:
    model, _ = model_and_optimizer()
    count = len(_global_optimizer_post_hooks)
    tracker = rs.Tracker(model, tmp_path / "run", schedule=1, measure=rs.Updates())
    assert len(_global_optimizer_post_hooks) == count + 1
    del tracker
    assert len(_global_optimizer_post_hooks) == count


def test_a_run_with_measures_goes_on_where_it_stopped(tmp_path) -> None:
    model, optimizer = model_and_optimizer()
    for start in (0, 3):
        options = {"schedule": 1, "measure": rs.Updates(), "resume": start > 0}
        with rs.Tracker(model, tmp_path / "run", **options) as tracker:
            for step in range(start, start + 3):
                backward(model)
                tracker.observe(step)
                optimizer.step()
    ds = rs.open(tmp_path / "run").sel(matrix="0")
    assert np.isfinite(ds.update_norm_ratio).all()
    assert list(np.isnan(ds.update_cosine_last)) == [True, False, False] * 2
    with pytest.raises(ValueError, match="another measure=: variable 'update_"):
        rs.Tracker(model, tmp_path / "run", resume=True)


UNCLOSED = """
import sys, torch, rankscope as rs
model = torch.nn.Linear(6, 5)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
measure = [rs.Updates(), rs.Activations("")]
tracker = rs.Tracker(model, sys.argv[1], schedule=1, measure=measure)
for step in range(3):
    model(torch.randn(8, 6)).square().mean().backward()
    tracker.observe(step)
    optimizer.step()
"""


def test_a_tracker_that_is_never_closed_loses_no_snapshot(tmp_path) -> None:
    command = [sys.executable, "-W", "error", "-c", UNCLOSED, str(tmp_path / "run")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    ds = rs.open(tmp_path / "run")
    assert list(ds.step.values) == [0, 1, 2]
    assert np.isfinite(ds.update_norm_ratio).all()
    assert (ds.activation_tokens == 8).all()
