"""Resized adapters against truncated SVDs of the changes, and in PEFT."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from lora.adapter_cases import (
    formed,
    kohya_adapter,
    peft_adapter,
    peft_changes,
    peft_config,
    peft_tensors,
    write_peft,
)
from rankscope.lora import open_adapter, resize
from rankscope.lora.kohya import module_name

EMOTION = Path(os.environ.get("RANKSCOPE_DATA", "")) / "checkpoints" / "gpt2-lora-emotion"


def best(W: Tensor, rank: int) -> Tensor:
    U, S, Vh = torch.linalg.svd(W, full_matrices=False)
    return (U[:, :rank] * S[:rank]) @ Vh[:rank]


def test_kohya_names_have_no_place_for_whole_modules(tmp_path: Path) -> None:
    tensors = {**peft_tensors(), "base_model.model.head.weight": torch.ones(3, 2)}
    adapter = write_peft(tmp_path / "a", tensors, peft_config())
    with pytest.raises(ValueError, match=r"1 tensors that are no factors, first .*head\.weight"):
        resize(adapter, tmp_path / "b", max_rank=2, style="kohya", names=lambda module: module)


@pytest.mark.parametrize("config", [{}, {"use_rslora": True}, {"alpha_pattern": {"up": 1}}])
@pytest.mark.parametrize("rank", [1, 3, 4, 100])
def test_the_best_approximation_of_each_change(
    tmp_path: Path, rank: int, config: dict[str, Any]
) -> None:
    source = peft_adapter(tmp_path / "a", **config)
    result = resize(source, tmp_path / "b", max_rank=rank)
    before, after = formed(source), formed(tmp_path / "b")
    for module, change in before.items():
        expected = best(change, rank)
        torch.testing.assert_close(after[module], expected, rtol=1e-6, atol=1e-5)
        assert result.ranks[module] == min(rank, 4)
        error = float((change - expected).norm() / change.norm())
        assert result.errors[module] == pytest.approx(error, abs=1e-7)
    written = json.loads((tmp_path / "b" / "adapter_config.json").read_text())
    assert written["lora_alpha"] == written["r"] == min(rank, 4) and not written["use_rslora"]


def test_energy_and_budget_give_each_module_its_rank(tmp_path: Path) -> None:
    source = peft_adapter(tmp_path / "a")
    by_energy = resize(source, tmp_path / "b", energy=0.8)
    for module, change in peft_changes().items():
        S = torch.linalg.svdvals(change)[:4].square()
        shares = S.cumsum(0) / S.sum()
        assert by_energy.ranks[module] == 1 + int((shares < 0.8).sum())
    by_budget = resize(source, tmp_path / "c", budget=100)
    assert sum(by_budget.ranks[m] * sum(W.shape) for m, W in peft_changes().items()) <= 100
    assert len(set(by_budget.ranks.values())) > 1
    assert open_adapter(tmp_path / "c").parameters <= 100


@pytest.mark.parametrize("alpha", [2.0, None])
def test_kohya_stays_kohya(tmp_path: Path, alpha: float | None) -> None:
    source, changes = kohya_adapter(tmp_path / "a.safetensors", alpha=alpha)
    resize(source, tmp_path / "b.safetensors", max_rank=2)
    after = formed(tmp_path / "b.safetensors")
    for module, change in changes.items():
        torch.testing.assert_close(after[module], best(change, 2), rtol=1e-5, atol=1e-5)
    tensors = load_file(tmp_path / "b.safetensors")
    assert tensors["lora_unet_down_0_conv.lora_down.weight"].shape == (2, 5, 3, 3)
    assert tensors["lora_unet_down_0_conv.lora_up.weight"].shape == (10, 2, 1, 1)


def test_names_in_both_directions(tmp_path: Path) -> None:
    source = peft_adapter(tmp_path / "a")
    as_kohya = tmp_path / "b.safetensors"
    resize(source, as_kohya, max_rank=4, style="kohya", names=lambda m: module_name(m, "lora_te"))
    changes = peft_changes()
    expected = {module_name(module, "lora_te"): change for module, change in changes.items()}
    torch.testing.assert_close(formed(as_kohya), expected, rtol=1e-6, atol=1e-5)
    back = {module_name(module, "lora_te"): module for module in changes}
    resize(as_kohya, tmp_path / "c", max_rank=4, style="peft", names=back.__getitem__)
    torch.testing.assert_close(formed(tmp_path / "c"), changes, rtol=1e-6, atol=1e-5)


def test_a_module_that_does_nothing_goes(tmp_path: Path) -> None:
    tensors = peft_tensors()
    tensors["base_model.model.model.layers.1.q.lora_B.weight"].zero_()
    source = peft_adapter(tmp_path / "a")
    config = json.loads((source / "adapter_config.json").read_text())
    write_peft(source, tensors, config)
    result = resize(source, tmp_path / "b", max_rank=2)
    assert result.ranks["model.layers.1.q"] == 0
    assert list(open_adapter(tmp_path / "b").pairs) == ["model.layers.0.q", "model.layers.10.up"]


def test_what_resize_refuses(tmp_path: Path) -> None:
    source = peft_adapter(tmp_path / "a")
    with pytest.raises(ValueError, match="give a largest rank, a share"):
        resize(source, tmp_path / "b")
    with pytest.raises(ValueError, match="exists; choose another place"):
        resize(source, source, max_rank=1)
    with pytest.raises(ValueError, match="names are needed"):
        resize(source, tmp_path / "b", max_rank=1, style="kohya")
    with pytest.raises(ValueError, match="two modules would get the same name"):
        resize(source, tmp_path / "b", max_rank=1, names=lambda module: "x")
    assert not (tmp_path / "b").exists()
    resize(source, source, max_rank=1, overwrite=True)
    assert set(open_adapter(source).pairs) == set(peft_changes())


@pytest.mark.skipif(not EMOTION.exists(), reason="needs RANKSCOPE_DATA with its checkpoints")
@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # PEFT's own
def test_a_real_adapter_in_peft(tmp_path: Path) -> None:
    """A resized adapter of somebody else's training adds what the truncated change adds."""
    peft = pytest.importorskip("peft", exc_type=ImportError)
    transformers = pytest.importorskip("transformers")
    result = resize(EMOTION, tmp_path / "b", energy=0.9)
    config = transformers.GPT2Config(num_labels=6, n_positions=8, vocab_size=32, pad_token_id=0)
    adapter = open_adapter(tmp_path / "b")
    base = transformers.GPT2ForSequenceClassification(config)
    model = peft.PeftModel.from_pretrained(base, tmp_path / "b")
    changes = formed(EMOTION)
    assert len(adapter.pairs) == 12 and len(set(result.ranks.values())) > 1
    for module, rank in result.ranks.items():
        layer = model.get_submodule(f"base_model.model.{module}")
        delta = layer.get_delta_weight("default").mT.double()  # Conv1D stores in x out
        torch.testing.assert_close(delta, best(changes[module], rank), rtol=1e-4, atol=1e-6)
    score = load_file(EMOTION / "adapter_model.safetensors")["base_model.model.score.weight"]
    assert torch.equal(adapter.checkpoint.read("base_model.model.score.weight"), score)
