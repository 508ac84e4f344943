"""Real faults: training goes on, one warning, nothing acknowledged is lost."""

import gc
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import rankscope as rs
from tiny_disk import tmpfs
from tracker.tracked import network, take_step, track


def stored_steps(path: Path) -> list[int]:
    return list(rs.open(path).step.values)


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_non_finite_weights_give_nan_and_one_warning(tmp_path, poison: float) -> None:
    model = network()
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
    model = network()
    nn.init.zeros_(model[2].weight)
    ds = track(tmp_path / "run", model)
    assert int(ds.status.sel(matrix="2", step=0)) == 1
    assert np.isnan(ds.rankscope.effective_rank().sel(matrix="2", step=0))


def test_a_path_that_cannot_be_written(tmp_path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.warns(RuntimeWarning, match="training goes on") as caught:
        tracker = rs.Tracker(network(), tmp_path / "file" / "run", schedule=1)
        for step in range(3):
            tracker.observe(step)
        tracker.flush()
        tracker.close()
    assert len(caught) == 1
    assert "NotADirectoryError" in tracker.failed or "FileExistsError" in tracker.failed
    with pytest.raises(OSError):
        rs.Tracker(network(), tmp_path / "file" / "run", strict=True)


def test_a_full_disk(tmp_path) -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
    start = model[0].weight.detach().clone()
    acknowledged: int | None = None
    with tmpfs(tmp_path, "200k"):
        with (
            pytest.warns(RuntimeWarning, match="No space left") as caught,
            rs.Tracker(model, tmp_path / "run", schedule=1, reference=None) as tracker,
        ):
            for step in range(2000):
                tracker.observe(step)
                acknowledged = tracker.committed
                take_step(model, step)
                if tracker.failed:
                    break
            tracker.observe(step + 1)
        assert len(caught) == 1 and "No space left" in tracker.failed
        ds = rs.open(tmp_path / "run").load()
    assert acknowledged is not None and ds.step.values[-1] >= acknowledged
    dense = np.linalg.svd(start.double().numpy(), compute_uv=False)
    np.testing.assert_allclose(ds.singular_values.sel(step=0, matrix="0").values, dense, rtol=1e-5)


class Fatal(BaseException):
    """An error that ends a thread and is no Exception."""


def failing(failure: BaseException):
    def measure(*arguments, **options):
        raise failure

    return measure


def test_a_dead_worker_does_not_stop_training(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        pytest.warns(RuntimeWarning, match="Fatal: gone") as caught,
        rs.Tracker(network(), tmp_path / "run", schedule=1, places=1) as tracker,
    ):
        tracker.observe(0)
        tracker.flush()
        monkeypatch.setattr("rankscope.snapshot.measure", failing(Fatal("gone")))
        for step in range(1, 6):
            tracker.observe(step)
        tracker.flush()
    assert len(caught) == 1
    assert stored_steps(tmp_path / "run") == [0]


@pytest.mark.parametrize("wait", ["flush", "close"])
def test_strict_raises_and_leaves_nothing_behind(tmp_path, monkeypatch, wait: str) -> None:
    tracker = rs.Tracker(network(), tmp_path / "run", schedule=1, strict=True)
    monkeypatch.setattr("rankscope.snapshot.measure", failing(OSError("broken disk")))
    tracker.observe(0)
    with pytest.raises(OSError, match="broken disk"):
        getattr(tracker, wait)()
    tracker.close()
    monkeypatch.undo()
    track(tmp_path / "run", resume=True)
    assert stored_steps(tmp_path / "run") == [0]


def test_a_dropped_tracker_ends_its_run(tmp_path) -> None:
    tracker = rs.Tracker(network(), tmp_path / "run", schedule=1)
    tracker.observe(0)
    tracker.flush()
    del tracker
    gc.collect()
    with rs.Tracker(network(), tmp_path / "run", resume=True) as again:
        assert again.committed == 0


def test_a_change_that_cannot_be_decomposed_is_told(tmp_path) -> None:
    reference = network().state_dict()
    reference["0.weight"][0, 0] = float("nan")
    with pytest.warns(RuntimeWarning, match="'change of 0'") as caught:
        tracker = rs.Tracker(network(), tmp_path / "run", schedule=1, reference=reference)
        for step in range(3):
            tracker.observe(step)
        tracker.close()
    assert len(caught) == 1 and tracker.failed is None
    assert list(rs.open(tmp_path / "run").status.sel(matrix="0").values) == [0, 0, 0]


@pytest.mark.parametrize("damage", ["cut short", "not a checkpoint", "another shape"])
def test_a_reference_that_does_not_serve(tmp_path, damage: str) -> None:
    path = tmp_path / "reference.safetensors"
    save_file(network().state_dict(), path)
    if damage == "cut short":
        path.write_bytes(path.read_bytes()[:-40])
    elif damage == "not a checkpoint":
        path = tmp_path / "reference.pt"
        path.write_text("hello")
    else:
        save_file({n: torch.zeros(7, 7) for n in network().state_dict()}, path)
    with pytest.raises(ValueError, match=r"read|shape"):
        rs.Tracker(network(), tmp_path / "run", reference=path)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (network(), {}, "resume=True"),
        (network(), {"reference": network(), "resume": True}, "'init'"),
        (nn.Linear(3, 3), {"resume": True}, r"matrix '0' is 9 x 6 of float32 in the run and miss"),
        (
            nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 5)),
            {"resume": True},
            r"matrix '2' is 4 x 9 of float32 in the run and 5 x 9 of float32 in the model;",
        ),
        (network(), {"resume": True, "overwrite": True}, "pass one of them"),
    ],
    ids=["no resume", "another reference", "another model", "another shape", "both"],
)
def test_a_used_path_is_refused(tmp_path, model, options, message: str) -> None:
    with rs.Tracker(network(), tmp_path / "run", schedule=1) as tracker:
        tracker.observe(0)
    with pytest.raises(ValueError, match=message):
        rs.Tracker(model, tmp_path / "run", **options)
    with rs.Tracker(network(), tmp_path / "run", resume=True) as tracker:  # nothing stays locked
        assert tracker.committed == 0


def test_a_cell_that_is_run_again(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tracker of its first run is alive, and gives way."""
    first = rs.Tracker(network(), tmp_path / "run", schedule=1, every_step=("loss",))
    for step in range(3):
        first.observe(step, loss=1.0)
    with pytest.raises(ValueError, match=r"already holds .*resume=True to go on, overwrite=True"):
        rs.Tracker(network(), tmp_path / "run")
    first.observe(3)  # a mistake has not harmed it
    monkeypatch.chdir(tmp_path)
    second = rs.Tracker(network(), "run", schedule=1, resume=True)
    assert second.committed == 3
    assert stored_steps(tmp_path / "run") == [0, 1, 2, 3]
    first.observe(4)
    second.observe(4)
    third = rs.Tracker(network(), "run", schedule=1, overwrite=True)
    assert stored_steps(tmp_path / "run") == []
    third.observe(7)
    third.close()
    assert stored_steps(tmp_path / "run") == [7]
    assert first.failed is second.failed is third.failed is None
    assert os.listdir(tmp_path) == ["run"]


def test_a_lost_reference_is_told_and_can_be_given(tmp_path) -> None:
    """Never taken from the weights at hand, from which the changes would be too small."""
    path, start = tmp_path / "run", network()
    whole = track(tmp_path / "whole", network(), steps=range(4))
    track(path, network(), steps=range(2))
    (path / "reference.safetensors").unlink()
    with pytest.raises(ValueError, match=r"has lost reference\.safetensors.*pass a checkpoint"):
        rs.Tracker(network(2), path, resume=True)
    ds = track(path, network(2), steps=range(2, 4), resume=True, reference=start.state_dict())
    np.testing.assert_array_equal(ds.change_singular_values, whole.change_singular_values)
    again = track(path, network(4), steps=range(4, 5), resume=True)  # the file is back
    assert again.sizes["step"] == 5


def test_resumed_at_an_earlier_step(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old snapshots stay until there is a new one, and after that in `dropped`."""
    path = tmp_path / "run"
    old = track(path, network(), steps=range(6), every_step=("loss",)).load()
    with rs.Tracker(
        network(2), path, schedule=1, resume=True, every_step=("loss",), beside="thread"
    ) as tracker:
        assert tracker.committed == 5
        early = rs.open(path)
        with tracker._worker.held():
            tracker.observe(2, loss=7.0)
            assert tracker.committed == 1  # the others are about to be dropped
            assert rs.open(path).load().equals(old)
        tracker.flush()
        assert tracker.committed == 2
        assert stored_steps(path) == [0, 1, 2]
        values = ("step", "singular_values", "change_singular_values", "loss_every_step")
        for dataset in (early, rs.open(path / "dropped" / "1")):
            for name in values:
                np.testing.assert_array_equal(dataset[name], old[name])
    ds = rs.open(path)
    np.testing.assert_array_equal(ds.singular_values, old.singular_values[:3])
    assert ds.loss_every_step.values.tolist() == [0.0, 1.0, 7.0]


def test_a_run_names_the_steps_at_which_it_was_resumed(tmp_path) -> None:
    path = tmp_path / "run"
    lives = ((range(4), None), (range(4, 9), [4]), (range(9, 12), [4, 9]), (range(6, 8), [4, 6]))
    for steps, resumed in lives:
        ds = track(path, network(2), steps=steps, resume=True)
        assert ds.attrs.get("resumed_at") == resumed
    with rs.Tracker(network(2), path, schedule=1, resume=True, strict=True) as tracker:
        tracker._begin(20)  # no snapshot follows
    assert rs.open(path).attrs["resumed_at"] == [4, 6]
    with rs.Tracker(network(2), path, schedule=1, resume=True, strict=True) as tracker:
        tracker.observe()  # goes on after the last step
    assert rs.open(path).attrs["resumed_at"] == [4, 6, 8]


@pytest.mark.parametrize("beside", ["thread", "process"])
def test_a_resumed_run_that_starts_at_zero_again_is_kept(tmp_path, beside: str) -> None:
    path = tmp_path / "run"
    old = track(path, network(), steps=range(4)).load()
    new = track(path, network(seed=1), steps=range(2), resume=True, beside=beside)
    expected = track(tmp_path / "new", network(seed=1), steps=range(2))
    for name in ("singular_values", "change_singular_values"):
        np.testing.assert_array_equal(new[name], expected[name])
        np.testing.assert_array_equal(rs.open(path / "dropped" / "1")[name], old[name])
    back = track(path / "dropped" / "1", network(4), steps=range(4, 5), resume=True)
    assert np.isfinite(back.change_singular_values.sel(matrix="0").values).all()


def test_a_new_reference_that_is_not_committed_is_undone(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run"
    track(path, network(), steps=range(2))
    before = (path / "reference.safetensors").read_bytes()
    tracker = rs.Tracker(network(seed=1), path, schedule=1, resume=True)
    monkeypatch.setattr("rankscope.snapshot.measure", failing(OSError("broken disk")))
    tracker.observe(0)
    with pytest.warns(RuntimeWarning, match="broken disk"):
        tracker.close()
    assert (path / "reference.safetensors").read_bytes() == before
    assert stored_steps(path) == [0, 1]


def test_a_durable_reference_reaches_the_disk(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    sync, replace = os.fsync, Path.replace

    def watched_sync(descriptor: int) -> None:
        events.append(f"sync {Path(os.readlink(f'/proc/self/fd/{descriptor}')).name}")
        sync(descriptor)

    def watched_replace(source: Path, target: Path) -> Path:
        events.append(f"replace {target.name}")
        return replace(source, target)

    monkeypatch.setattr(os, "fsync", watched_sync)
    monkeypatch.setattr(Path, "replace", watched_replace)
    track(tmp_path / "run", durable=True)
    first = events.index("sync reference.partial")
    assert events[first : first + 3] == [
        "sync reference.partial",
        "replace reference.safetensors",
        "sync run",
    ]
    assert "sync zarr.json.partial" in events[first + 3 :]


def test_a_disk_that_becomes_read_only(tmp_path) -> None:
    with tmpfs(tmp_path, "1m") as remount:
        with (
            pytest.warns(RuntimeWarning, match="training goes on.*Read-only"),
            rs.Tracker(network(), tmp_path / "run", schedule=1) as tracker,
        ):
            tracker.observe(0)
            tracker.flush()
            remount("ro")
            tracker.observe(1)
        assert "Read-only" in tracker.failed
        assert stored_steps(tmp_path / "run") == [0]


def test_a_run_begun_anew_has_a_new_reference(tmp_path) -> None:
    for scale in (1.0, 2.0):
        model = network()
        with torch.no_grad():
            model[0].weight *= scale
        ds = track(tmp_path / "run", model, resume=True)
    assert (np.nan_to_num(ds.change_singular_values.values) == 0).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top": 0}, "at least 1"),
        ({"places": 0}, "at least 1"),
        ({"device": "cuda", "beside": "process"}, "measures on the host"),
        ({"pairs": [rs.Pair("0", "nowhere")]}, "names the matrix 'nowhere'"),
        ({"pairs": [rs.Pair("2", "0")]}, "entries of the earlier"),
        ({"pairs": [rs.Pair("0", "2"), rs.Pair("0", "2", kind="other")]}, "two pairs are named"),
    ],
)
def test_nonsense_is_refused_at_once(tmp_path, options, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rs.Tracker(network(), tmp_path / "run", **options)


@pytest.mark.parametrize("beside", ["thread", "process"])
@pytest.mark.parametrize(
    ("layer", "change"),
    [
        (nn.Linear(9, 1), r"changed its shape from \(4, 9\) to \(1, 9\)"),
        (nn.Identity(), "is gone"),
        (nn.Linear(9, 4, device="meta"), "has no values"),
    ],
    ids=["another shape", "removed", "no values"],
)
def test_tracking_goes_on_with_the_matrices_that_stayed(
    tmp_path, layer: nn.Module, change: str, beside: str
) -> None:
    model = network()
    kept = {}
    options = {"schedule": 1, "pairs": [rs.Pair("0", "2")], "beside": beside}
    with (
        pytest.warns(RuntimeWarning, match=f"2.weight {change}") as caught,
        rs.Tracker(model, tmp_path / "run", **options) as tracker,
    ):
        old = model[2]
        for step in range(5):
            model[2] = layer if step in (1, 2) else old  # the old head comes back
            take_step(model[0], step)
            kept[step] = np.linalg.svd(model[0].weight.detach().numpy(), compute_uv=False)
            tracker.observe(step)
    assert len(caught) == 1 and tracker.failed is None
    ds = rs.open(tmp_path / "run")
    assert list(ds.step.values) == [0, 1, 2, 3, 4]
    for step, dense in kept.items():
        spectrum = ds.singular_values.sel(matrix="0", step=step).values[:6]
        np.testing.assert_allclose(spectrum, dense, rtol=1e-5)
    gone, back = ds.sel(step=[1, 2]), ds.sel(step=[0, 3, 4])
    for name in ("singular_values", "change_singular_values"):
        assert np.isnan(gone[name].sel(matrix="2")).all()
        assert np.isfinite(back[name].sel(matrix="2").values[:, :4]).all()
        assert np.isfinite(ds[name].sel(matrix="0").values[:, :6]).all()
    assert np.isnan(gone.alignment).all() and not np.isnan(back.alignment).all("i").any()
    assert list(ds.status.sel(matrix="2").values) == [0, 2, 2, 0, 0]
    assert list(ds.attrs["changed_tensors"]) == ["2.weight"]
    assert ds.attrs["changed_tensors"]["2.weight"].startswith("step 1: ")


def test_a_model_of_which_nothing_is_left(tmp_path) -> None:
    model = network()
    with (
        pytest.warns(RuntimeWarning, match="another path") as caught,
        rs.Tracker(model, tmp_path / "run", schedule=1) as tracker,
    ):
        tracker.observe(0)
        model[0], model[2] = nn.Linear(3, 3), nn.Identity()
        tracker.observe(1)
        tracker.observe(2)
    assert len(caught) == 1 and "'0.weight', which changed" in tracker.failed
    assert stored_steps(tmp_path / "run") == [0]


def test_a_layer_that_changes_is_an_exception_if_strict(tmp_path) -> None:
    model = network()
    with rs.Tracker(model, tmp_path / "run", schedule=1, strict=True) as tracker:
        tracker.observe(0)
        model[2] = nn.Linear(9, 1)
        with pytest.raises(ValueError, match="changed its shape"):
            tracker.observe(1)


@pytest.mark.parametrize(
    ("dtype", "beside"),
    [
        (torch.float64, "thread"),
        (torch.bfloat16, "thread"),
        (torch.bfloat16, "process"),
    ],
)
def test_another_dtype_is_measured_on(tmp_path, dtype: torch.dtype, beside: str) -> None:
    model = nn.Sequential(nn.Linear(6, 9), nn.MultiheadAttention(6, 2))
    with (
        pytest.warns(RuntimeWarning, match=f"was torch.float32 and is measured as {dtype}") as told,
        rs.Tracker(model, tmp_path / "run", schedule=1, beside=beside) as tracker,
    ):
        tracker.observe(0)
        before = model[0].weight.detach().double().numpy()
        model.to(dtype)
        take_step(model, 0)
        tracker.observe(1)
        tracker.observe(2)
        after = model[0].weight.detach().double().numpy()
    assert len(told) == 1 and tracker.failed is None
    now = rs.open(tmp_path / "run").sel(step=2, matrix="0")
    for name, W in (("singular_values", after), ("change_singular_values", after - before)):
        dense = np.linalg.svd(W, compute_uv=False)
        np.testing.assert_allclose(now[name].values[:6], dense, rtol=1e-5)


def test_a_wider_dtype_than_a_process_has_room_for_is_not_rounded(tmp_path) -> None:
    model = network().bfloat16()
    with (
        pytest.warns(RuntimeWarning, match="wider than its copies"),
        rs.Tracker(model, tmp_path / "run", schedule=1, beside="process") as tracker,
    ):
        tracker.observe(0)
        model[2].float()
        tracker.observe(1)
    ds = rs.open(tmp_path / "run")
    assert np.isnan(ds.singular_values.sel(step=1, matrix="2")).all()
    assert np.isfinite(ds.singular_values.sel(step=1, matrix="0").values[:6]).all()


@pytest.mark.parametrize("kind", ["int8", "sparse", "meta"])
@pytest.mark.parametrize("probed", [False, True])
def test_a_parameter_that_cannot_be_read_is_named(tmp_path, kind: str, probed: bool) -> None:
    class Count:
        directions: ClassVar[dict[str, int]] = {}

        def __call__(self, tensors, directions) -> dict[str, float]:
            return {"tensors": len(tensors)}

    odd = {
        "int8": lambda: torch.eye(4).to(torch.int8),
        "sparse": lambda: torch.eye(4).to_sparse(),
        "meta": lambda: torch.empty(4, 4, device="meta"),
    }[kind]()
    model = network()
    model.append(nn.Module())
    model[3].register_parameter("odd", nn.Parameter(odd, requires_grad=False))
    options = {"schedule": 1, "probe": Count() if probed else None}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with rs.Tracker(model, tmp_path / "run", **options) as tracker:
            tracker.observe(0)
            tracker.observe(1)
    assert tracker.failed is None
    unread = [line.tensor for line in tracker.coverage.lines if line.status == "not read"]
    told = [str(warning.message) for warning in caught]
    assert any("3.odd" in text for text in (*unread, *told)) and len(told) <= 1
    ds = rs.open(tmp_path / "run")
    assert list(ds.matrix.values) == ["0", "2"] and list(ds.step.values) == [0, 1]
    assert np.isfinite(ds.singular_values.sel(matrix="2").values[:, :4]).all()
    if probed:
        assert (ds.tensors == (5 if kind == "int8" else 4)).all()  # int8 is copied as it is


@pytest.mark.parametrize(
    ("model", "options"),
    [(nn.LayerNorm(3), {}), (nn.ReLU(), {}), (nn.Linear(3, 3, device="meta"), {})],
)
def test_a_model_without_matrices_is_refused(tmp_path, model: nn.Module, options) -> None:
    warnings.simplefilter("ignore", RuntimeWarning)
    with pytest.raises(ValueError, match="no matrix to track"):
        rs.Tracker(model, tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_the_working_directory_may_change(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with rs.Tracker(network(), "run", schedule=1, strict=True) as tracker:
        tracker.observe(0)
        monkeypatch.chdir(tmp_path / "elsewhere")
        tracker.observe(1)
    assert stored_steps(tmp_path / "run") == [0, 1]
    assert tracker.path == tmp_path / "run"


def test_skipped_snapshots_do_not_queue(tmp_path) -> None:
    options = {"schedule": 1, "when_full": "skip", "places": 1, "every_step": "loss"}
    with rs.Tracker(network(), tmp_path / "run", **options) as tracker:
        tracker.observe(0, loss=0.0)
        with tracker._worker.held():
            tracker.observe(1, loss=1.0)
            for step in range(2, 3000):
                tracker.observe(step, loss=float(step))
            assert tracker._worker._jobs.qsize() < 10
        tracker.flush()
        tracker.observe(3000, loss=3000.0)
    ds = rs.open(tmp_path / "run")
    assert {*ds.attrs["skipped"], *ds.step.values} == {*range(3001)}
    assert list(ds.loss_every_step.values) == [float(step) for step in range(3001)]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("shape", [(0, 4), (1, 1), (1, 7), (5, 1), (6, 4)])
def test_odd_shapes_and_dtypes(tmp_path, dtype: torch.dtype, shape: tuple[int, int]) -> None:
    class One(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(shape, dtype=dtype))
            self.other = nn.Parameter(torch.eye(3, dtype=dtype))

    run = track(tmp_path / "run", One(), include=["weight", "other"])  # vectors are named in full
    values = run.singular_values.values[0, 0]
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
