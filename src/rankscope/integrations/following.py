"""A tracker that follows a trainer: what the callbacks of all trainers share."""

import contextlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rankscope.gates import StopIf, Stopped
from rankscope.store.creation import RunExists
from rankscope.store.names import can_name_scalar
from rankscope.tracker import Tracker
from rankscope.tracker.distributed import agreed, several
from rankscope.tracker.schedules import as_schedule

Gates = StopIf | Sequence[StopIf]
Scalars = Callable[[], Mapping[str, Any]]
NO_SCALARS = ("self", "step")  # arguments of `Tracker.observe`; trainers log such names too


class Following:
    """A tracker that follows a trainer. Steps are optimizer steps, counted by the trainer.

    path: where the run is written. A training that resumes at a later step continues the run.
    model: the model to follow instead of the trainer's, such as a moving average of it.
    gates: gates that end the training.
    options: options of `Tracker`.
    forgiving: warn of a user's mistake instead of raising it.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        model: nn.Module | None,
        gates: Gates,
        options: Mapping[str, Any],
        forgiving: bool = False,
    ) -> None:
        self.tracker: Tracker | None = None
        self._path = Path(path)
        self._model = model
        self._gates = (gates,) if isinstance(gates, StopIf) else tuple(gates)
        sinks = options.get("sinks", ())
        sinks = (sinks,) if callable(sinks) else tuple(sinks)
        self._options = {**options, "sinks": (*sinks, *self._gates)}
        self._is_due = as_schedule(options.get("schedule"))
        self._forgiving = forgiving
        self._home = torch.device("cpu")
        self._lacks_scalars = False
        self._first = 0
        self._last: int | None = None  # the last step observed

    def begin(self, model: nn.Module, step: int) -> None:
        """Make the tracker; the run goes on if the training does, at a `step` above 0."""
        model = self._model or model
        self._first, self._last = step, None
        for gate in self._gates if step == 0 else ():
            gate.reason = None  # what an earlier training met does not end this one
        self._home = next((p.device for p in model.parameters()), self._home)
        began_again = self.tracker is not None  # trainers may start over with smaller batches
        self.close()
        resume = bool(self._options.get("resume")) or step > 0
        overwrite = (bool(self._options.get("overwrite")) or began_again) and not resume
        options = {**self._options, "resume": resume, "overwrite": overwrite}
        try:
            self.tracker = Tracker(model, self._path, **options)
        except (ValueError, TypeError) as mistake:
            if not self._forgiving:
                raise
            reason = str(mistake)
            if isinstance(mistake, RunExists):  # nobody can pass resume or overwrite
                reason = f"{mistake.found}; choose another path"
            self._warn(f"does not track this training: {reason}")
        except Exception as failure:
            self._warn(f"does not track this training: {type(failure).__name__}: {failure}")

    def observe(self, step: int, scalars: Scalars) -> None:
        """Take a snapshot if one is due at `step` and it is a new one.

        Scalars are asked for when they are stored: to compute them a trainer may have to wait.
        """
        if self.tracker is None or step == self._last:
            return
        self._last = step
        stored = self._is_due(step) or self._options.get("every_step")
        self.tracker.observe(step, **(self._numbers(scalars) if stored else {}))

    def reached(self, step: int) -> bool:
        """Return whether a gate ends the training; it may raise `Stopped` instead.

        Only the process that writes has seen the spectra. The others ask it at steps that are due,
        so that all end at the same one.
        """
        if not self._gates:
            return False
        kinds = [gate.then for gate in self._gates if gate.reason is not None]
        stops, raises = int("stop" in kinds), int("raise" in kinds)
        if several():
            if not self._is_due(step):
                return False
            stops, raises = agreed(self._home, stops, raises)
        if raises:
            reasons = [gate.reason for gate in self._gates if gate.reason is not None]
            raise Stopped(reasons[0] if reasons else "a gate of the first process was reached")
        return bool(stops)

    def snapshot(self, step: int, scalars: Scalars) -> None:
        """Take the snapshot of the trained weights, unless no step was taken."""
        if self.tracker is not None and self._last is not None:
            self.tracker.snapshot(step, **self._numbers(scalars))

    def end(self, step: int, scalars: Scalars) -> None:
        """Take the last snapshot and close the tracker."""
        if self.tracker is not None and step == self._first:
            self._warn("nothing to track: the trainer took no step; see its limits and data")
        self.snapshot(step, scalars)
        self.close()

    def close(self) -> None:
        """Commit what is waiting and close the tracker, if there is one."""
        tracker, self.tracker = self.tracker, None
        if tracker is not None:
            tracker.close()

    def _numbers(self, scalars: Scalars) -> dict[str, Any]:
        """Return what the trainer has logged; a trainer that cannot tell is told once."""
        try:
            return _storable(scalars())
        except Exception as failure:
            if not self._lacks_scalars:
                self._lacks_scalars = True
                self._warn(f"stores no scalars of the trainer: {type(failure).__name__}: {failure}")
            return {}

    def _warn(self, message: str) -> None:
        warnings.warn(f"rankscope, {self._path}: {message}", RuntimeWarning, stacklevel=4)


def _storable(scalars: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers that a trainer has logged, under names that a run can hold."""
    numbers: dict[str, Any] = {}
    for key, value in scalars.items():
        name = key.replace("/", "_")
        with contextlib.suppress(TypeError, ValueError):
            usable = can_name_scalar(name) and name not in NO_SCALARS
            if usable and not isinstance(value, str | bool):
                numbers[name] = value if isinstance(value, torch.Tensor) else float(value)
    return numbers
