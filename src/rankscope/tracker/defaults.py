"""What a tracker does when it is not told: which pairs, which device, how many threads."""

import os
from typing import Literal

import torch
from torch import nn

from rankscope import snapshot
from rankscope.matrices import Views, unwrap
from rankscope.pairs import Pair, inside_pairs

# Up to this shorter side, the host decomposes the matrices of a model that trains on a GPU.
HOST_SIDE = 1024


def pairs_of(model: nn.Module, chosen: Views) -> tuple[Pair, ...]:
    """The pairs a model declares, else those inside its modules, among the chosen matrices."""
    model = unwrap(model)
    declare = getattr(model, "alignment_pairs", None)
    pairs = tuple(declare()) if declare is not None else inside_pairs(model)
    parameters = {reading.parameter for reading in chosen.readings.values()}
    of = {reading.name: reading.parameter for reading in chosen.manifest.readings}
    return tuple(p for p in pairs if {of.get(p.earlier), of.get(p.later)} <= parameters)


def where_to_measure(home: torch.device, plan: snapshot.Plan) -> torch.device:
    """On the host, unless matrices are large and the model is elsewhere.

    GPU eigen-solvers take matrices of this size one by one and gain nothing over a few host cores,
    which leave the GPU to training (benchmarks/README.md has the numbers).
    """
    largest = max((min(reading.m, reading.n) for reading in plan.readings), default=0)
    return home if largest > HOST_SIDE else torch.device("cpu")


def what_measures(home: torch.device, device: torch.device) -> Literal["thread", "process"]:
    """A process where threads would delay the one that launches a GPU's kernels.

    Memory for a process that has no path to it needs Linux.
    """
    apart = home.type == "cuda" and device.type == "cpu" and hasattr(os, "memfd_create")
    return "process" if apart else "thread"


def worker_threads(home: torch.device) -> int:
    """One beside training that needs the cores itself; a quarter of them where a GPU trains."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return 1 if home.type == "cpu" else max(1, (cores or 1) // 4)
