"""Small adapters on disk, with PEFT's and kohya's names, and the changes that they stand for."""

import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from rankscope.lora import open_adapter

LAYERS = {"model.layers.0.q": (12, 8), "model.layers.1.q": (12, 8), "model.layers.10.up": (20, 8)}
RANK = 4


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def peft_config(**changes: Any) -> dict[str, Any]:
    return {
        "peft_type": "LORA",
        "r": RANK,
        "lora_alpha": 8,
        "target_modules": ["q", "up"],
        "rank_pattern": {},
        "alpha_pattern": {},
        "use_rslora": False,
        "use_dora": False,
        **changes,
    }


def peft_tensors() -> dict[str, Tensor]:
    tensors = {}
    for seed, (module, (m, n)) in enumerate(LAYERS.items()):
        tensors[f"base_model.model.{module}.lora_A.weight"] = normal(RANK, n, seed=seed)
        tensors[f"base_model.model.{module}.lora_B.weight"] = normal(m, RANK, seed=seed + 50)
    return tensors


def write_peft(folder: Path, tensors: dict[str, Tensor], config: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def peft_adapter(folder: Path, **changes: Any) -> Path:
    return write_peft(folder, peft_tensors(), peft_config(**changes))


def peft_changes(*, scale: float = 8 / RANK) -> dict[str, Tensor]:
    """Changes of the modules of `peft_adapter`, multiplied out."""
    tensors = {name: tensor.double() for name, tensor in peft_tensors().items()}
    return {
        module: scale
        * tensors[f"base_model.model.{module}.lora_B.weight"]
        @ tensors[f"base_model.model.{module}.lora_A.weight"]
        for module in LAYERS
    }


def kohya_adapter(path: Path, *, alpha: float | None = 2.0) -> tuple[Path, dict[str, Tensor]]:
    """Write a linear layer and a 3 x 3 convolution; return their changes, multiplied out."""
    tensors, changes = {}, {}
    shapes = {"lora_unet_mid_attn_to_q": (8,), "lora_unet_down_0_conv": (5, 3, 3)}
    for seed, (module, inputs) in enumerate(shapes.items()):
        ones = (1,) * (len(inputs) - 1)
        down, up = normal(3, *inputs, seed=seed), normal(10, 3, *ones, seed=seed + 9)
        tensors |= {f"{module}.lora_down.weight": down, f"{module}.lora_up.weight": up}
        if alpha is not None:
            tensors[f"{module}.alpha"] = torch.tensor(alpha)
        scale = 1.0 if alpha is None else alpha / 3
        changes[module] = scale * up.flatten(1).double() @ down.flatten(1).double()
    assert math.prod(shapes["lora_unet_down_0_conv"]) == 45
    save_file(tensors, path)
    return path, changes


def formed(path: Path) -> dict[str, Tensor]:
    """Changes scale * B A of an adapter on disk, by module."""
    adapter = open_adapter(path)
    products = {module: adapter.product(module) for module in adapter.pairs}
    return {module: p.left @ p.right.mT for module, p in products.items()}
