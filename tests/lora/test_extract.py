"""Adapters out of fine-tunings, loaded by PEFT into the real model."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from lora.tuned_cases import gpt2, llama, mixed_checkpoints, saved
from rankscope.lora import extract, open_adapter

pytest.importorskip("transformers")
peft = pytest.importorskip("peft", exc_type=ImportError)

pytestmark = pytest.mark.filterwarnings(  # PEFT's own
    "ignore:.*is_gradient_checkpointing:FutureWarning"
)

TOKENS = torch.randint(64, (8, 16), generator=torch.Generator().manual_seed(7))
MODELS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "GPT-2, tied, stored transposed": gpt2,
    "Llama, tied": partial(llama, tied=True),
    "Llama": partial(llama, tied=False),
}


def copied(model: Any) -> Any:
    other = type(model)(model.config).eval()
    other.load_state_dict(model.state_dict())
    return other


@torch.no_grad()
def logits(model: Any) -> Tensor:
    output: Tensor = model(input_ids=TOKENS).logits
    return output


@pytest.fixture(params=MODELS.values(), ids=MODELS)
def pair(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    models: tuple[Any, Any] = request.param()
    return models


def test_all_directions_make_the_tuned_model(pair: tuple[Any, Any], tmp_path: Path) -> None:
    """PEFT's forward pass gives the tuned logits: factors, norms, embeddings and biases."""
    base, tuned = pair
    paths = saved(tmp_path / "base", base), saved(tmp_path / "tuned", tuned)
    result = extract(*paths, tmp_path / "adapter", max_rank=None)
    assert not result.left_out
    assert result.table["verified"].max() < 1e-6
    assert float((logits(base) - logits(tuned)).abs().max()) > 1
    model = peft.PeftModel.from_pretrained(copied(base), tmp_path / "adapter").eval()
    torch.testing.assert_close(logits(model), logits(tuned), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_stated_error_is_that_of_the_weights_in_peft(
    pair: tuple[Any, Any], tmp_path: Path, dtype: str
) -> None:
    base, tuned = pair
    paths = saved(tmp_path / "base", base), saved(tmp_path / "tuned", tuned)
    result = extract(*paths, tmp_path / "adapter", energy=0.9, dtype=dtype)
    assert len(set(result.table["rank"])) > 1
    model = peft.PeftModel.from_pretrained(copied(base), tmp_path / "adapter")
    merged = dict(model.merge_and_unload().named_parameters())
    before, after = dict(base.named_parameters()), dict(tuned.named_parameters())
    for name, row in result.table.iterrows():
        W0, W1, W = (w[f"{name}.weight"].detach().double() for w in (before, after, merged))
        error = float((W - W1).norm() / (W1 - W0).norm())
        assert row["verified"] == pytest.approx(error, rel=1e-3)
        assert row["error"] == pytest.approx(error, rel=1e-2)  # but for the rounding of factors
        assert row["error"] ** 2 <= 0.1 + 1e-9


def test_errors_are_those_of_truncated_svds(tmp_path: Path) -> None:
    base, tuned = gpt2()
    paths = saved(tmp_path / "base", base), saved(tmp_path / "tuned", tuned)
    result = extract(*paths, tmp_path / "adapter", max_rank=5)
    before, after = dict(base.named_parameters()), dict(tuned.named_parameters())
    for name, row in result.table.iterrows():
        S = torch.linalg.svdvals(
            (after[f"{name}.weight"] - before[f"{name}.weight"]).detach().double()
        )
        expected = float(S[5:].norm() / S.norm())
        assert row["error"] == pytest.approx(expected, rel=1e-6)
        assert row["verified"] == pytest.approx(expected, rel=1e-5)
        assert row["rank"] == 5


def test_a_budget_is_the_size_of_the_file(tmp_path: Path) -> None:
    base, tuned = gpt2()
    paths = saved(tmp_path / "base", base), saved(tmp_path / "tuned", tuned)
    result = extract(*paths, tmp_path / "a", budget=5000, matrices_only=True)
    tensors = load_file(tmp_path / "a" / "adapter_model.safetensors")
    assert sum(t.numel() for t in tensors.values()) == result.parameters <= 5000
    assert all("lora_" in name for name in tensors)
    assert "transformer.ln_f.weight" in result.left_out
    config = json.loads((tmp_path / "a" / "adapter_config.json").read_text())
    assert config["modules_to_save"] is None and config["bias"] == "none"  # as vLLM wants


def test_a_name_ending_like_another_gets_its_own_rank(tmp_path: Path) -> None:
    """q of layer 1 and layer 11, and names with characters of regular expressions."""
    names = ["layers.1.q", "layers.11.q", "q", "x.layers.1.q", "a+b.(q)"]
    torch.manual_seed(0)
    base = {f"{name}.weight": torch.randn(20, 16) for name in names}
    tuned = {
        f"{name}.weight": base[f"{name}.weight"] + torch.randn(20, r) @ torch.randn(r, 16)
        for r, name in enumerate(names, start=1)
    }
    for stem, tensors in (("base", base), ("tuned", tuned)):
        save_file(tensors, tmp_path / f"{stem}.safetensors")
    paths = tmp_path / "base.safetensors", tmp_path / "tuned.safetensors"
    extract(*paths, tmp_path / "a", energy=1 - 1e-9)

    def tree(parts: dict[str, Any]) -> torch.nn.Module:
        module = torch.nn.Module()
        for key, value in parts.items():
            module.add_module(key, tree(value) if isinstance(value, dict) else value)
        return module

    nested: dict[str, Any] = {}
    for name in names:
        *parents, last = name.split(".")
        place = nested
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = torch.nn.Linear(16, 20, bias=False)
        place[last].weight.data.copy_(base[f"{name}.weight"])
    model = peft.PeftModel.from_pretrained(tree(nested), tmp_path / "a")
    merged = dict(model.merge_and_unload().named_parameters())
    for r, name in enumerate(names, start=1):
        assert open_adapter(tmp_path / "a").pairs[name].rank == r
        torch.testing.assert_close(
            merged[f"{name}.weight"], tuned[f"{name}.weight"], atol=1e-4, rtol=1e-4
        )


def test_a_prefix_makes_names_fit_another_class(tmp_path: Path) -> None:
    base, tuned = gpt2()
    paths = saved(tmp_path / "b", base.transformer), saved(tmp_path / "t", tuned.transformer)
    extract(*paths, tmp_path / "a", max_rank=None, prefix="transformer.")
    model = peft.PeftModel.from_pretrained(copied(base), tmp_path / "a").eval()
    with torch.no_grad():
        inner = model.get_base_model().transformer(input_ids=TOKENS).last_hidden_state
        expected = tuned.transformer(input_ids=TOKENS).last_hidden_state
    torch.testing.assert_close(inner, expected, rtol=1e-4, atol=1e-4)


def test_other_layers_are_whole_or_named(tmp_path: Path) -> None:
    base, tuned, before, after = mixed_checkpoints(tmp_path)
    result = extract(base, tuned, tmp_path / "a", max_rank=None)
    assert set(result.table.index) == {"conv", "fc"}
    assert set(result.saved) == {"norm", "depthwise", "lstm", "attention"}
    assert set(result.left_out) == {"experts.gate_up", "scale"}
    tensors = load_file(tmp_path / "a" / "adapter_model.safetensors")
    for name in ("attention.out_proj.weight", "lstm.weight_hh_l0", "norm.running_mean"):
        assert torch.equal(tensors[f"base_model.model.{name}"], after[name])
    product = open_adapter(tmp_path / "a").product("conv")
    change = (after["conv.weight"] - before["conv.weight"]).flatten(1).double()
    torch.testing.assert_close(product.left @ product.right.mT, change, atol=1e-6, rtol=1e-5)
    assert tensors["base_model.model.conv.lora_A.weight"].shape == (8, 3, 3, 3)
    assert tensors["base_model.model.conv.lora_B.weight"].shape == (8, 8, 1, 1)


def test_norms_whose_names_end_alike_are_stored_together(tmp_path: Path) -> None:
    """PEFT takes "norm" for "block.norm" too, and fails without its tensors."""

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.norm = torch.nn.Linear(4, 4), torch.nn.LayerNorm(4)
            self.block = torch.nn.ModuleDict({"norm": torch.nn.LayerNorm(4)})

    torch.manual_seed(0)
    base, tuned = Net(), Net()
    tuned.block.load_state_dict(base.block.state_dict())
    torch.nn.init.normal_(tuned.norm.weight)
    for name, net in (("base", base), ("tuned", tuned)):
        save_file(net.state_dict(), tmp_path / f"{name}.safetensors")
    paths = tmp_path / "base.safetensors", tmp_path / "tuned.safetensors"
    result = extract(*paths, tmp_path / "a", max_rank=None)
    assert set(result.saved) == {"norm", "block.norm"}
    merged = peft.PeftModel.from_pretrained(base, tmp_path / "a").merge_and_unload().state_dict()
    for name, tensor in tuned.state_dict().items():
        torch.testing.assert_close(merged[name], tensor, rtol=1e-5, atol=1e-6)


def test_layers_that_did_not_change_get_nothing(tmp_path: Path) -> None:
    base, tuned, before, after = mixed_checkpoints(tmp_path)
    save_file({**before, "fc.weight": after["fc.weight"]}, tuned)
    result = extract(base, tuned, tmp_path / "a")
    assert list(result.table.index) == ["fc"] and not result.saved and not result.left_out
    tensors = load_file(tmp_path / "a" / "adapter_model.safetensors")
    assert len(tensors) == 2


def test_what_extract_refuses(tmp_path: Path) -> None:
    base, tuned, _, after = mixed_checkpoints(tmp_path)
    out = tmp_path / "a"
    with pytest.raises(ValueError, match="no matrix changed"):
        extract(base, base, out)
    with pytest.raises(ValueError, match="dtype is one of float32, bfloat16, float16"):
        extract(base, tuned, out, dtype="int8")
    with pytest.raises(ValueError, match="no module has a rank above 0"):
        extract(base, tuned, out, budget=1)
    with pytest.raises(ValueError, match="leave out the prefix"):
        extract(base, tuned, out, model=torch.nn.Linear(2, 2), prefix="x.")
    noisy = {"fc.weight": torch.randn(40, 40, generator=torch.Generator().manual_seed(0))}
    save_file({"fc.weight": torch.zeros(40, 40)}, tmp_path / "zeros.safetensors")
    save_file(noisy, tmp_path / "noisy.safetensors")
    with pytest.raises(ValueError, match="no direction of any change is above the noise floor"):
        extract(tmp_path / "zeros.safetensors", tmp_path / "noisy.safetensors", out, noise=True)
    save_file({"other.weight": torch.ones(3, 3)}, tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match="have no tensor in common"):
        extract(base, tmp_path / "other.safetensors", out)
    broken = {**after, "fc.weight": torch.full((5, 6), torch.nan)}
    save_file(broken, tmp_path / "broken.safetensors")
    with pytest.raises(ValueError, match=r"tensor 'fc\.weight' holds NaN"):
        extract(base, tmp_path / "broken.safetensors", out)
    assert not out.exists()
    extract(base, tuned, out)
    kept_bytes = (out / "adapter_model.safetensors").read_bytes()
    with pytest.raises(ValueError, match="exists; choose another place"):
        extract(base, tuned, out, max_rank=1)
    with pytest.raises(ValueError, match="holds NaN"):
        extract(base, tmp_path / "broken.safetensors", out, overwrite=True)
    assert (out / "adapter_model.safetensors").read_bytes() == kept_bytes


def test_half_precision_checkpoints(tmp_path: Path) -> None:
    """The difference of stored numbers is exact, and bf16's rounding is below the noise floor."""
    torch.manual_seed(0)
    before = torch.randn(64, 48)
    signal = 3 * torch.randn(64, 2) @ torch.randn(2, 48) / 48
    save_file({"fc.weight": before.bfloat16()}, tmp_path / "base.safetensors")
    save_file({"fc.weight": (before + signal).bfloat16()}, tmp_path / "tuned.safetensors")
    paths = tmp_path / "base.safetensors", tmp_path / "tuned.safetensors"
    result = extract(*paths, tmp_path / "a", noise=True)
    assert result.table.loc["fc", "rank"] == result.table.loc["fc", "signal"] == 2
    shapes_changed = {"fc.weight": torch.ones(65, 48)}
    save_file(shapes_changed, tmp_path / "tuned.safetensors")
    with pytest.raises(ValueError, match=r"no tensor that can be compared; .* its shape changed"):
        extract(*paths, tmp_path / "b")
