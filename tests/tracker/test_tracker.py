"""Contents of a tracked run, against a dense computation of the same weights."""

import json
import time
from typing import ClassVar

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import rankscope as rs


class Training:
    """SGD on a small net. `history` holds the weights that the tracker must see at each step."""

    def __init__(self, model: nn.Module, width: int, *, seed: int = 0) -> None:
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.generator = torch.Generator().manual_seed(seed)
        self.width = width
        self.history: list[dict[str, np.ndarray]] = []

    def weights(self) -> dict[str, np.ndarray]:
        return {n: p.detach().double().numpy().copy() for n, p in self.model.named_parameters()}

    def step(self) -> torch.Tensor:
        self.history.append(self.weights())
        x = torch.randn(8, self.width, generator=self.generator)
        loss = self.model(x).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss


def mlp(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 4))


def run(path, steps: int = 5, **options) -> Training:
    training = Training(mlp(), 6)
    with rs.Tracker(training.model, path, **{"schedule": 1, **options}) as tracker:
        for step in range(steps):
            before = training.weights()
            tracker.observe(step, loss=float(step))
            training.step()
            assert all(np.array_equal(before[n], training.history[-1][n]) for n in before)
    return training


def test_singular_values_are_those_of_the_weights_at_each_step(tmp_path) -> None:
    training = run(tmp_path / "run")
    ds = rs.open(tmp_path / "run")
    assert list(ds.step.values) == [0, 1, 2, 3, 4]
    for step, weights in enumerate(training.history):
        for name in ("0", "2"):
            dense = np.linalg.svd(weights[f"{name}.weight"], compute_uv=False)
            measured = ds.singular_values.sel(step=step, matrix=name).values
            np.testing.assert_allclose(measured[: len(dense)], dense, rtol=2e-6)
            assert np.isnan(measured[len(dense) :]).all()


def test_changes_are_measured_from_the_first_snapshot(tmp_path) -> None:
    training = run(tmp_path / "run")
    ds = rs.open(tmp_path / "run")
    first = training.history[0]["0.weight"]
    for step, weights in enumerate(training.history):
        dense = np.linalg.svd(weights["0.weight"] - first, compute_uv=False)
        measured = ds.change_singular_values.sel(step=step, matrix="0").values
        np.testing.assert_allclose(measured[: len(dense)], dense, atol=1e-6 * max(dense[0], 1e-12))


@pytest.mark.parametrize("form", ["file", "state dict", "model"])
def test_changes_from_a_given_reference(tmp_path, form: str) -> None:
    other = mlp(seed=1)
    save_file(other.state_dict(), tmp_path / "other.safetensors")
    reference = {
        "file": tmp_path / "other.safetensors",
        "state dict": other.state_dict(),
        "model": other,
    }[form]
    training = run(tmp_path / "run", steps=2, reference=reference)
    ds = rs.open(tmp_path / "run")
    change = training.history[1]["2.weight"] - other[2].weight.detach().double().numpy()
    dense = np.linalg.svd(change, compute_uv=False)
    measured = ds.change_singular_values.sel(step=1, matrix="2").values[: len(dense)]
    np.testing.assert_allclose(measured, dense, rtol=2e-6)


def test_no_reference_no_change(tmp_path) -> None:
    run(tmp_path / "run", steps=1, reference=None)
    assert "change_singular_values" not in rs.open(tmp_path / "run")


def test_alignment_of_given_pairs(tmp_path) -> None:
    training = run(tmp_path / "run", pairs=[rs.Pair("0", "2")], top=3)
    ds = rs.open(tmp_path / "run")
    U, _, _ = np.linalg.svd(training.history[3]["0.weight"])
    _, _, Vh = np.linalg.svd(training.history[3]["2.weight"])
    A = np.abs(U[:, :3].T @ Vh[:3].T)
    measured = ds.sel(step=3, pair="0 > 2")
    np.testing.assert_allclose(measured.alignment.values, np.diag(A), atol=1e-5)
    background = A[~np.eye(3, dtype=bool)].mean()
    np.testing.assert_allclose(float(measured.alignment_background), background, atol=1e-5)
    assert list(ds.i.values) == [1, 2, 3]


def test_the_chance_level_is_stored_with_each_pair(tmp_path) -> None:
    """Against the mean overlap of random directions, cut to the centre tap of a convolution."""
    model = nn.Sequential(nn.Conv2d(3, 24, 3), nn.Conv2d(24, 20, 3))
    pairs = rs.discover_pairs(model, torch.zeros(1, 3, 8, 8))
    with rs.Tracker(model, tmp_path / "run", pairs=pairs) as tracker:
        tracker.observe(0)
    generator = np.random.default_rng(0)
    u, v = generator.normal(size=(2, 20000, 24 * 9))
    u = u[:, :24] / np.linalg.norm(u[:, :24], axis=1, keepdims=True)
    v = v / np.linalg.norm(v, axis=1, keepdims=True)
    overlaps = np.abs((u * v.reshape(-1, 24, 9)[:, :, 4]).sum(1))
    chance = float(rs.open(tmp_path / "run").chance.sel(pair="0 > 1"))
    np.testing.assert_allclose(chance, overlaps.mean(), rtol=0.03)


def test_changes_are_those_of_whole_matrices(tmp_path) -> None:
    with rs.Tracker(nn.MultiheadAttention(8, 2), tmp_path / "run") as tracker:
        tracker.observe(0)
    ds = rs.open(tmp_path / "run")
    assert set(ds.matrix.values[ds.part_of.values != ""]) == {"v", "h0.q", "h1.q", "h0.k", "h1.k"}
    for name, whole in zip(ds.matrix.values, ds.part_of.values == "", strict=True):
        change = ds.change_singular_values.sel(step=0, matrix=name).values
        assert (change == 0).all() if whole else np.isnan(change).all(), name


def test_a_model_declares_its_pairs(tmp_path) -> None:
    class Declared(nn.Sequential):
        def alignment_pairs(self) -> tuple[rs.Pair, ...]:
            return (rs.Pair("0", "1"),)

    with rs.Tracker(Declared(nn.Linear(3, 3), nn.Linear(3, 2)), tmp_path / "run") as tracker:
        tracker.observe(0)
    assert list(rs.open(tmp_path / "run").pair.values) == ["0 > 1"]


def test_a_pair_of_no_matrix_is_refused(tmp_path) -> None:
    with pytest.raises(ValueError, match="names the matrix 'nowhere'"):
        rs.Tracker(mlp(), tmp_path / "run", pairs=[rs.Pair("0", "nowhere")])


def test_products_of_attention_heads(tmp_path) -> None:
    torch.manual_seed(0)
    model = nn.MultiheadAttention(8, 2, bias=False)
    start = model.in_proj_weight.detach().double().clone()
    with rs.Tracker(model, tmp_path / "run", schedule=1) as tracker:
        tracker.observe(0)
        with torch.no_grad():
            model.in_proj_weight += 0.1 * torch.randn_like(model.in_proj_weight)
        tracker.observe(1)
    ds = rs.open(tmp_path / "run")

    def kq(packed: torch.Tensor, head: int) -> np.ndarray:
        q, k, _ = packed.numpy().reshape(3, 2, 4, 8)[:, head]
        return k.T @ q

    now = model.in_proj_weight.detach().double()
    change = np.linalg.svd(kq(now, 1) - kq(start, 1), compute_uv=False)
    measured = ds.product_change_singular_values.sel(step=1, product="h1.kq").values
    np.testing.assert_allclose(measured[:8], change, atol=1e-6 * change[0])
    assert set(ds["product"].values) == {"h0.kq", "h1.kq", "h0.vo", "h1.vo"}


def test_scalars_at_snapshots_and_at_every_step(tmp_path) -> None:
    model = mlp()
    with rs.Tracker(model, tmp_path / "run", schedule=4, every_step=("loss",)) as tracker:
        for step in range(10):
            scalars = {"loss": torch.tensor(float(step) ** 2), "rate": 0.5}
            tracker.observe(step, **scalars, **({"late": 1.0} if step >= 4 else {}))
    ds = rs.open(tmp_path / "run")
    assert list(ds.loss.values) == [0.0, 16.0, 64.0]
    assert list(ds.rate.values) == [0.5] * 3
    assert np.isnan(ds.late.values[0]) and list(ds.late.values[1:]) == [1.0, 1.0]
    assert list(ds.train_step.values) == list(range(10))
    assert list(ds.loss_every_step.values) == [float(step) ** 2 for step in range(10)]


def test_every_step_scalars_are_copied_when_seen(tmp_path) -> None:
    """A loss buffer that is overwritten in place, as CUDA graphs do, must not rewrite history."""
    static = torch.zeros(())
    with rs.Tracker(mlp(), tmp_path / "run", schedule=100, every_step=("loss",)) as tracker:
        for step in range(5):
            static.fill_(step)
            tracker.observe(step, loss=static)
    assert list(rs.open(tmp_path / "run").loss_every_step.values) == [0, 1, 2, 3, 4]


def test_include_and_exclude(tmp_path) -> None:
    run(tmp_path / "run", steps=1, exclude="2")
    assert list(rs.open(tmp_path / "run").matrix.values) == ["0"]


def test_products_of_excluded_layers_are_left_out(tmp_path) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.MultiheadAttention(8, 2))
    with rs.Tracker(model, tmp_path / "run", include="0") as tracker:
        tracker.observe(0)
    ds = rs.open(tmp_path / "run")
    assert list(ds.matrix.values) == ["0"] and "product" not in ds.sizes


def test_gaps_and_time_add_up_over_resumes(tmp_path) -> None:
    walls = []
    for start in (0, 10):
        with rs.Tracker(
            mlp(), tmp_path / "run", schedule=1, when_full="skip", places=1, resume=True
        ) as tracker:
            tracker.observe(start)
            with tracker._worker.held():
                for step in range(start + 1, start + 4):
                    tracker.observe(step)
        walls.append(rs.open(tmp_path / "run").attrs["wall_seconds"])
    assert 0 < walls[0] < walls[1]
    assert {2, 3, 12, 13} <= set(rs.open(tmp_path / "run").attrs["skipped"])


def test_the_run_says_where_it_came_from(tmp_path) -> None:
    run(tmp_path / "run", steps=1, attrs={"seed": 7})
    attrs = rs.open(tmp_path / "run").attrs
    assert attrs["seed"] == 7
    assert attrs["torch"] == torch.__version__
    assert attrs["wall_seconds"] > 0
    again = rs.views(mlp(seed=3).state_dict(), like=rs.Manifest.from_json(attrs["manifest"]))
    assert list(again) == ["0", "2"]


def test_its_own_cost_is_stored(tmp_path) -> None:
    run(tmp_path / "run")
    ds = rs.open(tmp_path / "run")
    for name in ("tracker_copy_seconds", "tracker_wait_seconds", "tracker_compute_seconds"):
        assert (ds[name].values >= 0).all() and ds[name].sizes == {"step": 5}


def test_acknowledged_means_committed(tmp_path) -> None:
    model = mlp()
    with rs.Tracker(model, tmp_path / "run", schedule=1) as tracker:
        assert tracker.committed is None
        for step in range(4):
            tracker.observe(step)
        tracker.flush()
        assert tracker.committed == 3
        assert list(rs.open(tmp_path / "run").step.values) == [0, 1, 2, 3]


def test_resume_goes_on_with_the_same_reference(tmp_path) -> None:
    whole, halves = Training(mlp(), 6), Training(mlp(), 6)
    with rs.Tracker(whole.model, tmp_path / "whole", schedule=1) as tracker:
        for step in range(6):
            tracker.observe(step)
            whole.step()
    for steps in (range(0, 4), range(3, 6)):  # step 3 is trained again after the break
        if steps.start:
            halves.model.load_state_dict({n: torch.tensor(w) for n, w in halves.history[3].items()})
            halves.generator = torch.Generator().manual_seed(0)
            for _ in range(3):
                torch.randn(8, 6, generator=halves.generator)
        with rs.Tracker(halves.model, tmp_path / "halves", schedule=1, resume=True) as tracker:
            for step in steps:
                tracker.observe(step)
                halves.step()
    one, two = rs.open(tmp_path / "whole"), rs.open(tmp_path / "halves")
    assert list(two.step.values) == list(range(6))
    for name in ("singular_values", "change_singular_values"):
        np.testing.assert_array_equal(one[name].values, two[name].values)


def test_a_snapshot_at_the_end_whatever_the_schedule_says(tmp_path) -> None:
    training = Training(mlp(), 6)
    with rs.Tracker(training.model, tmp_path / "run", schedule=[0]) as tracker:
        for step in range(5):
            tracker.observe(step, loss=1.0)
            training.step()
        tracker.snapshot(5, loss=0.5)
    ds = rs.open(tmp_path / "run")
    assert list(ds.step.values) == [0, 5] and list(ds.loss.values) == [1.0, 0.5]
    dense = np.linalg.svd(training.weights()["2.weight"], compute_uv=False)
    np.testing.assert_allclose(ds.singular_values.sel(step=5, matrix="2")[:4], dense, rtol=2e-6)


def test_a_step_that_is_due_after_a_snapshot_of_it(tmp_path) -> None:
    with rs.Tracker(mlp(), tmp_path / "run", schedule=[0, 3, 4, 6]) as tracker:
        for step in range(7):
            if step == 3:
                tracker.snapshot(step, loss=-1.0)
            tracker.observe(step, loss=float(step))
    assert tracker.failed is None
    ds = rs.open(tmp_path / "run")
    assert list(ds.step.values) == [0, 3, 4, 6] and list(ds.loss.values) == [0.0, -1.0, 4.0, 6.0]


def test_a_snapshot_after_the_end_is_warned_of(tmp_path) -> None:
    with rs.Tracker(mlp(), tmp_path / "run", schedule=[0]) as tracker:
        tracker.observe(0)
    with pytest.warns(RuntimeWarning, match="is closed, so no snapshot of step 1 is taken"):
        tracker.snapshot(1)


def test_a_snapshot_of_a_step_that_was_observed(tmp_path) -> None:
    """It is taken if the step was not due. Scalars of every step come from `observe` alone."""
    with rs.Tracker(mlp(), tmp_path / "run", schedule=[0, 3], every_step=("loss",)) as tracker:
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
        mlp(), tmp_path / "run", schedule=1, when_full="skip", places=1, probe=Slow()
    ) as tracker:
        tracker.observe(0)
        tracker.observe(1)
        tracker.snapshot(2)
    ds = rs.open(tmp_path / "run")
    assert list(ds.step.values) == [0, 2] and ds.attrs["skipped"] == [1]


def test_a_snapshot_first_of_all_after_a_break(tmp_path) -> None:
    run(tmp_path / "run", steps=4)
    with rs.Tracker(mlp(), tmp_path / "run", resume=True) as tracker:
        tracker.snapshot(2, loss=9.0)
    ds = rs.open(tmp_path / "run")
    assert list(ds.step.values) == [0, 1, 2] and float(ds.loss[2]) == 9.0


def test_paused_sees_nothing(tmp_path) -> None:
    with rs.Tracker(mlp(), tmp_path / "run", schedule=1) as tracker:
        tracker.observe(0)
        with tracker.paused():
            tracker.observe(1)
            tracker.snapshot(1)
        tracker.observe(2)
    assert list(rs.open(tmp_path / "run").step.values) == [0, 2]


def test_skipping_when_full_leaves_a_recorded_gap(tmp_path) -> None:
    with rs.Tracker(mlp(), tmp_path / "run", schedule=1, when_full="skip", places=1) as tracker:
        with tracker._worker.held():  # a worker that is busy for a while
            for step in range(4):
                tracker.observe(step)
        tracker.observe(4)
        tracker.flush()
        tracker.observe(5)
    ds = rs.open(tmp_path / "run")
    assert ds.step.values[0] == 0 and ds.step.values[-1] == 5
    assert set(ds.attrs["skipped"]) >= {1, 2, 3}
    assert sorted([*ds.step.values, *ds.attrs["skipped"]]) == list(range(6))


def test_coverage_and_manifest_are_json(tmp_path) -> None:
    run(tmp_path / "run", steps=1)
    root = json.loads((tmp_path / "run" / "zarr.json").read_text())
    assert "0.weight" in root["attributes"]["coverage"]
