from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from lab.training.test_training_run import RUN, executed
from rankscope.lab.training.stopping import Generalised, Settled


def losses(*values: float) -> xr.Dataset:
    steps = 10 * np.arange(len(values))
    return xr.Dataset({"training_loss": ("step", list(values))}, coords={"step": steps})


def test_it_is_over_so_many_steps_after_the_first_loss_below() -> None:
    ds = losses(1.0, 0.3, 0.05, 0.2, 0.2, 0.2)
    settled = Settled(loss=0.1, steps=30)
    assert [settled.over(ds, step) for step in (20, 40, 50, 60)] == [False, False, True, True]


def test_late_snapshots_do_not_matter() -> None:
    """They may be in the store already or not: a training ends at the same step either way."""
    settled = Settled(loss=0.1, steps=30)
    assert not settled.over(losses(1.0, 0.5, 0.5, 0.05), 40)
    assert not settled.over(losses(1.0, np.nan), 40)


def test_a_run_stops_and_says_so(tmp_path: Path) -> None:
    whole = executed(RUN, tmp_path / "whole")
    steps, loss = whole["step"].to_numpy(), whole["training_loss"].to_numpy()
    below = 1.001 * float(loss[2])
    reached = steps[loss < below][0]
    assert 0 < reached < 40
    run = replace(RUN, stop=Settled(loss=below, steps=15))
    stopped = executed(run, tmp_path / "stopped")
    assert stopped.attrs["stopped_at"] == reached + 20  # the first snapshot 15 steps later
    assert whole.attrs["stopped_at"] is None and stopped.attrs["diverged_at"] is None
    common = whole.sel(step=slice(0, reached + 20))
    xr.testing.assert_equal(stopped["singular_values"], common["singular_values"])


@pytest.mark.parametrize("wrong", [{"loss": 0.0, "steps": 1}, {"loss": 0.1, "steps": 0}])
def test_what_cannot_be_meant(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="at least 1 step"):
        Settled(**wrong)


def test_it_is_over_so_many_steps_after_a_high_accuracy() -> None:
    steps = 10 * np.arange(6)
    accuracies = ("step", [0.1, 0.5, 0.9, 0.2, 0.2, 0.2])
    ds = xr.Dataset({"validation_accuracy": accuracies}, coords={"step": steps})
    stop = Generalised(accuracy=0.9, steps=20)
    assert [stop.over(ds, step) for step in (20, 30, 40, 50)] == [False, False, True, True]


@pytest.mark.parametrize(
    "wrong",
    [{"accuracy": 0.0, "steps": 1}, {"accuracy": 1.1, "steps": 1}, {"accuracy": 0.5, "steps": 0}],
)
def test_an_accuracy_that_cannot_be_meant(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="an accuracy above 0, at most 1"):
        Generalised(**wrong)
