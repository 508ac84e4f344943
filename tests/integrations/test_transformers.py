"""The callback of transformers' Trainer, on real short trainings."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("transformers")

from transformers import LlamaForCausalLM, TrainerCallback

import rankscope as rs
from integrations.ranks import Ranks
from integrations.transformers_trainings import Wait, llama, trainer
from rankscope.integrations.transformers import RankCallback

MODULE = "integrations.transformers_trainings"


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    ranks = Ranks(MODULE)
    yield ranks
    ranks.close()


def tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def assert_last_snapshot_is(run_path: Path, model: nn.Module, name: str) -> None:
    """Compare the stored spectrum of a matrix with one decomposed here."""
    expected = torch.linalg.svdvals(model.get_parameter(f"{name}.weight").detach().double())
    stored = rs.open(run_path).singular_values.isel(step=-1).sel(matrix=name).values
    np.testing.assert_allclose(stored[: len(expected)], expected, rtol=1e-4, atol=1e-5)


QUERIES = "model.layers.0.self_attn.q_proj"


@pytest.mark.parametrize("accumulation", [1, 2])
def test_steps_are_those_of_the_optimizer(tmp_path: Path, accumulation: int) -> None:
    training = trainer(
        tmp_path,
        RankCallback(tmp_path / "run", schedule=1, strict=True),
        gradient_accumulation_steps=accumulation,
    )
    training.train()
    run = rs.open(tmp_path / "run")
    assert run.step.values.tolist() == [0, 1, 2, 3, 4, 5, 6]
    logs = training.state.log_history[:6]
    for name in ("loss", "grad_norm", "learning_rate"):
        assert run[name].values[1:].tolist() == [log[name] for log in logs]
    np.testing.assert_allclose(run.epoch, np.arange(7) * accumulation / 8)
    assert_last_snapshot_is(tmp_path / "run", training.model, QUERIES)


@pytest.mark.parametrize(
    "arguments",
    [{"bf16": True}, {"torch_compile": True, "torch_compile_backend": "aot_eager"}],
    ids=["bf16", "compile"],
)
def test_training_is_bit_identical(tmp_path: Path, arguments: dict) -> None:
    results = []
    callback = RankCallback(
        tmp_path / "run",
        schedule=1,
        strict=True,
        sinks=rs.sinks.TensorBoard(tmp_path / "logs"),
        gates=rs.StopIf("stable_rank < 0"),
    )
    for callbacks in ([], [callback]):
        training = trainer(tmp_path, *callbacks, max_steps=3, **arguments)
        training.train()
        losses = [log.get("loss") for log in training.state.log_history]
        results.append((tensors(training.model), torch.get_rng_state(), losses))
    (bare, *others), (tracked, *others_tracked) = results
    assert bare.keys() == tracked.keys()
    assert all(torch.equal(bare[name], tracked[name]) for name in bare)
    assert torch.equal(others[0], others_tracked[0]) and others[1] == others_tracked[1]
    run = rs.open(tmp_path / "run")
    assert QUERIES in run.matrix.values and run.sizes["step"] == 4


def test_a_resumed_training_goes_on_in_its_run(tmp_path: Path) -> None:
    whole = trainer(tmp_path / "whole", RankCallback(tmp_path / "one", schedule=1))
    whole.train()
    saving = {"save_strategy": "steps", "save_steps": 3}
    killed = trainer(tmp_path, RankCallback(tmp_path / "run", schedule=1), max_steps=6, **saving)
    killed.add_callback(StopAt(5))
    killed.train()
    assert rs.open(tmp_path / "run").step.values.tolist() == [0, 1, 2, 3, 4, 5]
    resumed = trainer(tmp_path, RankCallback(tmp_path / "run", schedule=1), **saving)
    resumed.train(resume_from_checkpoint=str(tmp_path / "out/checkpoint-3"))
    run, one = rs.open(tmp_path / "run"), rs.open(tmp_path / "one")
    assert run.step.values.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert run.attrs["dropped"] == 1
    for name in ("singular_values", "change_singular_values"):
        np.testing.assert_array_equal(run[name], one[name])


class StopAt(TrainerCallback):
    """Ends a training early, as a crash would."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args, state, control, **kwargs) -> None:
        control.should_training_stop = state.global_step >= self.step


# peft 0.21 asks transformers for a name that has a new one.
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
def test_adapters_are_followed(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    model = peft.get_peft_model(llama(), peft.LoraConfig(r=2, target_modules=["q_proj"]))
    trainer(tmp_path, RankCallback(tmp_path / "run", schedule=1, strict=True), model=model).train()
    run = rs.open(tmp_path / "run")
    (name,) = (name for name in run.matrix.values if name.endswith("self_attn.q_proj"))
    ranks = run.rankscope.numerical_rank(of="change_singular_values", floor=1e-4)
    assert ranks.sel(matrix=name).values.tolist()[0] == 0
    assert 0 < ranks.sel(matrix=name).values[-1] <= 2  # of the adapter, and 8 is the full rank
    assert "lora" in run.product_kind.values


def test_a_moving_average_is_followed_instead(tmp_path: Path) -> None:
    model = llama()
    average = torch.optim.swa_utils.AveragedModel(model, avg_fn=lambda a, p, n: 0.5 * a + 0.5 * p)

    class Average(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs) -> None:
            average.update_parameters(model)

    callback = RankCallback(tmp_path / "run", model=average, schedule=1, strict=True)
    trainer(tmp_path, Average(), callback, model=model).train()
    assert not torch.equal(average.module.lm_head.weight, model.lm_head.weight)
    assert_last_snapshot_is(tmp_path / "run", average.module, QUERIES)


def test_the_last_snapshot_shows_the_trained_weights_not_the_best(tmp_path: Path) -> None:
    trained: dict[str, torch.Tensor] = {}

    class Keep(TrainerCallback):
        def on_epoch_end(self, args, state, control, model=None, **kwargs) -> None:
            trained.update(tensors(model))

    training = trainer(
        tmp_path,
        Keep(),
        RankCallback(tmp_path / "run", schedule=100, strict=True),
        max_steps=4,
        learning_rate=0.1,
        save_strategy="steps",
        save_steps=1,
        eval_strategy="steps",
        eval_steps=1,
        load_best_model_at_end=True,
        metric_for_best_model="eval_loss",
        greater_is_better=True,  # the untrained weights, that is
    )
    training.train()
    best = tensors(training.model)
    assert not torch.equal(trained["lm_head.weight"], best["lm_head.weight"])
    model = llama()
    model.load_state_dict(trained)
    assert rs.open(tmp_path / "run").step.values.tolist() == [0, 4]
    assert_last_snapshot_is(tmp_path / "run", model, QUERIES)


@pytest.mark.parametrize("then", ["stop", "raise"])
def test_a_gate_ends_the_training(tmp_path: Path, then: str) -> None:
    gate = rs.StopIf("frobenius_norm > 0", of="change_singular_values", then=then)
    callback = RankCallback(tmp_path / "run", schedule=1, strict=True, gates=gate)
    training = trainer(tmp_path, Wait(callback), callback, max_steps=50)
    if then == "raise":
        with pytest.raises(rs.Stopped, match="holds at step 1 for"):
            training.train()
    else:
        training.train()
    assert training.state.global_step == 2  # the step at which step 1 had been measured
    assert "holds at step 1 for" in gate.reason


@pytest.mark.parametrize("way", ["ddp", "fsdp2"])
def test_two_processes_stop_together(tmp_path: Path, ranks: Ranks, way: str) -> None:
    if way == "fsdp2":
        pytest.importorskip("transformers", minversion="5.20")
    llama().save_pretrained(tmp_path / "model")
    # Step 1 met the gate, and step 4 is the next that is due.
    assert ranks.train(way, tmp_path) == ["4 steps"] * 2
    run = rs.open(tmp_path / "run")
    assert run.step.values.tolist() == [0, 1, 4]
    model = LlamaForCausalLM.from_pretrained(tmp_path / "model")
    expected = rs.singular_values(rs.views(model))
    for name in (QUERIES, "lm_head"):
        S = run.singular_values.sel(step=0, matrix=name).values[: len(expected[name])]
        np.testing.assert_allclose(S, expected[name], rtol=1e-4)


def test_measures_see_the_steps_of_the_optimizer(tmp_path: Path) -> None:
    callback = RankCallback(
        tmp_path / "run",
        schedule=2,
        strict=True,
        measure=[rs.Updates(), rs.Activations("model.layers.*.self_attn.q_proj")],
    )
    trainer(tmp_path, callback, gradient_accumulation_steps=2).train()
    run = rs.open(tmp_path / "run")
    assert run.step.values.tolist() == [0, 2, 4, 6]
    measured = np.isfinite(run.update_norm_ratio).any("matrix").values
    assert measured.tolist() == [True, True, True, False]  # no step leaves the last weights
    assert np.isfinite(run.activation_effective_rank).any("activation").values[:3].all()


def test_a_trainer_that_cannot_tell_what_it_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: RankCallback, *arguments: object) -> None:
        raise KeyError("lr")

    monkeypatch.setattr(RankCallback, "_scalars", broken)
    callback = RankCallback(tmp_path / "run", schedule=1)
    with pytest.warns(RuntimeWarning, match="stores no scalars of the trainer: KeyError: 'lr'"):
        trainer(tmp_path, callback).train()
    assert rs.open(tmp_path / "run").sizes["step"] == 7


def test_a_tracker_that_fails_does_not_end_the_training(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.warns(RuntimeWarning, match="training goes on: .*Error: .*") as caught:
        training = trainer(tmp_path, RankCallback(tmp_path / "file/run"), max_steps=2)
        training.train()
    assert len(caught) == 1 and training.state.global_step == 2


def test_mistakes_are_told_before_the_first_step(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the model has no matrix to track"):
        trainer(tmp_path, RankCallback(tmp_path / "run", include=[])).train()
    with pytest.raises(ValueError, match="pattern 'conv' matches no matrix"):
        trainer(tmp_path, RankCallback(tmp_path / "run", include="conv")).train()
    with pytest.raises(ValueError, match="names 'rank', which is no metric"):
        RankCallback(tmp_path / "run", gates=rs.StopIf("rank < 2"))
    with pytest.raises(ValueError, match="schedule: got 'often'"):
        RankCallback(tmp_path / "run", schedule="often")
    trainer(tmp_path, RankCallback(tmp_path / "run"), max_steps=1).train()
    with pytest.raises(ValueError, match="resume=True"):
        trainer(tmp_path, RankCallback(tmp_path / "run"), max_steps=1).train()
    trainer(tmp_path, RankCallback(tmp_path / "run", overwrite=True), max_steps=2).train()
    assert rs.open(tmp_path / "run").step.values.tolist()[-1] == 2


def test_a_trainer_that_takes_no_step_is_told(tmp_path: Path) -> None:
    training = trainer(tmp_path, RankCallback(tmp_path / "run"), num_train_epochs=0, max_steps=-1)
    with pytest.warns(RuntimeWarning, match="the trainer took no step; see its limits and data"):
        training.train()
