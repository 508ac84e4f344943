"""The worker's side of a tracker: measures staged weights and writes them to the run."""

import queue
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch

from rankscope import snapshot
from rankscope.store import Writer
from rankscope.tracker.measurers import Measurer
from rankscope.tracker.probe import Probe
from rankscope.tracker.reference import InitialWeights
from rankscope.tracker.staging import Handoff, Place

EVERY_STEP = "train_step"


class Recorder:
    """Turns staged copies into committed snapshots. Used by one thread at a time."""

    def __init__(
        self,
        plan: snapshot.Plan,
        writer: Writer,
        measurer: Measurer,
        *,
        initial: InitialWeights | None,
        probe: Probe | None = None,
    ) -> None:
        """`initial`: where to keep the weights of the first snapshot, if they are the reference."""
        self._probe = probe
        self._plan = plan
        self._writer = writer
        self._measurer = measurer
        self._initial = initial
        self._from_first = initial is not None and not initial.kept
        self._failing: set[str] = set()
        self._untold: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._stream: torch.cuda.Stream | None = None

    @property
    def committed(self) -> int | None:
        """The last step that is safely in the run."""
        return int(self._writer.steps[-1]) if len(self._writer.steps) else None

    def record(self, step: int, place: Place, scalars: Handoff, *, wait_seconds: float) -> None:
        """Measures the copy in `place` and commits it as the snapshot of `step`."""
        began = time.perf_counter()
        with torch.no_grad(), self._beside_training(place):
            place.wait_filled()
            if self._initial is not None and self._from_first:
                self._measurer.keep_reference(place)
                self._initial.save({n: place.tensors[n] for n in self._plan.parameters})
                self._from_first = False
            values, failed, directions = self._measurer.measure(place)
            given = {name: column[0] for name, column in scalars.read().items()}
            if self._probe is not None:
                probed = self._probe(place.tensors, directions)
                given |= {name: float(value) for name, value in probed.items()}
            place.measured()
        given |= {
            "tracker_copy_seconds": place.copy_seconds,
            "tracker_wait_seconds": wait_seconds,
            "tracker_compute_seconds": time.perf_counter() - began,
        }
        self._writer.append(step, values, scalars=given)
        for name in failed:
            if name not in self._failing:
                self._failing.add(name)
                self._untold.put(name)

    def newly_failed(self) -> list[str]:
        """What could not be decomposed, each told once."""
        return [self._untold.get() for _ in range(self._untold.qsize())]

    def record_rows(self, steps: Sequence[int], scalars: Handoff) -> None:
        """Commits scalars of every step."""
        columns = {f"{name}_every_step": column for name, column in scalars.read().items()}
        self._writer.extend(EVERY_STEP, np.array(steps), columns)

    def record_gap(self, step: int) -> None:
        """Notes a snapshot that was due and skipped."""
        self._writer.set_attrs({"skipped": [*self._writer.attrs.get("skipped", []), step]})

    def record_wall(self, seconds: float) -> None:
        """Adds to the time this run has been open, in all its lives."""
        self._writer.set_attrs(
            {"wall_seconds": self._writer.attrs.get("wall_seconds", 0.0) + seconds}
        )

    def forget_from(self, step: int) -> None:
        """Drops what an earlier life of this run committed from `step` on: it is trained again."""
        self._writer.truncate(step)
        if self._initial is not None and not len(self._writer.steps):
            self._from_first = True  # nothing is left of the run whose first weights were kept

    def close(self) -> None:
        self._measurer.close()
        self._writer.close()

    @contextmanager
    def _beside_training(self, place: Place) -> Iterator[None]:
        """On a GPU, a stream of the worker's own, so that its kernels overlap with training."""
        device = next(iter(place.tensors.values())).device if place.tensors else torch.device("cpu")
        if device.type != "cuda":
            yield
            return
        with torch.cuda.device(device):
            # Of the pool of high priority: torch hands out each pool's few streams in turn, and one
            # that a training captures a graph on must not be shared with a tracker.
            self._stream = self._stream or torch.cuda.Stream(device, priority=-1)
            with torch.cuda.stream(self._stream):
                yield
