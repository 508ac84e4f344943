"""Stored runs of N2 made by hand, whose heads need chosen ranks."""

import math
from collections.abc import Mapping
from typing import Any

import xarray as xr

from lab.papers.boix2023.vit_runs import courses, vit_run
from rankscope.lab.papers.findings import needed_rank
from rankscope.lab.running.run_key import RunKey
from rankscope.lab.training.head_cuts import Cut

RANKS = [0, *needed_rank.CUTS.ranks]
Needed = tuple[float, float, float]  # K-Q, V-O, both


def key(scale: float, decay: float) -> RunKey:
    variant = {"scale": scale, "decay": decay}
    return RunKey("vit", variant, experiment="findings/needed-rank")


def cut_run(
    needed: Needed, *, start: float = 0.1, end: float = 0.6, collapsed: bool = False, **attrs: Any
) -> xr.Dataset:
    """Return a run in which each cut loses half of the gain below its needed rank."""
    gained = end - start
    cuts: Mapping[Cut, float] = dict(zip(("kq", "vo", "both"), needed, strict=True))
    stored = {
        cut: {"validation_accuracy": [end if r >= rank else start + gained / 2 for r in RANKS]}
        for cut, rank in cuts.items()
    }
    ends = {"start": {"validation_accuracy": start}, "end": {"validation_accuracy": end}}
    loss = [1.0, 1.0 if collapsed else 0.1]
    head_cuts = {"head_cuts": {"ranks": RANKS, **ends, **stored}}
    return vit_run(courses((0, 1)), loss=loss, **{**head_cuts, **attrs})


NONE = math.inf
