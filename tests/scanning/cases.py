"""Small models on disk, in every format that a scan reads."""

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn


def model(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Embedding(40, 16), nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 12))


def weights(seed: int = 0) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model(seed).state_dict().items()}


def saved(path: Path, tensors: dict[str, Tensor]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".safetensors":
        save_file(tensors, path)
    else:
        torch.save(tensors, path)
    return path


def series(folder: Path, steps: int = 4) -> dict[int, dict[str, Tensor]]:
    """Write checkpoints step0, step10, ... whose first matrix shrinks towards rank one."""
    states = {}
    start, last = weights(0), weights(1)
    for number in range(steps):
        share = number / (steps - 1)
        states[10 * number] = {k: torch.lerp(start[k], last[k], share) for k in start}
        saved(folder / f"step{10 * number}.safetensors", states[10 * number])
    return states
