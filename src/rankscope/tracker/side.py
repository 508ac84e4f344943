"""A rank's side of a tracker: the run it writes, or the share it contributes, and its worker."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from rankscope import snapshot
from rankscope.provenance import origin
from rankscope.tracker.budget import Budget
from rankscope.tracker.distributed import is_writer
from rankscope.tracker.handover import Handover
from rankscope.tracker.opening import open_run, open_share
from rankscope.tracker.recorder import Recorder, RunOptions
from rankscope.tracker.reference import Reference, given_reference
from rankscope.tracker.sharing import Sharing
from rankscope.tracker.sinks import Sinks
from rankscope.tracker.state import State
from rankscope.tracker.watch import Watch
from rankscope.tracker.worker import Worker


class Side(NamedTuple):
    """Recorder of a rank that writes, handover of one that measures.

    stored: last step of a run that is resumed, on every rank.
    """

    recorder: Recorder | None
    handover: Handover | None
    stored: int | None


def open_side(
    path: Path,
    plan: snapshot.Plan,
    watch: Watch,
    options: RunOptions,
    *,
    reference: Reference,
    home: torch.device,
    attrs: Mapping[str, Any],
    sharing: Sharing | None,
    budget: Budget | None,
    sinks: Sinks,
    state: State,
) -> Side:
    """Open the run in the process that writes it; all ranks learn if that fails.

    Ranks that share open theirs after it, because opening may put back the reference of the run.
    """
    from_init = reference == "init"
    owned = None if sharing is None else sharing.own.owned
    # On every rank: a sharded reference is gathered by all of them.
    weights = given_reference(reference, plan, only=owned)
    recorder: Recorder | None = None
    handover: Handover | None = None
    if is_writer():
        with state.catching():
            recorder, pool = open_run(
                path,
                plan,
                watch.examples(),
                options,
                reference=weights,
                from_init=from_init,
                attrs={**origin(home), **attrs},
                sharing=sharing,
            )
            handover = Handover(Worker(), recorder, pool, budget=budget, sinks=sinks)
    last = None if recorder is None else recorder.last_step
    try:
        (next_step,) = state.agree(0 if last is None else last + 1)
        state.raise_mistake()
    except Exception:
        if handover is not None:
            handover.close()
        raise
    if sharing is not None and not is_writer() and not state.stopped:
        with state.catching():
            contributor, pool = open_share(
                path,
                watch.examples(),
                options,
                reference=weights,
                from_init=from_init,
                sharing=sharing,
            )
            nobody = Sinks(path, ())  # the run is seen where it is written
            handover = Handover(Worker(), contributor, pool, budget=budget, sinks=nobody)
    return Side(recorder, handover, next_step - 1 if next_step else None)
