"""Opening of a tracker's side of a run: the writer's, or that of a rank that contributes."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from rankscope import snapshot
from rankscope.store import Variable, Writer
from rankscope.store.files import ROOT
from rankscope.tracker.buffers import BufferPool
from rankscope.tracker.contributor import CollectingMeasurer, Contributor
from rankscope.tracker.measurers import HereMeasurer, Measurer, ProcessMeasurer
from rankscope.tracker.open_trackers import close_earlier
from rankscope.tracker.recorder import EVERY_STEP, Recorder, RunOptions
from rankscope.tracker.reference import InitialWeights
from rankscope.tracker.same_model import require_same
from rankscope.tracker.shared_memory import Layout, SharedMemory
from rankscope.tracker.sharing import Sharing


def open_run(
    path: Path,
    plan: snapshot.Plan,
    tensors: Mapping[str, Tensor],
    options: RunOptions,
    *,
    reference: Mapping[str, Tensor] | None,
    from_init: bool,
    attrs: Mapping[str, Any],
    sharing: Sharing | None = None,
) -> tuple[Recorder, BufferPool]:
    """Create the run at `path`, or resume it, and start what measures it.

    `from_init` measures changes from the first snapshot, otherwise `reference` does if given.
    sharing: shares of the ranks; without them all is measured here.
    """
    if options.resume and options.overwrite:
        raise ValueError("resume continues a run and overwrite removes it; pass one of them")
    dtypes = {name: tensors[name].dtype for name in plan.parameters}
    coords, variables = snapshot.layout(plan, dtypes, change=from_init or reference is not None)
    coords |= options.gauges.coords
    variables |= options.gauges.variables
    for name in options.every_step:
        variables[f"{name}_every_step"] = Variable((EVERY_STEP,), np.dtype("float64"))
    if options.resume or options.overwrite:
        close_earlier(path)
    if options.resume and (path / ROOT).exists():
        require_same(path, coords, variables)
        writer = Writer.resume(
            path, coords=coords, variables=variables, attrs=attrs, durable=options.durable
        )
    else:
        writer = Writer.create(
            path,
            coords=coords,
            variables=variables,
            attrs=attrs,
            durable=options.durable,
            overwrite=options.overwrite,
        )
    with contextlib.ExitStack() as on_failure:
        on_failure.callback(writer.close)
        initial = _initial_weights(writer, reference, attrs["reference"], durable=options.durable)
        owned = None if sharing is None else sharing.own.owned
        weights = reference if initial is None else initial.load(only=owned)
        part = plan if sharing is None else sharing.own.plan
        if sharing is not None:
            tensors = {name: tensors[name] for name in part.parameters}
        measurer, pool = _start_measurer(part, tensors, weights, options)
        on_failure.pop_all()
    whole: Measurer | CollectingMeasurer = measurer
    if sharing is not None:
        whole = CollectingMeasurer(measurer, plan, sharing, from_init=from_init)
    return Recorder(plan, writer, whole, initial=initial, options=options), pool


def open_share(
    path: Path,
    tensors: Mapping[str, Tensor],
    options: RunOptions,
    *,
    reference: Mapping[str, Tensor] | None,
    from_init: bool,
    sharing: Sharing,
) -> tuple[Contributor, BufferPool]:
    """Start what measures the share of a rank that does not write, once the run at `path` is open.

    reference: the part of the given weights that this rank owns.
    """
    own = sharing.own
    if from_init and options.resume:
        reference = InitialWeights(path).load(only=own.owned)
    tensors = {name: tensors[name] for name in own.plan.parameters}
    measurer, pool = _start_measurer(own.plan, tensors, reference, options)
    return Contributor(measurer, sharing, from_init=from_init, buffers=options.buffers), pool


def _initial_weights(
    writer: Writer, given: Mapping[str, Tensor] | None, wanted: str, *, durable: bool
) -> InitialWeights | None:
    """Return the weights of the first snapshot if changes are measured from them.

    If a resumed run has lost its reference file, `given` weights take its place.
    """
    stored = writer.attrs["reference"]
    initial = InitialWeights(writer.path) if stored == "init" else None
    lost = initial is not None and not initial.stored and len(writer.steps) > 0
    if initial is not None and lost and given is not None:
        initial.save(given, durable=durable)
    elif stored != wanted:
        raise ValueError(
            f"{writer.path} measures changes from {stored!r}, not {wanted!r}; "
            "resume it with the same reference or choose another path"
        )
    elif lost:
        raise ValueError(
            f"{writer.path} has lost reference.safetensors, the weights from which its changes are "
            "measured; put the file back, or pass a checkpoint of these weights as reference"
        )
    return initial


def _start_measurer(
    plan: snapshot.Plan,
    tensors: Mapping[str, Tensor],
    reference: Mapping[str, Tensor] | None,
    options: RunOptions,
) -> tuple[Measurer, BufferPool]:
    if options.measurer == "thread":
        measurer = HereMeasurer(plan, reference=reference, threads=options.threads)
        return measurer, BufferPool(options.buffers)
    memory = SharedMemory.create(Layout.of(tensors, blocks=options.buffers))
    if any(tensor.is_cuda for tensor in tensors.values()):
        memory.pin()
    process = ProcessMeasurer(plan, reference=reference, threads=options.threads, memory=memory)
    process.holds_reference = bool(options.gauges.gauges)
    return process, BufferPool(options.buffers, memory=memory)
