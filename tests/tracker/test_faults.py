"""Real faults: training goes on, one warning, nothing acknowledged is lost."""

import gc
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import rankscope as rs


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 4))


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_non_finite_weights_give_nan_and_one_warning(tmp_path, poison: float) -> None:
    model = net()
    pair = rs.Pair("0", "2")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with rs.Tracker(model, tmp_path / "run", schedule=1, pairs=[pair]) as tracker:
            tracker.observe(0)
            tracker.flush()
            with torch.no_grad():
                model[0].weight[2, 3] = poison
            for step in (1, 2, 3):
                tracker.observe(step)
    assert tracker.failed is None
    ds = rs.open(tmp_path / "run")
    assert np.isnan(ds.singular_values.sel(matrix="0", step=[1, 2, 3]).values).all()
    assert np.isfinite(ds.singular_values.sel(matrix="2").values[:, :4]).all()
    assert list(ds.status.sel(matrix="0").values) == [0, 2, 2, 2]
    assert np.isnan(ds.alignment.sel(step=3).values).all()
    messages = [str(w.message) for w in caught if "'0'" in str(w.message)]
    assert len(messages) == 1, messages


def test_a_matrix_of_zeros_is_zero_not_failed(tmp_path) -> None:
    model = net()
    nn.init.zeros_(model[2].weight)
    with rs.Tracker(model, tmp_path / "run", schedule=1) as tracker:
        tracker.observe(0)
    ds = rs.open(tmp_path / "run")
    assert int(ds.status.sel(matrix="2", step=0)) == 1
    assert np.isnan(ds.rankscope.effective_rank().sel(matrix="2", step=0))


def test_a_path_that_cannot_be_written(tmp_path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.warns(RuntimeWarning, match="training goes on") as caught:
        tracker = rs.Tracker(net(), tmp_path / "file" / "run", schedule=1)
        for step in range(3):
            tracker.observe(step)
        tracker.flush()
        tracker.close()
    assert len(caught) == 1
    assert "NotADirectoryError" in tracker.failed or "FileExistsError" in tracker.failed
    with pytest.raises(OSError):
        rs.Tracker(net(), tmp_path / "file" / "run", strict=True)


@pytest.fixture
def tiny_disk(tmp_path) -> Path:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a tmpfs needs privileges")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_full_disk(tiny_disk: Path) -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
    start = model[0].weight.detach().clone()
    acknowledged: int | None = None
    with (
        pytest.warns(RuntimeWarning, match="No space left") as caught,
        rs.Tracker(model, tiny_disk / "run", schedule=1, reference=None) as tracker,
    ):
        for step in range(2000):
            tracker.observe(step)
            acknowledged = tracker.committed
            with torch.no_grad():
                model[0].weight.add_(torch.randn(64, 64), alpha=1e-3)
            if tracker.failed:
                break
        tracker.observe(step + 1)
    assert len(caught) == 1 and "No space left" in tracker.failed
    ds = rs.open(tiny_disk / "run")
    assert acknowledged is not None and ds.step.values[-1] >= acknowledged
    dense = np.linalg.svd(start.double().numpy(), compute_uv=False)
    np.testing.assert_allclose(ds.singular_values.sel(step=0, matrix="0").values, dense, rtol=1e-5)


class Fatal(BaseException):
    """An error that ends a thread and is no Exception."""


def test_a_dead_worker_does_not_stop_training(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*args, **kwargs):
        raise Fatal("gone")

    with (
        pytest.warns(RuntimeWarning, match="Fatal: gone") as caught,
        rs.Tracker(net(), tmp_path / "run", schedule=1, places=1) as tracker,
    ):
        tracker.observe(0)
        tracker.flush()
        monkeypatch.setattr("rankscope.snapshot.measure", die)
        for step in range(1, 6):
            tracker.observe(step)
        tracker.flush()
    assert len(caught) == 1
    assert list(rs.open(tmp_path / "run").step.values) == [0]


def broken_disk(*args, **kwargs):
    raise OSError("broken disk")


def test_strict_raises(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = rs.Tracker(net(), tmp_path / "run", schedule=1, strict=True)
    monkeypatch.setattr("rankscope.snapshot.measure", broken_disk)
    tracker.observe(0)
    with pytest.raises(OSError, match="broken disk"):
        tracker.flush()
    tracker.close()


def test_strict_raises_from_close_and_leaves_nothing_behind(tmp_path, monkeypatch) -> None:
    tracker = rs.Tracker(net(), tmp_path / "run", schedule=1, strict=True)
    monkeypatch.setattr("rankscope.snapshot.measure", broken_disk)
    tracker.observe(0)
    with pytest.raises(OSError, match="broken disk"):
        tracker.close()
    monkeypatch.undo()
    with rs.Tracker(net(), tmp_path / "run", schedule=1, resume=True, strict=True) as tracker:
        tracker.observe(0)
    assert list(rs.open(tmp_path / "run").step.values) == [0]


def test_a_dropped_tracker_ends_its_run(tmp_path) -> None:
    tracker = rs.Tracker(net(), tmp_path / "run", schedule=1)
    tracker.observe(0)
    tracker.flush()
    del tracker
    gc.collect()
    with rs.Tracker(net(), tmp_path / "run", resume=True) as again:
        assert again.committed == 0


def test_waiting_inside_paused_is_refused(tmp_path) -> None:
    with rs.Tracker(net(), tmp_path / "run", schedule=1) as tracker:
        with tracker.paused(), tracker.paused():
            for wait in (tracker.flush, tracker.close):
                with pytest.raises(ValueError, match="paused"):
                    wait()
        tracker.observe(0)
    assert list(rs.open(tmp_path / "run").step.values) == [0]


def test_a_change_that_cannot_be_decomposed_is_told(tmp_path) -> None:
    reference = net().state_dict()
    reference["0.weight"][0, 0] = float("nan")
    with pytest.warns(RuntimeWarning, match="'change of 0'") as caught:
        tracker = rs.Tracker(net(), tmp_path / "run", schedule=1, reference=reference)
        for step in range(3):
            tracker.observe(step)
        tracker.close()
    assert len(caught) == 1 and tracker.failed is None
    assert list(rs.open(tmp_path / "run").status.sel(matrix="0").values) == [0, 0, 0]


@pytest.mark.parametrize("damage", ["cut short", "not a checkpoint", "another shape"])
def test_a_reference_that_does_not_serve(tmp_path, damage: str) -> None:
    path = tmp_path / "reference.safetensors"
    save_file(net().state_dict(), path)
    if damage == "cut short":
        path.write_bytes(path.read_bytes()[:-40])
    elif damage == "not a checkpoint":
        path = tmp_path / "reference.pt"
        path.write_text("hello")
    else:
        save_file({n: torch.zeros(7, 7) for n in net().state_dict()}, path)
    with pytest.raises(ValueError, match=r"read|shape"):
        rs.Tracker(net(), tmp_path / "run", reference=path)
    assert not (tmp_path / "run").exists()


def test_resuming_with_another_reference_is_refused(tmp_path) -> None:
    with rs.Tracker(net(), tmp_path / "run", schedule=1) as tracker:
        tracker.observe(0)
    with pytest.raises(ValueError, match="'init'"):
        rs.Tracker(net(), tmp_path / "run", reference=net(), resume=True)
    with rs.Tracker(net(), tmp_path / "run", resume=True) as tracker:  # and nothing stays locked
        assert tracker.committed == 0


def test_a_run_begun_anew_has_a_new_reference(tmp_path) -> None:
    for scale in (1.0, 2.0):
        model = net()
        with torch.no_grad():
            model[0].weight *= scale
        with rs.Tracker(model, tmp_path / "run", schedule=1, resume=True) as tracker:
            tracker.observe(0)
    ds = rs.open(tmp_path / "run")
    assert (ds.change_singular_values.sel(matrix="2", step=0).values[:4] == 0).all()
    assert (ds.change_singular_values.sel(matrix="0", step=0).values[:6] == 0).all()


@pytest.mark.parametrize(
    "options",
    [
        {"top": 0},
        {"places": 0},
        {"device": "cuda", "beside": "process"},
        {"pairs": [rs.Pair("2", "0")]},
        {"pairs": [rs.Pair("0", "2"), rs.Pair("0", "2", kind="other")]},
    ],
)
def test_nonsense_is_refused_at_once(tmp_path, options) -> None:
    with pytest.raises(ValueError):
        rs.Tracker(net(), tmp_path / "run", **options)


def test_the_same_path_twice(tmp_path) -> None:
    with rs.Tracker(net(), tmp_path / "run", schedule=1) as tracker:
        tracker.observe(0)
        with pytest.raises(ValueError, match="run"):
            rs.Tracker(net(), tmp_path / "run")
    with pytest.raises(ValueError, match="resume=True"):
        rs.Tracker(net(), tmp_path / "run")


def test_resuming_another_model_is_refused(tmp_path) -> None:
    with rs.Tracker(net(), tmp_path / "run", schedule=1) as tracker:
        tracker.observe(0)
    with pytest.raises(ValueError, match="matri"):
        rs.Tracker(nn.Linear(3, 3), tmp_path / "run", resume=True)


@pytest.mark.parametrize("change", ["shape", "gone"])
def test_layers_that_change(tmp_path, change: str) -> None:
    model = net()
    with (
        pytest.warns(RuntimeWarning, match="another path") as caught,
        rs.Tracker(model, tmp_path / "run", schedule=1) as tracker,
    ):
        tracker.observe(0)
        model[2] = nn.Linear(9, 1) if change == "shape" else nn.Identity()
        tracker.observe(1)
        tracker.observe(2)
    assert len(caught) == 1 and "'2.weight'" in tracker.failed
    assert list(rs.open(tmp_path / "run").step.values) == [0]


def test_weights_that_change_their_dtype(tmp_path) -> None:
    model = net()
    with (
        pytest.warns(RuntimeWarning, match=r"torch.float64 now and was torch.float32"),
        rs.Tracker(model, tmp_path / "run", schedule=1) as tracker,
    ):
        tracker.observe(0)
        model.double()
        tracker.observe(1)
    assert list(rs.open(tmp_path / "run").step.values) == [0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("shape", [(0, 4), (1, 1), (1, 7), (5, 1), (6, 4)])
def test_odd_shapes_and_dtypes(tmp_path, dtype: torch.dtype, shape: tuple[int, int]) -> None:
    class One(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(shape, dtype=dtype))
            self.other = nn.Parameter(torch.eye(3, dtype=dtype))

    with rs.Tracker(One(), tmp_path / "run", schedule=1) as tracker:
        tracker.observe(0)
        tracker.observe(1)
    assert tracker.failed is None
    values = rs.open(tmp_path / "run").singular_values.sel(step=1).values[0]
    k = min(shape)
    assert np.isnan(values[k:]).all()
    if k:  # a matrix of ones has one singular value, sqrt(m n)
        np.testing.assert_allclose(values[0], np.sqrt(shape[0] * shape[1]), rtol=1e-6)
        np.testing.assert_allclose(values[1:k], 0, atol=1e-6)


CHILD = """
import sys, torch, rankscope as rs
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
start = int(sys.argv[2])
with rs.Tracker(model, sys.argv[1], schedule=1, resume=True, every_step=("loss",)) as tracker:
    for step in range(start, 100000):
        with torch.no_grad():  # singular values that say which step they belong to
            model[0].weight.copy_(torch.eye(8) * (step + 1))
            model[1].weight.copy_(torch.eye(8) * (step + 2))
        tracker.observe(step, loss=float(step))
        print(tracker.committed, flush=True)
"""


@pytest.mark.slow
def test_fifty_kills(tmp_path) -> None:
    """SIGKILL at a random moment, fifty times over one run, with a reader looking all the while."""
    generator = np.random.default_rng(0)
    path, start = tmp_path / "run", 0
    for _ in range(50):
        acknowledged = watch_and_kill(path, start, after=generator.uniform(0.0, 0.3))
        ds = rs.open(path)
        check(ds)
        assert not acknowledged or ds.step.values[-1] >= max(acknowledged), "a snapshot was lost"
        start = int(ds.step.values[-1]) + 1 if ds.sizes["step"] else 0
    assert start > 50


def watch_and_kill(path: Path, start: int, *, after: float) -> list[int]:
    """Kill the child while its run is being read; return the steps it printed as committed."""
    command = [sys.executable, "-c", CHILD, str(path), str(start)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as child:
        try:
            assert child.stdout is not None
            first = child.stdout.readline()
            assert first, "the child died by itself"
            deadline = time.monotonic() + after
            while time.monotonic() < deadline:
                check(rs.open(path))
        finally:
            child.send_signal(signal.SIGKILL)
        lines = [first, *child.stdout.read().splitlines()]
    return [int(line) for line in lines if line.strip().isdigit()]


def check(ds) -> None:
    steps = ds.step.values
    if not len(steps):
        return
    assert (np.diff(steps) == 1).all()
    expected = (steps + 1)[:, None] * np.ones(8)
    np.testing.assert_allclose(ds.singular_values.sel(matrix="0").values, expected, rtol=1e-6)
    np.testing.assert_allclose(ds.singular_values.sel(matrix="1").values, expected + 1, rtol=1e-6)
    np.testing.assert_array_equal(ds.loss.values, steps)
    np.testing.assert_array_equal(ds.loss_every_step.values, ds.train_step.values)
