"""Merged models against PEFT's own merging, and against loaders."""

import json
import math
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from lora.adapter_cases import kohya_adapter, peft_adapter, peft_changes
from lora.tuned_cases import gpt2, llama, saved
from rankscope.checkpoints import Checkpoint
from rankscope.lora import extract, merge, open_adapter, used_directions
from rankscope.lora.targets import targets

EMOTION = Path(os.environ.get("RANKSCOPE_DATA", "")) / "checkpoints" / "gpt2-lora-emotion"
LAYERS = {"model.layers.0.q": (12, 8), "model.layers.1.q": (12, 8), "model.layers.10.up": (20, 8)}


def base_weights(prefix: str = "") -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    return {
        f"{prefix}{name}.weight": torch.randn(shape, generator=generator)
        for name, shape in LAYERS.items()
    } | {f"{prefix}model.norm.weight": torch.ones(8), "count": torch.tensor([3])}


@pytest.mark.parametrize("prefix", ["", "language.", "cut"])
def test_weights_plus_changes(tmp_path: Path, prefix: str) -> None:
    base = base_weights("" if prefix == "cut" else prefix)
    if prefix == "cut":
        base = {name.removeprefix("model."): tensor for name, tensor in base.items()}
    save_file(base, tmp_path / "base.safetensors")
    adapter = peft_adapter(tmp_path / "a")
    result = merge(adapter, tmp_path / "base.safetensors", tmp_path / "merged.safetensors")
    merged = load_file(tmp_path / "merged.safetensors")
    assert merged.keys() == base.keys() and len(result.changed) == 3 and not result.added
    changes = {f"{module}.weight": change for module, change in peft_changes().items()}
    for name, tensor in base.items():
        plain = name.removeprefix(prefix) if prefix != "cut" else f"model.{name}"
        expected = tensor if plain not in changes else (tensor.double() + changes[plain]).float()
        assert torch.equal(merged[name], expected), name


def test_kohya_names_find_weights_with_dots(tmp_path: Path) -> None:
    path, changes = kohya_adapter(tmp_path / "a.safetensors")
    base = {
        "mid.attn.to_q.weight": torch.zeros(10, 8),
        "down.0.conv.weight": torch.zeros(10, 5, 3, 3),
        "down_0.other.weight": torch.zeros(2, 2),
    }
    save_file(base, tmp_path / "base.safetensors")
    merge(path, tmp_path / "base.safetensors", tmp_path / "m")
    merged = load_file(tmp_path / "m" / "model.safetensors")
    expected = changes["lora_unet_down_0_conv"].reshape(10, 5, 3, 3).float()
    assert torch.equal(merged["down.0.conv.weight"], expected)
    assert torch.equal(merged["mid.attn.to_q.weight"], changes["lora_unet_mid_attn_to_q"].float())


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_an_extracted_adapter_merges_to_the_tuned_model(tmp_path: Path, kind: str) -> None:
    """Shards, tokens and settings are the base's; transformers loads the result."""
    transformers = pytest.importorskip("transformers")
    base, tuned = gpt2() if kind == "gpt2" else llama(tied=False)
    base.save_pretrained(tmp_path / "base", max_shard_size="40KB")
    extract(tmp_path / "base", saved(tmp_path / "tuned", tuned), tmp_path / "a", max_rank=None)
    merge(tmp_path / "a", tmp_path / "base", tmp_path / "merged")
    index = json.loads((tmp_path / "merged" / "model.safetensors.index.json").read_text())
    original = json.loads((tmp_path / "base" / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == original["metadata"]["total_size"]
    shards = len(set(original["weight_map"].values()))
    assert len(set(index["weight_map"].values())) == shards > 1
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    for name, tensor in tuned.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], tensor, rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(not EMOTION.exists(), reason="needs RANKSCOPE_DATA with its checkpoints")
@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # PEFT's own
def test_a_real_adapter_merges_as_in_peft(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    peft = pytest.importorskip("peft", exc_type=ImportError)
    config = transformers.GPT2Config(
        num_labels=6, n_positions=8, vocab_size=32, pad_token_id=0, bos_token_id=0, eos_token_id=0
    )
    torch.manual_seed(0)
    model = transformers.GPT2ForSequenceClassification(config)
    weights = {k: v for k, v in model.state_dict().items() if k != "score.weight"}
    save_file(weights, tmp_path / "base.safetensors")
    result = merge(EMOTION, tmp_path / "base.safetensors", tmp_path / "m.safetensors")
    assert result.added == ("score.weight",)
    merged = load_file(tmp_path / "m.safetensors")
    expected = peft.PeftModel.from_pretrained(model, EMOTION).merge_and_unload().state_dict()
    assert merged.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(merged[name], tensor, rtol=1e-6, atol=1e-6)


def test_the_format_of_the_base_stays(tmp_path: Path) -> None:
    base = {name: tensor.bfloat16() for name, tensor in base_weights().items()}
    save_file(base, tmp_path / "base.safetensors")
    merge(peft_adapter(tmp_path / "a"), tmp_path / "base.safetensors", tmp_path / "m.safetensors")
    merged = load_file(tmp_path / "m.safetensors")
    for module, change in peft_changes().items():
        name = f"{module}.weight"
        assert torch.equal(merged[name], (base[name].double() + change).bfloat16())


def test_what_merge_refuses(tmp_path: Path) -> None:
    adapter = peft_adapter(tmp_path / "a")
    save_file({"model.layers.0.q.weight": torch.ones(12, 8)}, tmp_path / "part.safetensors")
    with pytest.raises(ValueError, match=r"has no weight for 2 of 3 modules .* 'model.layers.1.q'"):
        merge(adapter, tmp_path / "part.safetensors", tmp_path / "m")
    wrong = {name: torch.ones(7, 7) for name in base_weights()}
    save_file(wrong, tmp_path / "wrong.safetensors")
    with pytest.raises(ValueError, match=r"changes 12 x 8 weights, but .* has shape"):
        merge(adapter, tmp_path / "wrong.safetensors", tmp_path / "m")
    save_file(base_weights(), tmp_path / "base.safetensors")
    other = tmp_path / "other"
    other.mkdir()
    (other / "model-00001-of-00002.safetensors").touch()
    with pytest.raises(ValueError, match="holds other weights"):
        merge(adapter, tmp_path / "base.safetensors", other, overwrite=True)
    with pytest.raises(ValueError, match="exists; choose"):
        merge(adapter, tmp_path / "base.safetensors", other)
    assert not (tmp_path / "m").exists()


def test_shards_never_lie_beside_a_whole_model(tmp_path: Path) -> None:
    """Loaders prefer model.safetensors, and would read the weights of before."""
    weights = base_weights()
    (tmp_path / "base").mkdir()
    files = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    weight_map = {name: files[position % 2] for position, name in enumerate(weights)}
    for file in files:
        shard = {name: weights[name] for name in weights if weight_map[name] == file}
        save_file(shard, tmp_path / "base" / file)
    index = tmp_path / "base" / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    adapter, out = peft_adapter(tmp_path / "a"), tmp_path / "out"
    out.mkdir()
    save_file({"old": torch.ones(2)}, out / "model.safetensors")
    with pytest.raises(ValueError, match=r"holds other weights, such as model\.safetensors"):
        merge(adapter, tmp_path / "base", out, overwrite=True)
    save_file(weights, tmp_path / "whole.safetensors")
    merge(adapter, tmp_path / "whole.safetensors", out, overwrite=True)
    assert load_file(out / "model.safetensors").keys() == weights.keys()


def test_square_weights_are_stored_as_their_names_say(tmp_path: Path) -> None:
    """GPT-2's c_proj is stored inputs first; only other names tell."""
    from rankscope.checkpoints import open_checkpoint

    base = {"h.0.attn.c_attn.weight": torch.ones(4, 12), "h.0.attn.c_proj.weight": torch.ones(4, 4)}
    save_file(base, tmp_path / "base.safetensors")
    names = {"c_attn": (12, 4), "c_proj": (4, 4)}
    tensors = {}
    for key, (m, n) in names.items():
        tensors[f"base_model.model.h.0.attn.{key}.lora_A.weight"] = torch.ones(4, n)
        tensors[f"base_model.model.h.0.attn.{key}.lora_B.weight"] = torch.ones(m, 4)
    (tmp_path / "a").mkdir()
    save_file(tensors, tmp_path / "a" / "adapter_model.safetensors")
    (tmp_path / "a" / "adapter_config.json").write_text('{"r": 4, "lora_alpha": 4}')
    where = targets(open_adapter(tmp_path / "a"), open_checkpoint(tmp_path / "base.safetensors"))
    assert where["h.0.attn.c_attn"].transposed and where["h.0.attn.c_proj"].transposed


def test_merged_weights_are_not_said_to_be_quantised(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    save_file(base_weights(), tmp_path / "base" / "model.safetensors")
    settings = {"model_type": "llama", "quantization_config": {"quant_method": "fp8"}}
    (tmp_path / "base" / "config.json").write_text(json.dumps(settings))
    merge(peft_adapter(tmp_path / "a"), tmp_path / "base", tmp_path / "m")
    assert json.loads((tmp_path / "m" / "config.json").read_text()) == {"model_type": "llama"}


def test_a_link_that_leads_outside_is_refused_before_a_weight_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = peft_adapter(tmp_path / "a")
    (tmp_path / "base").mkdir()
    save_file(base_weights(), tmp_path / "base" / "model.safetensors")
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "base" / "vocab.txt").symlink_to(tmp_path / "secret.txt")
    before = sorted(path.name for path in tmp_path.iterdir())
    monkeypatch.setattr(Checkpoint, "read", lambda *_: pytest.fail("a weight was read"))
    with pytest.raises(ValueError, match="is a link that leads outside its folder"):
        merge(adapter, tmp_path / "base", tmp_path / "merged")
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_base_that_cannot_take_the_change_is_refused(tmp_path: Path) -> None:
    adapter, base = peft_adapter(tmp_path / "a", lora_alpha=1000), base_weights()
    first = "model.layers.0.q.weight"
    cases = {
        "'model.layers.0.q.weight' holds NaN or infinity": base[first] * math.nan,
        "is too large for float16": torch.full((12, 8), 65504.0, dtype=torch.float16),
        "holds int8 numbers, to which no change can be added": base[first].to(torch.int8),
    }
    for sentence, weight in cases.items():
        save_file({**base, first: weight}, tmp_path / "base.safetensors")
        with pytest.raises(ValueError, match=sentence):
            merge(adapter, tmp_path / "base.safetensors", tmp_path / "m")
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    "option",
    [
        {"layer_replication": [[0, 2], [1, 2]]},
        {"alora_invocation_tokens": [5, 6]},
        {"trainable_token_indices": {"embed": [1]}},
    ],
)
def test_an_adapter_that_does_more_than_add_to_weights_is_not_merged(
    tmp_path: Path, option: dict[str, object]
) -> None:
    save_file(base_weights(), tmp_path / "base.safetensors")
    adapter = peft_adapter(tmp_path / "a", **option)
    with pytest.raises(ValueError, match=f"{next(iter(option))}.*more than a change"):
        merge(adapter, tmp_path / "base.safetensors", tmp_path / "m")
    assert not used_directions(adapter).empty
