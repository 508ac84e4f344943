"""A small network that changes by known noise, and the run of a tracker that watches it."""

from collections.abc import Iterable
from pathlib import Path

import torch
import xarray as xr
from torch import nn

import rankscope as rs


def network(step: int = 0, *, seed: int = 0) -> nn.Sequential:
    """Return the network as it is after `step` steps."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 4))
    for earlier in range(step):
        take_step(model, earlier)
    return model


@torch.no_grad()
def take_step(model: nn.Module, step: int) -> None:
    """Change every parameter by noise that depends on the step alone."""
    generator = torch.Generator().manual_seed(step)
    for parameter in model.parameters():
        parameter += 0.1 * torch.randn(parameter.shape, generator=generator).to(parameter.device)


def track(
    path: Path, model: nn.Module | None = None, *, steps: Iterable[int] = (0,), **options: object
) -> xr.Dataset:
    """Return the run of `model`, observed at `steps` and changed after each of them."""
    model = network() if model is None else model
    with rs.Tracker(model, path, **{"schedule": 1, "strict": True, **options}) as tracker:
        for step in steps:
            tracker.observe(step, loss=float(step))
            take_step(model, step)
    return rs.open(path)
