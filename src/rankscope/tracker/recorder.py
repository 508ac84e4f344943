"""The worker's side of a tracker: measures staged weights and writes them to the run."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from rankscope import snapshot
from rankscope.store import Writer
from rankscope.tracker.reference import InitialWeights
from rankscope.tracker.staging import Handoff, Place

EVERY_STEP = "train_step"


class Recorder:
    """Turns staged copies into committed snapshots. Used by one thread at a time."""

    def __init__(
        self,
        plan: snapshot.Plan,
        writer: Writer,
        *,
        reference: Mapping[str, Tensor] | None,
        initial: InitialWeights | None,
        threads: int | None,
    ) -> None:
        self._plan = plan
        self._writer = writer
        self._initial = initial
        self._reference = reference if initial is None else initial.load()
        self._threads = threads
        self._failing: set[str] = set()
        self._untold: list[str] = []
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
            self._settle_reference(place)
            values = snapshot.measure(
                self._plan, place.tensors, self._reference, threads=self._threads
            )
            given = {name: column[0] for name, column in scalars.read().items()}
            place.measured()
        given |= {
            "tracker_copy_seconds": place.copy_seconds,
            "tracker_wait_seconds": wait_seconds,
            "tracker_compute_seconds": time.perf_counter() - began,
        }
        self._writer.append(step, values, scalars=given)
        self._note_failing(values["status"])

    def _note_failing(self, status: np.ndarray) -> None:
        failing = {
            reading.name
            for reading, code in zip(self._plan.readings, status, strict=True)
            if snapshot.STATUS[code] == "failed"
        }
        self._untold += sorted(failing - self._failing)
        self._failing |= failing

    def newly_failed(self) -> list[str]:
        """Matrices that could not be decomposed, each told once."""
        told, self._untold = self._untold, []
        return told

    def record_rows(self, steps: Sequence[int], scalars: Handoff) -> None:
        """Commits scalars of every step."""
        columns = {f"{name}_every_step": column for name, column in scalars.read().items()}
        self._writer.extend(EVERY_STEP, np.array(steps), columns)

    def forget_from(self, step: int) -> None:
        """Drops what an earlier life of this run committed from `step` on: it is trained again."""
        self._writer.truncate(step)

    def note(self, **attrs: object) -> None:
        self._writer.set_attrs(attrs)

    def close(self) -> None:
        self._writer.close()

    def _settle_reference(self, place: Place) -> None:
        """The first snapshot's weights become the reference; a loaded one moves to the copies."""
        if self._initial is not None and self._reference is None:
            self._reference = {name: tensor.clone() for name, tensor in place.tensors.items()}
            self._initial.save(self._reference)
        elif self._reference is not None:
            self._reference = {
                name: tensor.to(place.tensors[name].device)
                for name, tensor in self._reference.items()
            }

    @contextmanager
    def _beside_training(self, place: Place) -> Iterator[None]:
        """On a GPU, a stream of the worker's own, so that its kernels overlap with training."""
        device = next(iter(place.tensors.values())).device if place.tensors else torch.device("cpu")
        if device.type != "cuda":
            yield
            return
        with torch.cuda.device(device):
            self._stream = self._stream or torch.cuda.Stream(device)
            with torch.cuda.stream(self._stream):
                yield
