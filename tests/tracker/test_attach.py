"""`attach`: tracking a plain loop without a line in it."""

import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim.optimizer import _global_optimizer_post_hooks

import rankscope as rs
from rankscope.tracker.attach import check_optimizer


def model_and_optimizer() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4)).double()
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)


def step_once(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.randn(8, 6, dtype=torch.float64)).square().mean().backward()
    optimizer.step()


def spectrum(model: nn.Module) -> np.ndarray:
    return torch.linalg.svdvals(model[0].weight.detach()).numpy()


def test_step_n_has_the_weights_after_n_optimizer_steps(tmp_path) -> None:
    model, optimizer = model_and_optimizer()
    spectra = [spectrum(model)]
    options = {"schedule": 2, "measure": rs.Updates()}
    with rs.attach(optimizer, model, tmp_path / "run", **options) as attached:
        for step in range(5):
            step_once(model, optimizer)
            spectra.append(spectrum(model))
            assert attached.steps == step + 1
    ds = rs.open(tmp_path / "run").sel(matrix="0")
    assert list(ds.step.values) == [0, 2, 4, 5]  # and the last weights
    for step in (0, 2, 4, 5):
        np.testing.assert_allclose(ds.singular_values.sel(step=step), spectra[step], rtol=1e-9)
    assert list(np.isfinite(ds.update_norm_ratio.values)) == [True, True, True, False]
    assert (ds.learning_rate == 0.1).all()


def test_noted_scalars_never_clash_with_those_of_the_attachment(tmp_path) -> None:
    model, optimizer = model_and_optimizer()
    with rs.attach(optimizer, model, tmp_path / "run", schedule=1) as attached:
        with pytest.warns(RuntimeWarning, match="a scalar named step is left out"):
            attached.note(learning_rate=3.0, step=7)
        step_once(model, optimizer)
    ds = rs.open(tmp_path / "run")
    assert list(ds.step.values) == [0, 1]
    assert list(ds.learning_rate.values) == [0.1, 3.0]


def test_training_is_bit_identical_and_no_hook_is_left(tmp_path) -> None:
    weights, count = [], len(_global_optimizer_post_hooks)
    for path in (None, tmp_path / "run"):
        model, optimizer = model_and_optimizer()
        attached = rs.attach(optimizer, model, path, schedule=1) if path else None
        for _ in range(4):
            step_once(model, optimizer)
        if attached is not None:
            attached.close()
            attached.close()
        weights.append(model[0].weight.detach())
    assert torch.equal(*weights) and len(_global_optimizer_post_hooks) == count


def test_scalars_can_be_noted(tmp_path) -> None:
    model, optimizer = model_and_optimizer()
    with rs.attach(optimizer, model, tmp_path / "run", schedule=1) as attached:
        for step in range(3):
            attached.note(loss=float(step))
            step_once(model, optimizer)
    assert list(rs.open(tmp_path / "run").loss.values[1:]) == [0.0, 1.0, 2.0]


def test_it_goes_on_counting_when_a_run_is_resumed(tmp_path) -> None:
    model, optimizer = model_and_optimizer()
    with rs.attach(optimizer, model, tmp_path / "run", schedule=1):
        step_once(model, optimizer)
        step_once(model, optimizer)
    with rs.attach(optimizer, model, tmp_path / "run", schedule=1, resume=True, step=2):
        step_once(model, optimizer)
    assert list(rs.open(tmp_path / "run").step.values) == [0, 1, 2, 3]


def test_an_optimizer_that_is_forgotten_ends_the_run(tmp_path) -> None:
    model, optimizer = model_and_optimizer()
    rs.attach(optimizer, model, tmp_path / "run", schedule=1)
    step_once(model, optimizer)
    count = len(_global_optimizer_post_hooks)
    del optimizer
    assert len(_global_optimizer_post_hooks) < count
    assert list(rs.open(tmp_path / "run").step.values) == [0, 1]


SCRIPT = """
import sys, torch, rankscope as rs
model = torch.nn.Linear(6, 5)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rs.attach(optimizer, model, sys.argv[1], schedule=1, measure=[rs.Updates()])
for step in range(3):
    model(torch.randn(8, 6)).square().mean().backward()
    optimizer.step()
"""


def test_it_closes_when_the_process_ends(tmp_path) -> None:
    command = [sys.executable, "-W", "error", "-c", SCRIPT, str(tmp_path / "run")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    ds = rs.open(tmp_path / "run")
    assert list(ds.step.values) == [0, 1, 2, 3]
    assert np.isfinite(ds.update_norm_ratio[:3]).all()
    assert "wall_seconds" in ds.attrs


def test_wrong_arguments_are_refused(tmp_path) -> None:
    model, optimizer = model_and_optimizer()
    with pytest.raises(ValueError, match="expected a torch optimizer first, got Sequential"):
        check_optimizer(model, model)
    with pytest.raises(ValueError, match="holds no parameter of the model"):
        rs.attach(optimizer, nn.Linear(3, 3), tmp_path / "run")


def test_a_tracker_that_fails_does_not_stop_training(tmp_path) -> None:
    model, optimizer = model_and_optimizer()
    (tmp_path / "file").write_text("in the way")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with rs.attach(optimizer, model, tmp_path / "file" / "run", schedule=1) as attached:
            step_once(model, optimizer)
    assert attached.tracker.failed is not None and len(caught) == 1
