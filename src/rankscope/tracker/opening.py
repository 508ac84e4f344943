"""Opening a run: its store, its reference, what measures it and where copies wait."""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import Tensor

from rankscope import snapshot
from rankscope.store import Variable, Writer
from rankscope.tracker.measurers import HereMeasurer, Measurer, ProcessMeasurer
from rankscope.tracker.probe import Probe
from rankscope.tracker.recorder import EVERY_STEP, Recorder
from rankscope.tracker.reference import InitialWeights
from rankscope.tracker.shared import Layout, SharedMemory
from rankscope.tracker.staging import Staging


def open_run(
    path: Path,
    plan: snapshot.Plan,
    tensors: Mapping[str, Tensor],
    *,
    every_step: Sequence[str],
    reference: Mapping[str, Tensor] | None,
    from_init: bool,
    places: int,
    beside: Literal["thread", "process"],
    threads: int,
    resume: bool,
    durable: bool,
    attrs: Mapping[str, Any],
    probe: Probe | None = None,
) -> tuple[Recorder, Staging]:
    """A new run, or the one at `path` to go on with."""
    dtypes = {name: tensors[name].dtype for name in plan.parameters}
    coords, variables = snapshot.layout(plan, dtypes, change=from_init or reference is not None)
    for name in every_step:
        variables[f"{name}_every_step"] = Variable((EVERY_STEP,), np.dtype("float64"))
    make = Writer.resume if resume and path.exists() else Writer.create
    writer = make(path, coords=coords, variables=variables, attrs=attrs, durable=durable)
    with contextlib.ExitStack() as on_failure:
        on_failure.callback(writer.close)
        _check_same_reference(writer, attrs["reference"])
        initial = InitialWeights(path) if from_init else None
        measurer, staging = _measuring(
            plan,
            tensors,
            reference if initial is None else initial.load(),
            beside=beside,
            places=places,
            threads=threads,
        )
        on_failure.pop_all()
    return Recorder(plan, writer, measurer, initial=initial, probe=probe), staging


def _check_same_reference(writer: Writer, wanted: str) -> None:
    stored = writer.attrs["reference"]
    if stored != wanted:
        raise ValueError(
            f"{writer.path} measures changes from {stored!r}, not {wanted!r}; "
            "resume it with the same reference or choose another path"
        )


def _measuring(
    plan: snapshot.Plan,
    tensors: Mapping[str, Tensor],
    reference: Mapping[str, Tensor] | None,
    *,
    beside: Literal["thread", "process"],
    places: int,
    threads: int,
) -> tuple[Measurer, Staging]:
    if beside == "thread":
        return HereMeasurer(plan, reference=reference, threads=threads), Staging(places)
    memory = SharedMemory.create(Layout.of(tensors, places=places))
    if any(tensor.is_cuda for tensor in tensors.values()):
        memory.pin()
    measurer = ProcessMeasurer(plan, reference=reference, threads=threads, memory=memory)
    return measurer, Staging(places, memory=memory)
