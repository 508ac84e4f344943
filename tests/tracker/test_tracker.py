"""Contents of a tracked run, against a dense computation of the same weights."""

import time
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import rankscope as rs
from rankscope.matrices import Manifest
from tracker.tracked import network, track


def weight(model: nn.Sequential, layer: int) -> np.ndarray:
    return model[layer].weight.detach().double().numpy()


def spectrum(W: np.ndarray) -> np.ndarray:
    return np.linalg.svd(W, compute_uv=False)


def test_spectra_are_those_of_the_weights_and_of_their_change_at_each_step(tmp_path) -> None:
    ds = track(tmp_path / "run", steps=range(5))
    assert list(ds.step.values) == [0, 1, 2, 3, 4]
    for step in range(5):
        for layer in (0, 2):
            now = ds.sel(step=step, matrix=str(layer))
            W, W0 = weight(network(step), layer), weight(network(), layer)
            k = min(W.shape)
            np.testing.assert_allclose(now.singular_values[:k], spectrum(W), rtol=2e-6)
            assert np.isnan(now.singular_values[k:]).all()
            change = spectrum(W - W0)
            np.testing.assert_allclose(
                now.change_singular_values[:k], change, atol=1e-6 * max(change[0], 1e-12)
            )
    for name in ("tracker_copy_seconds", "tracker_wait_seconds", "tracker_compute_seconds"):
        assert (ds[name].values >= 0).all() and ds[name].sizes == {"step": 5}


@pytest.mark.parametrize("form", ["file", "state dict", "model"])
def test_changes_from_a_given_reference(tmp_path, form: str) -> None:
    other = network(seed=1)
    save_file(other.state_dict(), tmp_path / "other.safetensors")
    reference = {
        "file": tmp_path / "other.safetensors",
        "state dict": other.state_dict(),
        "model": other,
    }[form]
    ds = track(tmp_path / "run", steps=range(2), reference=reference)
    dense = spectrum(weight(network(1), 2) - weight(other, 2))
    measured = ds.change_singular_values.sel(step=1, matrix="2").values[: len(dense)]
    np.testing.assert_allclose(measured, dense, rtol=2e-6)


def test_no_reference_no_change(tmp_path) -> None:
    assert "change_singular_values" not in track(tmp_path / "run", reference=None)


def test_alignment_of_given_pairs(tmp_path) -> None:
    ds = track(tmp_path / "run", steps=range(4), pairs=[rs.Pair("0", "2")], top=3)
    U, _, _ = np.linalg.svd(weight(network(3), 0))
    _, _, Vh = np.linalg.svd(weight(network(3), 2))
    A = np.abs(U[:, :3].T @ Vh[:3].T)
    measured = ds.sel(step=3, pair="0 > 2")
    np.testing.assert_allclose(measured.alignment.values, np.diag(A), atol=1e-5)
    background = A[~np.eye(3, dtype=bool)].mean()
    np.testing.assert_allclose(float(measured.alignment_background), background, atol=1e-5)
    assert list(ds.i.values) == [1, 2, 3]


def test_the_chance_level_is_stored_with_each_pair(tmp_path) -> None:
    """Against the mean overlap of random directions, cut to the centre tap of a convolution."""
    model = nn.Sequential(nn.Conv2d(3, 24, 3), nn.Conv2d(24, 20, 3))
    ds = track(tmp_path / "run", model, pairs=rs.discover_pairs(model, torch.zeros(1, 3, 8, 8)))
    generator = np.random.default_rng(0)
    u, v = generator.normal(size=(2, 20000, 24 * 9))
    u = u[:, :24] / np.linalg.norm(u[:, :24], axis=1, keepdims=True)
    v = v / np.linalg.norm(v, axis=1, keepdims=True)
    overlaps = np.abs((u * v.reshape(-1, 24, 9)[:, :, 4]).sum(1))
    np.testing.assert_allclose(float(ds.chance.sel(pair="0 > 1")), overlaps.mean(), rtol=0.03)


def test_changes_are_those_of_whole_matrices(tmp_path) -> None:
    ds = track(tmp_path / "run", nn.MultiheadAttention(8, 2))
    assert set(ds.matrix.values[ds.part_of.values != ""]) == {"v", "h0.q", "h1.q", "h0.k", "h1.k"}
    for name, whole in zip(ds.matrix.values, ds.part_of.values == "", strict=True):
        change = ds.change_singular_values.sel(step=0, matrix=name).values
        assert (change == 0).all() if whole else np.isnan(change).all(), name


def test_a_model_declares_its_pairs(tmp_path) -> None:
    class Declared(nn.Sequential):
        def alignment_pairs(self) -> tuple[rs.Pair, ...]:
            return (rs.Pair("0", "1"),)

    ds = track(tmp_path / "run", Declared(nn.Linear(3, 3), nn.Linear(3, 2)))
    assert list(ds.pair.values) == ["0 > 1"]


def test_products_of_attention_heads(tmp_path) -> None:
    model = nn.MultiheadAttention(8, 2, bias=False)
    packed = [model.in_proj_weight.detach().double().numpy()]
    with rs.Tracker(model, tmp_path / "run", schedule=1) as tracker:
        tracker.observe(0)
        with torch.no_grad():
            model.in_proj_weight += 0.1 * torch.randn_like(model.in_proj_weight)
        packed.append(model.in_proj_weight.detach().double().numpy())
        tracker.observe(1)
    ds = rs.open(tmp_path / "run")
    factors = [W.reshape(3, 2, 4, 8)[:, 1] for W in packed]  # q, k, v of head 1
    before, after = (k.T @ q for q, k, _ in factors)
    change = spectrum(after - before)
    measured = ds.product_change_singular_values.sel(step=1, product="h1.kq").values
    np.testing.assert_allclose(measured[:8], change, atol=1e-6 * change[0])
    assert set(ds["product"].values) == {"h0.kq", "h1.kq", "h0.vo", "h1.vo"}


def test_scalars_at_snapshots_and_at_every_step(tmp_path) -> None:
    """A loss that is overwritten in place, as CUDA graphs do, does not rewrite history."""
    loss = torch.zeros(())
    with rs.Tracker(network(), tmp_path / "run", schedule=4, every_step=("loss",)) as tracker:
        for step in range(10):
            loss.fill_(step**2)
            tracker.observe(step, loss=loss, rate=0.5, **({"late": 1.0} if step >= 4 else {}))
    ds = rs.open(tmp_path / "run")
    assert list(ds.loss.values) == [0.0, 16.0, 64.0]
    assert list(ds.rate.values) == [0.5] * 3
    assert np.isnan(ds.late.values[0]) and list(ds.late.values[1:]) == [1.0, 1.0]
    assert list(ds.train_step.values) == list(range(10))
    assert list(ds.loss_every_step.values) == [float(step) ** 2 for step in range(10)]


def test_layers_that_are_left_out(tmp_path) -> None:
    assert list(track(tmp_path / "excluded", exclude="2").matrix.values) == ["0"]
    model = nn.Sequential(nn.Linear(8, 8), nn.MultiheadAttention(8, 2))
    ds = track(tmp_path / "included", model, include="0")
    assert list(ds.matrix.values) == ["0"] and "product" not in ds.sizes


def test_gaps_and_time_add_up_over_resumes(tmp_path) -> None:
    walls = []
    for start in (0, 10):
        with rs.Tracker(
            network(), tmp_path / "run", schedule=1, when_full="skip", places=1, resume=True
        ) as tracker:
            with tracker._worker.held():  # a worker that is busy for a while
                for step in range(start, start + 4):
                    tracker.observe(step)
            tracker.flush()
            tracker.observe(start + 4)
        ds = rs.open(tmp_path / "run")
        walls.append(ds.attrs["wall_seconds"])
    assert 0 < walls[0] < walls[1]
    assert list(ds.step.values) == [0, 4, 10, 14]
    assert ds.attrs["skipped"] == [1, 2, 3, 11, 12, 13]


def test_the_run_says_where_it_came_from(tmp_path) -> None:
    attrs = track(tmp_path / "run", attrs={"seed": 7}).attrs
    assert attrs["seed"] == 7
    assert attrs["torch"] == torch.__version__
    assert attrs["wall_seconds"] > 0
    assert "0.weight" in attrs["coverage"]
    manifest = rs.Manifest.from_json(attrs["manifest"])
    assert list(rs.views(network(seed=3).state_dict(), like=manifest)) == ["0", "2"]


def test_acknowledged_means_committed(tmp_path) -> None:
    with rs.Tracker(network(), tmp_path / "run", schedule=1) as tracker:
        assert tracker.committed is None
        for step in range(4):
            tracker.observe(step)
        tracker.flush()
        assert tracker.committed == 3
        assert list(rs.open(tmp_path / "run").step.values) == [0, 1, 2, 3]


@pytest.mark.parametrize("beside", ["thread", "process"])
def test_resume_goes_on_with_the_same_reference(tmp_path, beside: str) -> None:
    whole = track(tmp_path / "whole", steps=range(6))
    track(tmp_path / "halves", steps=range(4))
    # Step 3 is trained again after the break.
    halves = track(tmp_path / "halves", network(3), steps=range(3, 6), resume=True, beside=beside)
    assert list(halves.step.values) == list(range(6))
    for name in ("singular_values", "change_singular_values"):
        np.testing.assert_array_equal(whole[name].values, halves[name].values)


def test_a_snapshot_at_the_end_whatever_the_schedule_says(tmp_path) -> None:
    model = network()
    with rs.Tracker(model, tmp_path / "run", schedule=[0]) as tracker:
        for step in range(5):
            tracker.observe(step, loss=1.0)
        model.load_state_dict(network(5).state_dict())
        tracker.snapshot(5, loss=0.5)
    ds = rs.open(tmp_path / "run")
    assert list(ds.step.values) == [0, 5] and list(ds.loss.values) == [1.0, 0.5]
    dense = spectrum(weight(network(5), 2))
    np.testing.assert_allclose(ds.singular_values.sel(step=5, matrix="2")[:4], dense, rtol=2e-6)
    with pytest.warns(RuntimeWarning, match="is closed, so no snapshot of step 6 is taken"):
        tracker.snapshot(6)


def test_a_step_that_is_due_after_a_snapshot_of_it(tmp_path) -> None:
    with rs.Tracker(network(), tmp_path / "run", schedule=[0, 3, 4, 6]) as tracker:
        for step in range(7):
            if step == 3:
                tracker.snapshot(step, loss=-1.0)
            tracker.observe(step, loss=float(step))
    assert tracker.failed is None
    ds = rs.open(tmp_path / "run")
    assert list(ds.step.values) == [0, 3, 4, 6] and list(ds.loss.values) == [0.0, -1.0, 4.0, 6.0]


def test_a_snapshot_of_a_step_that_was_observed(tmp_path) -> None:
    """It is taken if the step was not due. Scalars of every step come from `observe` alone."""
    with rs.Tracker(network(), tmp_path / "run", schedule=[0, 3], every_step=("loss",)) as tracker:
        for step in range(4):
            tracker.observe(step, loss=float(step))
            if step >= 2:
                tracker.snapshot(step, loss=-1.0)
    assert tracker.failed is None
    ds = rs.open(tmp_path / "run")
    assert list(ds.step.values) == [0, 2, 3] and list(ds.loss.values) == [0.0, -1.0, 3.0]
    assert list(ds.loss_every_step.values) == [0.0, 1.0, 2.0, 3.0]


def test_a_snapshot_that_is_asked_for_waits_where_a_scheduled_one_is_skipped(tmp_path) -> None:
    class Slow:
        directions: ClassVar[dict[str, int]] = {}

        def __call__(self, tensors, directions) -> dict[str, float]:
            time.sleep(0.2)
            return {}

    with rs.Tracker(
        network(), tmp_path / "run", schedule=1, when_full="skip", places=1, probe=Slow()
    ) as tracker:
        tracker.observe(0)
        tracker.observe(1)
        tracker.snapshot(2)
    ds = rs.open(tmp_path / "run")
    assert list(ds.step.values) == [0, 2] and ds.attrs["skipped"] == [1]


def test_a_snapshot_first_of_all_after_a_break(tmp_path) -> None:
    track(tmp_path / "run", steps=range(4))
    with rs.Tracker(network(), tmp_path / "run", resume=True) as tracker:
        tracker.snapshot(2, loss=9.0)
    ds = rs.open(tmp_path / "run")
    assert list(ds.step.values) == [0, 1, 2] and float(ds.loss[2]) == 9.0


def test_paused_sees_nothing(tmp_path) -> None:
    with rs.Tracker(network(), tmp_path / "run", schedule=1) as tracker:
        tracker.observe(0)
        with tracker.paused(), tracker.paused():
            tracker.observe(1)
            tracker.snapshot(1)
            for wait in (tracker.flush, tracker.close):
                with pytest.raises(ValueError, match="paused"):
                    wait()
        tracker.observe(2)
    assert list(rs.open(tmp_path / "run").step.values) == [0, 2]


def test_home_is_expanded_and_a_url_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    model = nn.Linear(2, 2)
    with rs.Tracker(model, "~/run") as tracker:
        tracker.observe(0)
    assert tracker.path == tmp_path / "run"
    assert rs.open("~/run").sizes["step"] == 1
    with pytest.raises(ValueError, match="s3://bucket/run is a URL"):
        rs.Tracker(model, "s3://bucket/run")


def test_an_example_verifies_heads_and_never_stops_training(tmp_path) -> None:
    class Reversed(nn.Module):
        """Attention by its names, whose fused projection has queries last."""

        def __init__(self) -> None:
            super().__init__()
            self.heads, self.qkv, self.proj = 2, nn.Linear(8, 24), nn.Linear(8, 8)

        def forward(self, x):
            parts = self.qkv(x).unflatten(-1, (3, 2, 4)).movedim(-2, -4).unbind(-2)
            mixed = nn.functional.scaled_dot_product_attention(*reversed(parts))
            return x + self.proj(mixed.movedim(-3, -2).flatten(-2))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.right = nn.MultiheadAttention(8, 2, batch_first=True)
            self.wrong = Reversed()

        def forward(self, x):
            return self.wrong(self.right(x, x, x)[0])

    for name, example, expected in (
        ("fits", torch.randn(1, 5, 8), {"right"}),
        ("does not fit", torch.randn(1, 5, 7), {"right", "wrong"}),
    ):
        net = Net()
        pairs = rs.discover_pairs(net, torch.randn(1, 5, 8))
        assert {pair.earlier.split(".")[0] for pair in pairs} == {"right", "wrong"}
        with rs.Tracker(net, tmp_path / name, schedule=1, example=example, pairs=pairs) as tracker:
            tracker.observe(0)
        run = rs.open(tmp_path / name)
        assert {pair.split(".")[0] for pair in run["pair"].values} == expected
        assert {product.split(".")[0] for product in run["product"].values} == expected
        stored = Manifest.from_json(run.attrs["manifest"]).verification
        assert stored["wrong"].status == ("refuted" if name == "fits" else "assumed")
        assert stored["wrong"].why in run.attrs["coverage"]
