"""Adapters read from disk, and what is refused in one sentence."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lora.adapter_cases import (
    RANK,
    formed,
    kohya_adapter,
    peft_adapter,
    peft_changes,
    peft_config,
    peft_tensors,
    write_peft,
)
from rankscope.lora import open_adapter

FIRST = "base_model.model.model.layers.0.q"


@pytest.mark.parametrize(
    ("changes", "scale"),
    [
        ({}, 2.0),
        ({"use_rslora": True}, 8 / math.sqrt(RANK)),
        ({"lora_alpha": 3, "alpha_pattern": {"q": 8, "up": 8}}, 2.0),
        ({"r": 99, "rank_pattern": {r".*\.(q|up)": 4, "q": 4, "up": 4}}, None),
        ({"r": 99, "rank_pattern": {"q": 4, "layers.10.up": 4}}, 2.0),
    ],
)
def test_scales(tmp_path: Path, changes: dict[str, Any], scale: float | None) -> None:
    path = peft_adapter(tmp_path / "a", **changes)
    if scale is None:
        with pytest.raises(ValueError, match="too involved to be matched safely"):
            open_adapter(path)
        return
    torch.testing.assert_close(formed(path), peft_changes(scale=scale))


def test_modules_are_in_order(tmp_path: Path) -> None:
    adapter = open_adapter(peft_adapter(tmp_path / "a"))
    assert list(adapter.pairs) == ["model.layers.0.q", "model.layers.1.q", "model.layers.10.up"]
    assert adapter.parameters == sum(t.numel() for t in peft_tensors().values())


@pytest.mark.parametrize("alpha", [2.0, None])
def test_kohya(tmp_path: Path, alpha: float | None) -> None:
    path, changes = kohya_adapter(tmp_path / "a.safetensors", alpha=alpha)
    torch.testing.assert_close(formed(path), changes)


def test_scales_are_those_of_peft(tmp_path: Path) -> None:
    """PEFT loads the same folder and adds the same change."""
    peft = pytest.importorskip("peft", exc_type=ImportError)
    config = {"alpha_pattern": {"layers.1.q": 5, "q": 3}, "use_rslora": True}
    path = peft_adapter(tmp_path / "a", **config)
    layers = {"0": torch.nn.ModuleDict({"q": torch.nn.Linear(8, 12, bias=False)})}
    layers |= {"1": torch.nn.ModuleDict({"q": torch.nn.Linear(8, 12, bias=False)})}
    layers |= {"10": torch.nn.ModuleDict({"up": torch.nn.Linear(8, 20, bias=False)})}
    tree = torch.nn.ModuleDict({"layers": torch.nn.ModuleDict(layers)})
    model = peft.PeftModel.from_pretrained(torch.nn.ModuleDict({"model": tree}), path)
    for module, change in formed(path).items():
        layer = model.get_submodule(f"base_model.model.{module}")
        torch.testing.assert_close(
            layer.get_delta_weight("default").double(), change, rtol=1e-5, atol=1e-5
        )


Change = Callable[[dict[str, Tensor], dict[str, Any]], None]


def renamed(new: str) -> Change:
    def rename(tensors: dict[str, Tensor], config: dict[str, Any]) -> None:
        for side in "AB":
            tensors[f"{new}.lora_{side}.weight"] = tensors.pop(f"{FIRST}.lora_{side}.weight")

    return rename


def poisoned(value: float) -> Change:
    def poison(tensors: dict[str, Tensor], config: dict[str, Any]) -> None:
        tensors[f"{FIRST}.lora_A.weight"][0, 0] = value

    return poison


HOSTILE: dict[str, tuple[Change, str]] = {
    "alpha 0": (
        lambda t, c: c.update(lora_alpha=0),
        "alpha of module .* is 0, expected a positive",
    ),
    "alpha NaN": (lambda t, c: c.update(lora_alpha=math.nan), "alpha of module .* is nan"),
    "alpha text": (lambda t, c: c.update(lora_alpha="8"), "alpha of module .* is 8, expected"),
    "alpha huge": (lambda t, c: c.update(lora_alpha=10**400), "alpha of module"),
    "alpha list": (lambda t, c: c.update(alpha_pattern=[1]), "alpha_pattern is no table"),
    "wrong r": (lambda t, c: c.update(r=16), "has factors of rank 4, but .* says 16"),
    "huge r": (lambda t, c: c.update(r=10**12), "has factors of rank 4"),
    "r true": (lambda t, c: c.update(r=True), "has factors of rank 4"),
    "expression": (lambda t, c: c.update(rank_pattern={"(a+)+": 4}), "too involved"),
    "missing B": (lambda t, c: t.pop(f"{FIRST}.lora_B.weight"), "lora_A.weight' has no partner"),
    "missing A": (lambda t, c: t.pop(f"{FIRST}.lora_A.weight"), "lora_B.weight' has no partner"),
    "NaN": (poisoned(math.nan), "holds NaN or infinity"),
    "infinity": (poisoned(math.inf), "holds NaN or infinity"),
    "climbing name": (renamed("base_model.model.../../etc/q"), "is not the name of a module"),
    "slash": (renamed("base_model.model.a/b"), "is not the name of a module"),
    "line break": (renamed("base_model.model.a\nb"), "names that no terminal should show"),
    "long name": (renamed("base_model.model." + "x" * 600), "names that no terminal should show"),
    "no name": (renamed("base_model.model."), "is not the name of a module"),
    "ranks do not fit": (
        lambda t, c: t.update({f"{FIRST}.lora_A.weight": torch.ones(5, 8)}),
        "have ranks 4 and 5",
    ),
    "no matrix": (
        lambda t, c: t.update({f"{FIRST}.lora_A.weight": torch.ones(4)}),
        "is no factor of a change",
    ),
    "integers": (
        lambda t, c: t.update({f"{FIRST}.lora_A.weight": torch.ones(4, 8, dtype=torch.int8)}),
        "is no factor of a change",
    ),
    "empty": (
        lambda t, c: t.update({f"{FIRST}.lora_A.weight": torch.ones(4, 0)}),
        "is no factor of a change",
    ),
    "DoRA": (lambda t, c: c.update(use_dora=True), "is a DoRA adapter"),
    "magnitudes": (
        lambda t, c: t.update({f"{FIRST}.lora_magnitude_vector": torch.ones(12)}),
        "is a DoRA adapter",
    ),
    "bias of B": (
        lambda t, c: t.update({f"{FIRST}.lora_B.bias": torch.ones(12)}),
        "belongs to a variant of LoRA",
    ),
    "IA3": (lambda t, c: c.update(peft_type="IA3"), "adapter of type 'IA3'"),
    "PiSSA": (lambda t, c: c.update(init_lora_weights="pissa_niter_4"), "initialised by 'pissa"),
    "QALoRA": (lambda t, c: c.update(use_qalora=True), "a variant of LoRA .use_qalora."),
    "KaSA": (
        lambda t, c: t.update({f"{FIRST}.lora_diag": torch.ones(4)}),
        "belongs to a variant of LoRA",
    ),
    "experts": (lambda t, c: c.update(target_parameters=["w1"]), "stacks of experts"),
    "two adapters": (
        lambda t, c: t.update({f"{FIRST}.lora_{s}.other.weight": torch.ones(4, 4) for s in "AB"}),
        "has two adapters",
    ),
    "no factors": (lambda t, c: (t.clear(), t.update(w=torch.ones(2, 2))), "holds no pair"),
}


@pytest.mark.parametrize(("change", "message"), HOSTILE.values(), ids=HOSTILE)
def test_what_is_refused(tmp_path: Path, change: Change, message: str) -> None:
    tensors, config = peft_tensors(), peft_config()
    change(tensors, config)
    path = write_peft(tmp_path / "a", tensors, config)
    with pytest.raises(ValueError, match=message) as refusal:
        formed(path)
    assert "\n" not in str(refusal.value) and len(str(refusal.value)) < 400 + len(str(tmp_path))


def test_a_checkpoint_is_no_adapter(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"fc.weight": torch.ones(2, 2)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="holds no adapter that is known"):
        open_adapter(tmp_path / "model.safetensors")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("m.dora_scale", "is a DoRA adapter"),
        ("m.hada_w1_a", "is a LoHa adapter"),
        ("m.lokr_w1", "is a LoKr adapter"),
        ("m.lora_mid.weight", "three factors"),
        ("m.lora_up.weight", "has no factors beside it"),
        ("m.alpha", "has no factors beside it"),
        ("m.lora_down.weight", "has no partner"),
    ],
)
def test_other_methods_of_kohya_are_refused(tmp_path: Path, name: str, message: str) -> None:
    from safetensors.torch import load_file, save_file

    path, _ = kohya_adapter(tmp_path / "a.safetensors")
    save_file({**load_file(path), name: torch.ones(2, 2)}, path)
    with pytest.raises(ValueError, match=message):
        open_adapter(path)


@pytest.mark.parametrize("alpha", [0.0, math.nan, -1.0, math.inf])
def test_kohya_alphas_without_meaning_are_refused(tmp_path: Path, alpha: float) -> None:
    path, _ = kohya_adapter(tmp_path / "a.safetensors", alpha=alpha)
    with pytest.raises(ValueError, match="alpha of module 'lora_unet"):
        open_adapter(path)


WEIRD = [None, True, -1, 0, 1e308, "x", "(a+)+$", [], [1], {}, {"q": "4"}, {"q": [4]}, {"": 4}]


@pytest.mark.parametrize("key", [*peft_config(), "init_lora_weights", "target_parameters"])
def test_any_value_of_a_configuration_costs_a_sentence_at_most(tmp_path: Path, key: str) -> None:
    for number, value in enumerate(WEIRD):
        path = write_peft(tmp_path / str(number), peft_tensors(), peft_config(**{key: value}))
        try:
            formed(path)
        except ValueError as refusal:
            assert "\n" not in str(refusal)


def test_a_configuration_cannot_write_to_a_terminal(tmp_path: Path) -> None:
    for number, name in enumerate(("\x1b[31m", "\0", "\ud800")):
        path = peft_adapter(tmp_path / str(number), lora_alpha=name)
        with pytest.raises(ValueError, match="expected a positive number") as refused:
            open_adapter(path)
        assert str(refused.value).isprintable()
