"""Attachment to an optimizer: tracking without a line in the training loop."""

import atexit
import warnings
import weakref
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from rankscope.tracker.tracker import Tracker


class Attachment:
    """A tracker that counts an optimizer's steps and observes after each of them.

    Step 0 is the model as it is when it is attached, step n the weights after n optimizer steps. At
    the end, `close` takes a snapshot of the last weights. The `with` block closes it, and so does
    the end of the process.

    tracker: the `Tracker`. steps: optimizer steps counted so far, on from a resumed run.
    """

    def __init__(self, optimizer: Optimizer, tracker: Tracker, *, step: int | None) -> None:
        self.tracker = tracker
        self._scalars: dict[str, Any] = {}
        self._closed = False
        self._optimizer = weakref.ref(optimizer)
        weak_observe = weakref.WeakMethod(self._after_step)

        def after_step(stepped: Optimizer, args: object, kwargs: object) -> None:
            observe = weak_observe()
            if observe is not None and not torch.compiler.is_compiling():
                observe(stepped)

        # After the tracker's own hook on all optimizers, which looks at the step that has ended.
        self._handle = register_optimizer_step_post_hook(after_step)
        weakref.finalize(self, self._handle.remove)
        _attached.setdefault(optimizer, []).append(self)
        tracker.observe(step, **self._rate())

    @property
    def steps(self) -> int:
        """Number of the last step observed."""
        return self.tracker.last_observed or 0

    def note(self, **scalars: Any) -> None:
        """Store scalars such as the loss with the snapshots to come; the last values count."""
        if "step" in scalars:
            del scalars["step"]
            warnings.warn(
                "rankscope: attach counts the optimizer's steps, so a scalar named step is left "
                "out; note it under another name",
                RuntimeWarning,
                stacklevel=2,
            )
        self._scalars |= scalars

    def _after_step(self, optimizer: Optimizer) -> None:
        if optimizer is self._optimizer():
            self.tracker.observe(**self._noted())

    def _noted(self) -> dict[str, Any]:
        """Return the learning rate and the scalars noted, of which one may be another rate."""
        return {**self._rate(), **self._scalars}

    def _rate(self) -> dict[str, Any]:
        optimizer = self._optimizer()
        groups = [] if optimizer is None else optimizer.param_groups
        return {"learning_rate": groups[0]["lr"]} if groups and "lr" in groups[0] else {}

    def close(self) -> None:
        """Take a snapshot of the last weights, commit what is waiting, and let go; safe twice."""
        if not self._closed:
            self.tracker.snapshot(self.tracker.last_observed, **self._noted())
        self.end()

    def end(self) -> None:
        """Commit what is waiting, without another snapshot, and let go."""
        self._closed = True
        self._handle.remove()
        self.tracker.close()

    def __enter__(self) -> "Attachment":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


# An optimizer keeps what is attached to it alive.
_attached: weakref.WeakKeyDictionary[Optimizer, list[Attachment]] = weakref.WeakKeyDictionary()


@atexit.register
def _end_all() -> None:
    for attachment in [a for attachments in _attached.values() for a in attachments]:
        attachment.end()


def attach(
    optimizer: Optimizer,
    model: nn.Module,
    path: str | Path,
    *,
    step: int | None = None,
    **options: Any,
) -> Attachment:
    """Track `model` at `path` from here on, whenever `optimizer` steps: nothing else is needed.

    step: number of steps the optimizer has taken; by default 0, or the next one of a resumed run.
    options: those of `Tracker`.
    """
    check_optimizer(optimizer, model)
    return Attachment(optimizer, Tracker(model, path, **options), step=step)


def check_optimizer(optimizer: object, model: nn.Module) -> None:
    """Raise ValueError unless `optimizer` trains parameters of the model."""
    if not isinstance(optimizer, Optimizer):
        raise ValueError(
            f"attach: expected a torch optimizer first, got {type(optimizer).__name__}; a loop "
            "without one calls Tracker.observe"
        )
    its_own = {id(p) for group in optimizer.param_groups for p in group["params"]}
    if not any(id(p) in its_own for p in model.parameters()):
        raise ValueError(
            "attach: the optimizer holds no parameter of the model; pass the model it trains"
        )
