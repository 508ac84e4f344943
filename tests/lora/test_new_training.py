"""Configurations for a new training, given to PEFT."""

from pathlib import Path

import pytest
import torch
from torch import nn

from lora.adapter_cases import kohya_adapter, peft_adapter
from rankscope.lora import Spectrum, peft_config

SPECTRA = {
    "layers.0": Spectrum(torch.tensor([8.0, 7, 6, 5, 0.1]), 20, 10),
    "layers.1": Spectrum(torch.tensor([1.0, 0.1, 0.1, 0.1, 0.1]), 20, 10),
    "tokens": Spectrum(torch.tensor([90.0, 80]), 20, 10, kind="embedding"),
}


def test_peft_trains_within_the_budget() -> None:
    peft = pytest.importorskip("peft", exc_type=ImportError)
    config = peft_config(SPECTRA, budget=150, lora_dropout=0.1)
    tree = nn.ModuleDict({"layers": nn.ModuleList([nn.Linear(10, 20), nn.Linear(10, 20)])})
    model = peft.get_peft_model(tree, peft.LoraConfig(**config))
    trained = {n: p.numel() for n, p in model.named_parameters() if p.requires_grad}
    assert sum(trained.values()) == 150
    layers = model.base_model.model.layers
    assert (layers[0].r["default"], layers[1].r["default"]) == (4, 1)
    assert layers[0].scaling["default"] == layers[1].scaling["default"] == 2.0
    assert config["lora_dropout"] == 0.1 and not config["inference_mode"]


def test_an_earlier_adapter_says_where_directions_are_used(tmp_path: Path) -> None:
    config = peft_config(peft_adapter(tmp_path / "a"), budget=80, round_to=1)
    sizes = {"model.layers.0.q": 20, "model.layers.1.q": 20, "model.layers.10.up": 28}
    ranks = dict.fromkeys(config["target_modules"], config["r"])
    for pattern, rank in config["rank_pattern"].items():
        ranks[pattern.removeprefix("^").replace("\\", "")] = rank
    assert 0 < sum(ranks[module] * sizes[module] for module in ranks) <= 80


def test_what_peft_config_refuses() -> None:
    with pytest.raises(ValueError, match="no linear or convolution layer changed"):
        peft_config({"tokens": SPECTRA["tokens"]}, budget=100)
    with pytest.raises(ValueError, match="no module has a rank above 0"):
        peft_config(SPECTRA, budget=5)


def test_a_new_training_needs_the_names_of_modules(tmp_path: Path) -> None:
    path, _ = kohya_adapter(tmp_path / "a.safetensors")
    with pytest.raises(ValueError, match="has kohya's names, which are not the modules"):
        peft_config(path, budget=100)
