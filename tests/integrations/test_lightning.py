"""The callback of Lightning, under both of its names, on real short trainings."""

import tomllib
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

import lightning.pytorch
import numpy as np
import pytest
import pytorch_lightning
import torch
from lightning.pytorch.callbacks import EMAWeightAveraging, ModelCheckpoint
from torch import nn

import rankscope as rs
from integrations.lightning_trainings import Module, Training, Validation, Wait, loader, trainer
from integrations.ranks import Ranks
from rankscope.integrations.lightning import RankCallback
from rankscope.integrations.lightning_entry import VARIABLE

ROOT = Path(__file__).parents[2]
GROUPS = {
    lightning.pytorch: "lightning.pytorch.callbacks_factory",
    pytorch_lightning: "pytorch_lightning.callbacks_factory",
}

pytestmark = [
    # What Lightning says of small trainings, and of torch's newest names.
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*isinstance\\(treespec, LeafSpec\\)"),
]


class OldModule(Training, pytorch_lightning.LightningModule):
    """A module of pytorch_lightning."""


MODULES = {lightning.pytorch: Module, pytorch_lightning: OldModule}
both = pytest.mark.parametrize("package", MODULES, ids=lambda package: package.__name__)


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    ranks = Ranks("integrations.lightning_trainings")
    yield ranks
    ranks.close()


def assert_last_snapshot_is(run_path: Path, layers: nn.Module) -> None:
    """Compare the stored spectrum of the first layer with one decomposed here."""
    run = rs.open(run_path)
    expected = torch.linalg.svdvals(layers[0].weight.detach().double())
    stored = run.singular_values.isel(step=-1).sel(matrix="layers.0").values
    np.testing.assert_allclose(stored[: len(expected)], expected, rtol=1e-4)


@both
@pytest.mark.parametrize("accumulation", [1, 2])
def test_steps_are_those_of_the_optimizer(
    tmp_path: Path, package: ModuleType, accumulation: int
) -> None:
    module = type("Validated", (Validation, MODULES[package]), {})()
    callback = RankCallback(tmp_path / "run", schedule=1, strict=True)
    # One callback, not in a list: Lightning must know it for a callback.
    trainer(
        tmp_path, package=package, accumulate_grad_batches=accumulation, callbacks=callback
    ).fit(module, loader(), loader())
    run = rs.open(tmp_path / "run")
    assert run.step.values.tolist() == [0, 1, 2, 3, 4, 5, 6]
    np.testing.assert_allclose(run.loss[1:], run.train_error[1:] ** 2, rtol=1e-5)
    np.testing.assert_allclose(run.learning_rate, 0.01)
    assert run.epoch.values.tolist() == [0] * 7 if accumulation == 1 else [0, 0, 0, 0, 1, 1, 1]
    assert ("val_loss" in run) == (accumulation == 2)  # validated after an epoch of 8 batches
    assert_last_snapshot_is(tmp_path / "run", module.layers)


def test_names_of_arguments_can_be_logged(tmp_path: Path) -> None:
    """Lightning's users log "step" to choose the axis of their dashboard."""

    class Logging(Module):
        def training_step(self, batch, index) -> torch.Tensor:
            self.log("step", 7.0)
            self.log("self", 7.0)
            return super().training_step(batch, index)

    callback = RankCallback(tmp_path / "run", schedule=1, strict=True)
    trainer(tmp_path, callback, max_steps=2).fit(Logging(), loader())
    run = rs.open(tmp_path / "run")
    assert run.step.values.tolist() == [0, 1, 2]
    assert "train_error" in run and "self" not in run


def test_a_gate_judges_each_training_anew(tmp_path: Path) -> None:
    gate = rs.StopIf("stable_rank < 0")
    gate.reason = "met in an earlier training"
    callback = RankCallback(tmp_path / "run", schedule=1, strict=True, gates=gate)
    training = trainer(tmp_path, callback, max_steps=3)
    training.fit(Module(), loader())
    assert training.global_step == 3 and gate.reason is None


def test_steps_of_several_optimizers_are_counted_as_the_trainer_does(tmp_path: Path) -> None:
    class Manual(Module):
        automatic_optimization = False

        def training_step(self, batch, index) -> None:
            for optimizer in self.optimizers():
                optimizer.zero_grad()
                self.manual_backward(self(batch[0]).square().mean())
                optimizer.step()

        def configure_optimizers(self) -> list[torch.optim.Optimizer]:
            parts = (self.layers[0], self.layers[3])
            return [torch.optim.SGD(part.parameters(), lr=0.1) for part in parts]

    callback = RankCallback(tmp_path / "run", schedule=1, strict=True)
    training = trainer(tmp_path, callback, max_steps=8)
    training.fit(Manual(), loader())
    assert training.global_step == 8
    assert rs.open(tmp_path / "run").step.values.tolist() == [0, 2, 4, 6, 8]


@pytest.mark.parametrize("kind", ["float32", "bf16-mixed", "compile"])
def test_training_is_bit_identical(tmp_path: Path, kind: str) -> None:
    results = []
    callback = RankCallback(
        tmp_path / "run",
        schedule=1,
        strict=True,
        sinks=rs.sinks.TensorBoard(tmp_path / "logs"),
        gates=rs.StopIf("stable_rank < 0"),
    )
    for callbacks in ([], [callback]):
        torch.manual_seed(7)  # for dropout
        module = Module()
        options = {"precision": kind} if kind == "bf16-mixed" else {}
        training = trainer(tmp_path, *callbacks, max_steps=4, **options)
        if kind == "compile":
            module.layers = torch.compile(module.layers, backend="aot_eager")
        training.fit(module, loader())
        results.append((module.state_dict(), torch.get_rng_state()))
    (bare, state), (tracked, state_tracked) = results
    assert bare.keys() == tracked.keys()
    assert all(torch.equal(bare[name], tracked[name]) for name in bare)
    assert torch.equal(state, state_tracked)
    run = rs.open(tmp_path / "run")
    assert run.matrix.values.tolist() == ["layers.0", "layers.3"] and run.sizes["step"] == 5


@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty")
def test_a_resumed_training_goes_on_in_its_run(tmp_path: Path) -> None:
    saving = {"max_steps": -1, "enable_checkpointing": True}

    def callbacks() -> list[lightning.pytorch.Callback]:
        keep = ModelCheckpoint(tmp_path / "checkpoints", "{step}", save_top_k=-1)
        return [RankCallback(tmp_path / "run", schedule=1, strict=True), keep]

    trainer(tmp_path, *callbacks(), max_epochs=2, **saving).fit(Module(), loader())
    assert rs.open(tmp_path / "run").step.values.tolist() == list(range(17))
    module, checkpoint = Module(), tmp_path / "checkpoints/step=8.ckpt"
    trainer(tmp_path, *callbacks(), max_epochs=3, **saving).fit(
        module, loader(), ckpt_path=checkpoint
    )
    run = rs.open(tmp_path / "run")
    assert run.step.values.tolist() == list(range(25))
    assert run.attrs["dropped"] == 1
    old = rs.open(tmp_path / "run/dropped/1")
    np.testing.assert_array_equal(
        run.singular_values.sel(step=slice(8)), old.singular_values.sel(step=slice(8))
    )
    assert_last_snapshot_is(tmp_path / "run", module.layers)


def test_the_last_snapshot_shows_the_trained_weights_not_their_average(tmp_path: Path) -> None:
    trained: list[torch.Tensor] = []

    class Keep(lightning.pytorch.Callback):
        def on_train_epoch_end(self, trainer, module) -> None:
            trained.append(module.layers[0].weight.detach().clone())

    module = Module()
    callback = RankCallback(tmp_path / "run", schedule=100, strict=True)
    trainer(tmp_path, EMAWeightAveraging(decay=0.9), Keep(), callback).fit(module, loader())
    assert not torch.equal(module.layers[0].weight, trained[-1])  # the model is the average now
    assert rs.open(tmp_path / "run").step.values.tolist() == [0, 6]
    with torch.no_grad():
        module.layers[0].weight.copy_(trained[-1])
    assert_last_snapshot_is(tmp_path / "run", module.layers)


@pytest.mark.parametrize("then", ["stop", "raise"])
def test_a_gate_ends_the_training(tmp_path: Path, then: str) -> None:
    gate = rs.StopIf("frobenius_norm > 0", of="change_singular_values", then=then)
    callback = RankCallback(tmp_path / "run", schedule=1, strict=True, gates=gate)
    training = trainer(tmp_path, Wait(callback), callback)
    if then == "raise":
        with pytest.raises(rs.Stopped, match="holds at step 1 for"):
            training.fit(Module(), loader())
    else:
        training.fit(Module(), loader())
    assert training.global_step == 2  # the step at which step 1 had been measured
    assert callback.tracker is None
    assert rs.open(tmp_path / "run").step.values.tolist() in ([0, 1], [0, 1, 2])


@pytest.mark.parametrize("way", ["ddp", "fsdp2"])
def test_two_processes_stop_together(tmp_path: Path, ranks: Ranks, way: str) -> None:
    # Step 1 met the gate, and step 4 is the next that is due.
    assert ranks.train(way, tmp_path) == ["4 steps"] * 2
    run = rs.open(tmp_path / "run")
    assert run.step.values.tolist() == [0, 1, 4]
    expected = rs.singular_values(rs.views(Module()))
    for name in ("layers.0", "layers.3"):
        S = run.singular_values.sel(step=0, matrix=name).values[: len(expected[name])]
        np.testing.assert_allclose(S, expected[name], rtol=1e-4)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the entry points known, if this checkout is not the one that is installed."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    assert set(GROUPS.values()) == groups.keys()
    if all(entry_points(group=group, name="rankscope") for group in groups):
        return
    folder = tmp_path / "entry-0.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: entry\nVersion: 0.0\n")
    lines = [
        line
        for group, names in groups.items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in names.items()))
    ]
    (folder / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)


@both
@pytest.mark.usefixtures("installed")
def test_an_environment_variable_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: ModuleType
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert not any(
        isinstance(c, RankCallback) for c in trainer(tmp_path, package=package).callbacks
    )
    monkeypatch.setenv(VARIABLE, str(tmp_path / "run"))
    training = trainer(tmp_path, package=package, max_steps=3)
    training.fit(MODULES[package](), loader())
    assert rs.open(tmp_path / "run").step.values.tolist()[-1] == 3
    second = trainer(tmp_path, package=package, max_steps=2)
    with pytest.warns(RuntimeWarning, match=r"up to step 3; choose another path$"):
        second.fit(MODULES[package](), loader())
    assert second.global_step == 2


def test_measures_see_the_steps_of_the_optimizer(tmp_path: Path) -> None:
    callback = RankCallback(
        tmp_path / "run", schedule=2, strict=True, measure=[rs.Updates(), rs.Activations("*.0")]
    )
    trainer(tmp_path, callback, accumulate_grad_batches=2).fit(Module(), loader())
    run = rs.open(tmp_path / "run")
    assert run.step.values.tolist() == [0, 2, 4, 6]
    measured = np.isfinite(run.update_norm_ratio).any("matrix").values
    assert measured.tolist() == [True, True, True, False]  # no step leaves the last weights
    assert np.isfinite(run.activation_effective_rank).any("activation").values[:3].all()


def test_gradients_are_those_of_the_same_step(tmp_path: Path) -> None:
    norms: list[float] = []

    class Keep(lightning.pytorch.Callback):
        def on_before_optimizer_step(self, trainer, module, optimizer) -> None:
            norms.append(float(module.layers[0].weight.grad.norm()))

    callback = RankCallback(tmp_path / "run", schedule=1, strict=True, measure=rs.Gradients())
    trainer(tmp_path, Keep(), callback).fit(Module(), loader())
    measured = rs.open(tmp_path / "run").gradient_norm.sel(matrix="layers.0")
    np.testing.assert_allclose(measured[:6], norms, rtol=1e-5)
    assert np.isnan(measured[6])


def test_a_trainer_that_cannot_tell_what_it_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: RankCallback, *arguments: object) -> None:
        raise KeyError("lr")

    monkeypatch.setattr(RankCallback, "_scalars", broken)
    callback = RankCallback(tmp_path / "run", schedule=1)
    with pytest.warns(RuntimeWarning, match="stores no scalars of the trainer: KeyError: 'lr'"):
        trainer(tmp_path, callback).fit(Module(), loader())
    assert rs.open(tmp_path / "run").sizes["step"] == 7


def test_a_tracker_that_fails_does_not_end_the_training(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    training = trainer(tmp_path, RankCallback(tmp_path / "file/run"), max_steps=2)
    with pytest.warns(RuntimeWarning, match=r"training goes on: \w+Error: ") as caught:
        training.fit(Module(), loader())
    assert training.global_step == 2
    assert sum("rankscope" in str(warning.message) for warning in caught) == 1


def test_mistakes_are_told_before_the_first_step(tmp_path: Path) -> None:
    class Scale(Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.LayerNorm(6)

    with pytest.raises(ValueError, match="the model has no matrix to track"):
        trainer(tmp_path, RankCallback(tmp_path / "run")).fit(Scale(), loader())
    with pytest.raises(TypeError, match="shedule"):
        trainer(tmp_path, RankCallback(tmp_path / "run", shedule=1)).fit(Module(), loader())


def test_a_trainer_that_takes_no_step_is_told(tmp_path: Path) -> None:
    class Idle(Module):
        def on_train_batch_start(self, batch, index) -> int:
            return -1  # leave out the rest of the epoch

    training = trainer(tmp_path, RankCallback(tmp_path / "run"), max_epochs=1)
    with pytest.warns(RuntimeWarning, match="the trainer took no step; see its limits and data"):
        training.fit(Idle(), loader())
