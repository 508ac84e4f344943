"""A run whose spectra are known: diagonal weights of two kinds that lose ranks step by step."""

from pathlib import Path

import torch
import xarray as xr
from torch import nn

import rankscope as rs


class Known(nn.Module):
    """Layers `a` and `b` and an embedding `e`: `b` keeps 4 - step of its singular values."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = (nn.Linear(4, 4, bias=False) for _ in range(2))
        self.e = nn.Embedding(4, 4)
        self.move(0)

    @torch.no_grad()
    def move(self, step: int) -> None:
        self.a.weight.copy_(torch.eye(4))
        self.b.weight.copy_(torch.diag((torch.arange(4) >= step).float()))
        self.e.weight.copy_(torch.eye(4) * (1 + step))


def known_run(path: Path, *, steps: int = 3, **options: object) -> xr.Dataset:
    model = Known()
    with rs.Tracker(model, path, schedule=1, strict=True, **options) as tracker:
        for step in range(steps):
            model.move(step)
            tracker.observe(step)
    return rs.open(path)
