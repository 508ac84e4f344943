"""Defaults of a tracker: which pairs, which device, which measurer, how many threads."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch
from torch import nn

from rankscope import snapshot
from rankscope.matrices import Manifest, Views, unwrap
from rankscope.pairs import Pair, inside_pairs

MeasurerKind = Literal["thread", "process"]

# Up to this shorter side, all singular values of a model's matrices are kept; else the leading 64.
FULL_SIDE, LEADING = 4096, 64

# Up to this shorter side, the host decomposes the matrices of a model that trains on a GPU.
HOST_SIDE = 1024


def default_pairs(model: nn.Module, chosen: Views) -> tuple[Pair, ...]:
    """Return the pairs a model declares, else those inside its modules, of chosen matrices."""
    model = unwrap(model)
    declare = getattr(model, "alignment_pairs", None)
    pairs = tuple(declare()) if declare is not None else inside_pairs(model, known=chosen.manifest)
    chosen_parameters = {reading.parameter for reading in chosen.readings.values()}
    parameters = {reading.name: reading.parameter for reading in chosen.manifest.readings}
    return tuple(
        pair
        for pair in pairs
        if {parameters.get(pair.earlier), parameters.get(pair.later)} <= chosen_parameters
    )


def without_refuted(pairs: Sequence[Pair], known: Manifest) -> tuple[Pair, ...]:
    """Return a user's pairs without those of heads that verifying refuted."""
    names = {reading.name for reading in known.readings}
    refuted = tuple(
        f"{line.name}." if line.name else ""
        for line in known.verification
        if line.status == "refuted"
    )

    def is_refuted(name: str) -> bool:
        return name not in names and name.startswith(refuted)

    return tuple(
        pair
        for pair in pairs
        if not (isinstance(pair, Pair) and (is_refuted(pair.earlier) or is_refuted(pair.later)))
    )


def cut_to_leading(plan: snapshot.Plan, spectrum: int | str) -> snapshot.Plan:
    """Return the plan with as many values of each spectrum as a user asked for."""
    if spectrum == "auto":
        largest = max((min(reading.m, reading.n) for reading in plan.readings), default=0)
        spectrum = "full" if largest <= FULL_SIDE else LEADING
    if spectrum == "full":
        return plan
    if isinstance(spectrum, str) or spectrum < 1:
        raise ValueError(
            'spectrum: expected "full", "auto" or a number of leading values, 1 or more, got '
            f"{spectrum!r}"
        )
    return replace(plan, leading=spectrum, top=min(plan.top, spectrum))


def measuring_device(home: torch.device, plan: snapshot.Plan) -> torch.device:
    """Return the host, or `home` (the device of the model) for large matrices.

    A process on the host needs longer for full spectra of this size, but training loses at most a
    quarter of the time that it loses to the GPU's solvers (benchmarks/README.md has the numbers).
    """
    largest = max((min(reading.m, reading.n) for reading in plan.readings), default=0)
    return home if largest > HOST_SIDE else torch.device("cpu")


def measurer_kind(home: torch.device, device: torch.device) -> MeasurerKind:
    """Return "process" where threads would delay the one that launches a GPU's kernels.

    The process shares memory that has no path, which needs Linux.
    """
    apart = home.type == "cuda" and device.type == "cpu" and hasattr(os, "memfd_create")
    return "process" if apart else "thread"


def worker_threads(home: torch.device, *, shared: bool = False) -> int:
    """Return 1 where the CPU trains and needs the cores itself, else a quarter of the cores.

    shared: the ranks on this machine share that quarter.
    """
    neighbours = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if shared else 1  # set by torchrun
    return 1 if home.type == "cpu" else max(1, cores() // (4 * neighbours))


def cores() -> int:
    """Number of cores this process may use; in a container fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
