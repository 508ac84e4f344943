"""The worker's side of a tracker: measures copied weights and writes them to the run."""

import contextlib
import queue
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from rankscope import snapshot
from rankscope.snapshot.planning import change_name
from rankscope.store import Writer
from rankscope.tracker.buffers import Buffer, Handoff
from rankscope.tracker.contributor import CollectingMeasurer
from rankscope.tracker.cost import Cost, bytes_of
from rankscope.tracker.defaults import MeasurerKind
from rankscope.tracker.gauging import Gauges
from rankscope.tracker.measurers import Measurer
from rankscope.tracker.notices import listed
from rankscope.tracker.probe import Probe
from rankscope.tracker.reference import InitialWeights
from rankscope.tracker.streams import OwnStream

EVERY_STEP = "train_step"

BYTES = "tracker_bytes"  # attribute of a run: memory that its tracker held
# Attribute of a run: number of decompositions that a GPU got wrong and the CPU took over.
REDONE = "decompositions_redone"
RESUMED = "resumed_at"  # attribute of a run: steps at which training was resumed

# Largest number of steps listed in an attribute, which is written again at each commit.
MOST_STEPS = 10_000


@dataclass(frozen=True)
class RunOptions:
    """Options of `Tracker` that concern its run and its measurer."""

    every_step: tuple[str, ...]
    probe: Probe | None
    buffers: int
    measurer: MeasurerKind
    threads: int
    resume: bool
    overwrite: bool
    durable: bool
    gauges: Gauges


class Recorder:
    """Turns copied weights into committed snapshots. Used by one thread at a time."""

    def __init__(
        self,
        plan: snapshot.Plan,
        writer: Writer,
        measurer: Measurer | CollectingMeasurer,
        *,
        initial: InitialWeights | None,
        options: RunOptions,
    ) -> None:
        """`initial` stores the weights of the first snapshot, if they are the reference."""
        self._probe = options.probe
        self._gauges = options.gauges
        self._threads = options.threads
        self._plan = plan
        self._writer = writer
        self._measurer = measurer
        self._initial = initial
        self._durable = options.durable
        self._first_is_reference = not len(writer.steps)
        self._resumed_at: int | None = None  # until the first snapshot after it
        self._failed_matrices: set[str] = set()
        self._unreported: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()
        self._stream = OwnStream()
        self._buffers = options.buffers
        self.cost = Cost()

    @property
    def committed(self) -> int | None:
        """The last step that is safely in the run."""
        return int(self._writer.steps[-1]) if len(self._writer.steps) else None

    def record(
        self,
        step: int,
        buffer: Buffer,
        scalars: Handoff,
        *,
        wait_seconds: float,
        complete: bool = True,
        collected: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Measure the copy in `buffer` and commit it as the snapshot of `step`.

        A probe is called only if the copy is `complete`.
        """
        began = time.perf_counter()
        with torch.no_grad(), self._stream.of(buffer):
            buffer.wait_filled()
            if self._initial is not None and self._first_is_reference:
                self._measurer.keep_reference(buffer)
                self._writer.keep_dropped()  # with the reference of the rows that are dropped
                wanted = [name for name in self._plan.parameters if name in buffer.tensors]
                weights = {name: buffer.tensors[name] for name in wanted}
                elsewhere = self._measurer.elsewhere()
                self._initial.save(weights, durable=self._durable, elsewhere=elsewhere)
                self._first_is_reference = False
            measured = self._measurer.measure(buffer)
            values = measured.values | self._gauges.compute(
                step,
                buffer,
                measured,
                reference=self._measurer.reference,
                collected=collected,
                threads=self._threads,
            )
            numbers = {name: column[0] for name, column in scalars.read().items()}
            if self._probe is not None and complete:
                ranks = self._probe.directions
                directions = {name: measured.directions[name][:, : ranks[name]] for name in ranks}
                probed = self._probe(buffer.tensors, directions)
                numbers |= {name: float(value) for name, value in probed.items()}
            buffer.mark_measured()
        measuring = time.perf_counter() - began
        numbers |= {
            "tracker_copy_seconds": buffer.copy_seconds + buffer.window_seconds,
            "tracker_wait_seconds": wait_seconds,
            "tracker_compute_seconds": measuring,
        }
        if measured.redone:
            self.note({REDONE: float(len(measured.redone))})
        self._note_resumed()
        self._writer.append(step, values, scalars=numbers)
        reference = self._measurer.reference or {}
        self.cost = self.cost.with_snapshot(
            lost=wait_seconds + numbers["tracker_copy_seconds"],
            measuring=measuring,
            bytes=self._buffers * bytes_of(buffer.tensors) + bytes_of(reference),
        )
        for name in measured.failed:
            matrix = name.removeprefix(change_name(""))
            if matrix != name and matrix in measured.failed:
                continue  # it is named itself
            if name not in self._failed_matrices:
                self._failed_matrices.add(name)
                self._unreported.put((step, name))

    def new_failures(self) -> str:
        """Return a warning of what fails for the first time, or "" if there is nothing."""
        messages = self._gauges.new_messages()
        failures = [self._unreported.get() for _ in range(self._unreported.qsize())]
        if failures:
            names = [name for _, name in failures]
            which, their = ("matrices", "their") if len(names) > 1 else ("matrix", "its")
            messages.append(
                f"rankscope: at step {failures[0][0]} of {self._writer.path}, {which} "
                f"{listed(names)} cannot be decomposed, so {their} spectra are NaN; look for NaN "
                "or Inf in the weights and in their reference"
            )
        return "\n".join(messages)

    def record_rows(self, steps: Sequence[int], scalars: Handoff) -> None:
        """Commit the scalars of every step."""
        columns = {f"{name}_every_step": column for name, column in scalars.read().items()}
        self._writer.extend(EVERY_STEP, np.array(steps), columns)

    @property
    def last_step(self) -> int | None:
        """The last step of the run, of a snapshot or of a scalar of every step."""
        ends = [self._writer.steps[-1:]]
        with contextlib.suppress(KeyError):
            ends.append(self._writer.positions(EVERY_STEP)[-1:])
        return max((int(step) for end in ends for step in end), default=None)

    def note(self, attrs: Mapping[str, list[int] | Mapping[str, str] | float]) -> None:
        """Add to attributes of the run: lists and mappings grow, numbers add up."""
        stored = self._writer.attrs
        joined: dict[str, Any] = {}
        for name, value in attrs.items():
            if isinstance(value, list):
                joined[name] = [*stored.get(name, []), *value][:MOST_STEPS]
            elif isinstance(value, Mapping):
                joined[name] = {**stored.get(name, {}), **value}
            else:
                joined[name] = stored.get(name, 0.0) + value
        self._writer.set_attrs(joined)

    def note_memory(self) -> None:
        """Store the most memory that copies and the reference held."""
        stored = self._writer.attrs.get(BYTES, 0)
        if self.cost.bytes > stored:
            self._writer.set_attrs({BYTES: self.cost.bytes})

    def resume_from(self, step: int) -> None:
        """Give up the snapshots from `step` on: a resumed training takes them again.

        They stay in the run until the first new one is committed.
        """
        self._resumed_at = step if len(self._writer.steps) else None
        self._writer.rewind(step)
        self._first_is_reference = not len(self._writer.steps)

    def _note_resumed(self) -> None:
        """Store the step at which training was resumed, in place of later ones taken again."""
        if self._resumed_at is not None:
            earlier = [at for at in self._writer.attrs.get(RESUMED, []) if at < self._resumed_at]
            self._writer.set_attrs({RESUMED: [*earlier, self._resumed_at][-MOST_STEPS:]})
            self._resumed_at = None

    def close(self) -> None:
        self._measurer.close()
        self._writer.close()
