"""Adapters for models whose names are not those of their checkpoints, loaded by PEFT."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lora.tuned_cases import saved
from rankscope.checkpoints import open_checkpoint
from rankscope.cli import main
from rankscope.lora import changes, extract, plan
from rankscope.lora.loaded_names import transformers_model

transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft", exc_type=ImportError)

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`:UserWarning"),
]

TOKENS = torch.randint(64, (4, 12), generator=torch.Generator().manual_seed(0))
IMAGES = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "vocab_size": 64}


def bert() -> Any:
    config = transformers.BertConfig(num_attention_heads=4, **SIZES)
    return transformers.BertForMaskedLM(config)


def neox() -> Any:
    config = transformers.GPTNeoXConfig(
        num_attention_heads=4, bos_token_id=0, eos_token_id=0, **SIZES
    )
    return transformers.GPTNeoXForCausalLM(config)


def t5() -> Any:
    config = transformers.T5Config(
        d_model=32, d_kv=8, d_ff=48, num_layers=1, num_heads=4, vocab_size=64,
        decoder_start_token_id=0,
    )  # fmt: skip
    return transformers.T5ForConditionalGeneration(config)


def vit() -> Any:
    config = transformers.ViTConfig(num_attention_heads=4, image_size=16, patch_size=4, **SIZES)
    return transformers.ViTForImageClassification(config)


def mixtral() -> Any:
    config = transformers.MixtralConfig(
        num_attention_heads=4, num_key_value_heads=2, num_local_experts=4, bos_token_id=0,
        eos_token_id=0, **SIZES,
    )  # fmt: skip
    return transformers.MixtralForCausalLM(config)


def pair(
    make: Callable[[], Any], folder: Path, *, fixed: str = ""
) -> tuple[Any, Any, tuple[Path, Path]]:
    """A model before and after, in memory and saved; parameters whose names have `fixed` stay."""
    torch.manual_seed(0)
    base, tuned = make().eval(), make().eval()
    tuned.load_state_dict(base.state_dict())
    with torch.no_grad():
        for name, parameter in tuned.named_parameters():
            if not fixed or fixed not in name:
                parameter += 0.05 * torch.randn(parameter.shape)
    return base, tuned, (saved(folder / "base", base), saved(folder / "tuned", tuned))


@torch.no_grad()
def logits(model: Any) -> Tensor:
    config = model.config
    if config.model_type == "vit":
        output: Tensor = model(pixel_values=IMAGES).logits
    else:
        more = {"decoder_input_ids": TOKENS.flip(0)} if config.is_encoder_decoder else {}
        output = model(input_ids=TOKENS, **more).logits
    return output


@pytest.mark.parametrize(
    ("make", "fixed"),
    [(bert, ""), (neox, ""), (t5, ""), (vit, "_token"), (vit, "embeddings"), (mixtral, "experts")],
)
def test_all_directions_make_the_tuned_model(
    make: Callable[[], Any], fixed: str, tmp_path: Path
) -> None:
    base, tuned, paths = pair(make, tmp_path, fixed=fixed)
    model = transformers_model(open_checkpoint(paths[0]))
    assert all(parameter.is_meta for parameter in model.parameters())
    result = extract(*paths, tmp_path / "adapter", max_rank=None, model=model)
    assert result.table.index.isin(name for name, _ in base.named_modules()).all()
    loaded = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    if fixed == "_token":
        assert set(result.left_out) == {"vit.embeddings.position_embeddings"}
        return
    torch.testing.assert_close(logits(loaded), logits(tuned), rtol=1e-4, atol=1e-4)


def test_the_command_asks_transformers_for_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, _, paths = pair(neox, tmp_path)
    capsys.readouterr()
    for option, name in (([], "embed_out"), (["--transformers"], "lm_head")):
        arguments = ["rankscope", "lora", *map(str, paths), "--json", *option]
        monkeypatch.setattr("sys.argv", arguments)
        with pytest.raises(SystemExit, match="0"):
            main()
        assert name in {row["matrix"] for row in json.loads(capsys.readouterr().out)}


def test_a_table_with_unknown_names_is_left_out(tmp_path: Path) -> None:
    """T5 has its tokens under four names, and PEFT fails if some of them are missing."""
    base, _, paths = pair(t5, tmp_path)
    result = extract(*paths, tmp_path / "adapter")
    assert set(result.left_out) == {"shared.weight"}
    assert "pass --transformers" in result.left_out["shared.weight"]
    peft.PeftModel.from_pretrained(base, tmp_path / "adapter")


def test_tables_have_the_names_of_the_model(tmp_path: Path) -> None:
    base, _, paths = pair(neox, tmp_path)
    for names in (plan(*paths, model=base).index, changes(*paths, model=base)):
        assert "lm_head" in names and "embed_out" not in names


def test_layers_that_take_no_factors_are_stored_whole(tmp_path: Path) -> None:
    """A checkpoint does not tell a depthwise or transposed convolution from a plain one."""

    def net() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(4, 4, 3, groups=4), nn.ConvTranspose2d(4, 4, 3), nn.Conv2d(4, 6, 3)
        )

    torch.manual_seed(0)
    base, tuned = net().eval(), net().eval()
    for name, model in (("base", base), ("tuned", tuned)):
        torch.save(model.state_dict(), tmp_path / f"{name}.pt")
    paths = tmp_path / "base.pt", tmp_path / "tuned.pt"
    result = extract(*paths, tmp_path / "adapter", max_rank=None, model=base)
    assert list(result.table.index) == ["2"] and set(result.saved) == {"0", "1"}
    loaded = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    inputs = torch.randn(2, 4, 9, 9)
    torch.testing.assert_close(loaded(inputs), tuned(inputs), rtol=1e-4, atol=1e-4)


def test_a_layer_whose_name_ends_like_a_stored_module_is_stored_too(tmp_path: Path) -> None:
    """PEFT refuses factors in a module that `modules_to_save` names, by the end of its name."""

    def net() -> nn.Module:
        layers = {"proj": nn.Embedding(7, 5), "out_proj": nn.Linear(5, 4), "last": nn.Linear(4, 4)}
        return nn.ModuleDict(layers).eval()

    torch.manual_seed(0)
    base, tuned = net(), net()
    for name, model in (("base", base), ("tuned", tuned)):
        torch.save(model.state_dict(), tmp_path / f"{name}.pt")
    paths = tmp_path / "base.pt", tmp_path / "tuned.pt"
    result = extract(*paths, tmp_path / "adapter", max_rank=None, model=base)
    assert set(result.saved) == {"proj", "out_proj"} and list(result.table.index) == ["last"]
    merged = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").merge_and_unload()
    for name, tensor in tuned.state_dict().items():
        torch.testing.assert_close(merged.state_dict()[name], tensor, rtol=1e-5, atol=1e-6)


def test_a_base_without_configuration_has_no_model(tmp_path: Path) -> None:
    torch.save(nn.Linear(3, 3).state_dict(), tmp_path / "base.pt")
    with pytest.raises(ValueError, match=r"has no config\.json that names an architecture"):
        transformers_model(open_checkpoint(tmp_path / "base.pt"))
