"""The gauges of a tracker: what they add to a run, and their values at a snapshot."""

import json
import queue
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from rankscope.measures import Gauge, Measure, Moment, Subject
from rankscope.snapshot import Coordinates, Snapshot
from rankscope.store import Variable
from rankscope.tracker.buffers import Buffer
from rankscope.tracker.distributed import several

MEASURES = "measures"  # attribute of a run: options and variables of each measure, as JSON


def checked_measures(measures: object) -> tuple[Measure, ...]:
    """Return the measures; ValueError if one is no measure, or two have a name."""
    given = tuple(measures) if isinstance(measures, Sequence) else (measures,)
    for measure in given:
        if isinstance(measure, type) or not isinstance(measure, Measure):
            raise ValueError(
                f"measure: expected a list such as [rankscope.Updates()], got {measure!r} in it"
            )
    names = [measure.name for measure in given]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"measure: {name!r} is listed twice; give one of them all options")
    return given


def reduced(measures: Sequence[Measure]) -> bool:
    """Tell whether there are several ranks, and a measure that all of them share."""
    return several() and any(measure.reduces for measure in measures)


class Gauges:
    """The gauges of one tracker, on the worker's side.

    directions: number of leading directions that they need of each matrix.
    """

    def __init__(self, measures: Sequence[Measure], subject: Subject | None) -> None:
        gauges = () if subject is None else tuple(measure.gauge(subject) for measure in measures)
        self.gauges: tuple[Gauge, ...] = gauges
        self.coords: Coordinates = {}
        self.variables: dict[str, Variable] = {}
        self.directions: dict[str, int] = {}
        for gauge in gauges:
            self.coords |= gauge.coords
            self.variables |= gauge.variables
            for name, rank in gauge.directions.items():
                self.directions[name] = max(rank, self.directions.get(name, 0))
        self.operations = float(sum(gauge.operations for gauge in gauges))
        self._failed: set[str] = set()
        self._messages: queue.SimpleQueue[str] = queue.SimpleQueue()

    @property
    def names(self) -> set[str]:
        """Names of the coordinates and variables that they add to a run."""
        return {*self.coords, *self.variables}

    @property
    def attrs(self) -> dict[str, str]:
        """Return the run's attribute that says what was measured; none without gauges."""
        described = {g.name: {**g.facts, "variables": list(g.variables)} for g in self.gauges}
        return {MEASURES: json.dumps(described)} if described else {}

    def compute(
        self,
        step: int,
        buffer: Buffer,
        measured: Snapshot,
        *,
        reference: Mapping[str, Tensor] | None,
        collected: Mapping[str, Any],
        threads: int,
    ) -> dict[str, np.ndarray]:
        """Return the values of all gauges; one that fails leaves NaN and a message."""
        values: dict[str, np.ndarray] = {}
        for gauge in self.gauges:
            prefix = f"{gauge.name}/"
            kept_here = {
                name.removeprefix(prefix): side.tensors
                for name, side in buffer.sides.items()
                if name.startswith(prefix)
            }
            moment = Moment(
                step=step,
                weights=buffer.tensors,
                reference=reference,
                values=measured.values,
                directions=measured.directions,
                kept=kept_here,
                collected=collected.get(gauge.name),
                threads=threads,
            )
            try:
                values |= gauge.compute(moment)
            except Exception as failure:
                if gauge.name not in self._failed:
                    self._failed.add(gauge.name)
                    self._messages.put(failure_of(gauge.name, failure))
        return values

    def new_messages(self) -> list[str]:
        """Return what has failed for the first time."""
        return [self._messages.get() for _ in range(self._messages.qsize())]


def failure_of(name: str, failure: Exception) -> str:
    """Return the warning for a measure that fails."""
    return (
        f"rankscope cannot measure {name} ({type(failure).__name__}: {failure}); its values are "
        "NaN, and the rest is measured"
    )
