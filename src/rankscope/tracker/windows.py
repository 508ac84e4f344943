"""Windows of due steps, in which gauges look at forward passes, gradients and optimizer steps.

The window of a step lies between two optimizer steps: the forward and backward passes with the
weights of its snapshot, and the optimizer step that leaves them. Many loops observe after the
forward pass, so a window is opened ahead, when the step to come is probably due. On all other steps
no hook is on the model, and those on optimizers return at once.
"""

import contextlib
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.hooks import RemovableHandle

from rankscope.matrices import named_tensors
from rankscope.measures import Gauge, OptimizerStep
from rankscope.measures.protocol import in_backward
from rankscope.tracker.budget import Budget
from rankscope.tracker.buffers import Buffer
from rankscope.tracker.closures import Arguments, looking_after
from rankscope.tracker.cost import LostTime
from rankscope.tracker.distributed import gathered
from rankscope.tracker.gauging import failure_of
from rankscope.tracker.notices import Notices
from rankscope.tracker.state import State
from rankscope.tracker.steps import StepCounter

Collected = dict[str, Any]


@dataclass
class Pending:
    """A snapshot whose window is open: its copies, and how it is handed over when that closes."""

    step: int
    buffer: Buffer | None  # None on ranks that do not write
    hand_over: Callable[[Collected], None]
    collected: Collected = field(default_factory=dict)
    collected_once: bool = False
    stepped: bool = False
    shared: bool = False


class Windows:
    """Opens and closes the windows of one tracker, in the training thread."""

    def __init__(
        self,
        gauges: Iterable[Gauge],
        model: nn.Module,
        *,
        steps: StepCounter,
        is_due: Callable[[int], bool],
        weights: Callable[[], Mapping[str, Tensor]],
        device: torch.device,
        state: State,
        notices: Notices,
        budget: Budget | None,
    ) -> None:
        self._lost = LostTime(budget)
        self._gauges = list(gauges)
        for gauge in self._gauges:
            gauge.charged = self._lost.charged
        self._model = model
        self._steps = steps
        self._is_due = is_due
        self._weights = weights
        self._device = device
        self._state = state
        self._notices = notices
        self._budget = budget
        self._pending: Pending | None = None
        self._armed = False
        self._resting = False
        self._in_backward = False  # an optimizer steps there
        self._optimizer_steps = 0  # since the last step was observed
        self._apart = 1  # optimizer steps between the last two observed steps
        self._steps_seen = False
        self._holds: weakref.WeakKeyDictionary[Optimizer, bool] = weakref.WeakKeyDictionary()
        self._handles = self._hooks()
        weakref.finalize(self, _end, self._handles, tuple(self._gauges))
        self._open_ahead()

    def _hooks(self) -> list[RemovableHandle]:
        """Hook all optimizers' steps; the hooks do not keep this object alive."""
        weak_self = weakref.ref(self)

        def before(optimizer: Optimizer, args: Any, kwargs: Any) -> Arguments | None:
            windows = weak_self()
            if windows is None or torch.compiler.is_compiling() or not windows._looks_at(optimizer):
                return None
            look = partial(windows._before_step, optimizer)
            arguments = looking_after(args, kwargs, look)
            if arguments is None:
                look()
            return arguments

        def after(optimizer: Optimizer, args: object, kwargs: object) -> None:
            windows = weak_self()
            if windows is not None and not torch.compiler.is_compiling():
                windows._after_step(optimizer)

        return [
            register_optimizer_step_pre_hook(before),
            register_optimizer_step_post_hook(after),
        ]

    def begin(self, pending: Pending) -> None:
        """Begin the window of a snapshot whose weights are copied."""
        self._pending = pending
        if not self._armed:
            self._arm()
        elif not self._steps_seen and self._touched:
            self._collect(pending)  # a forward pass that follows may have other weights

    def observed(self, *, taken: bool) -> None:
        """Note that a step was observed, and whether its snapshot is taken."""
        self._apart = max(1, self._optimizer_steps)
        self._optimizer_steps = 0
        if self._armed and not taken:
            self._disarm()
        if not self._steps_seen:
            self._open_ahead()

    def finish(self, *, last: bool = False) -> None:
        """Close the window of the last snapshot, if it is open, and hand the snapshot over.

        last: no optimizer step is expected after it.
        """
        pending, self._pending = self._pending, None
        if pending is None:
            return
        self._collect(pending)
        if not last:
            self._notice_gaps(pending)
        if self._state.sharded and not pending.shared:
            for gauge in self._gauges:
                if gauge.reduces:  # the numbers of one rank would pass for those of all
                    pending.collected.pop(gauge.name, None)
        if pending.buffer is not None:
            pending.buffer.window_seconds = self._lost.taken()
        if pending.buffer is not None and pending.collected:
            pending.buffer.side("window").mark_filled(self._state.home)
        pending.hand_over(pending.collected)

    def rest(self, resting: bool) -> None:
        """See nothing from here on, or see again."""
        self._resting = resting
        if resting:
            self._disarm()

    def close(self) -> None:
        """Remove all hooks."""
        self._disarm()
        _end(self._handles, tuple(self._gauges))

    def _looks_at(self, optimizer: Optimizer) -> bool:
        """Tell whether the step of an optimizer lies in the window of a snapshot."""
        return self._pending is not None and not self._rests and self._holds_parameters(optimizer)

    def _before_step(self, optimizer: Optimizer) -> None:
        if self._pending is None:
            return
        if in_backward():
            self._in_backward = True
            self._notices.tell(
                "step in backward",
                "an optimizer steps inside backward, so its updates and gradients belong to no "
                "snapshot and are NaN; let it step after backward to have them",
            )
            return
        for gauge in tuple(self._gauges):
            with self._guarded(gauge):
                gauge.before_step(self._step_of(optimizer, self._pending, gauge))

    def _after_step(self, optimizer: Optimizer) -> None:
        if self._rests or in_backward() or not self._holds_parameters(optimizer):
            return
        self._steps_seen = True
        self._optimizer_steps += 1
        if self._pending is not None:
            self._pending.stepped = True
            for gauge in tuple(self._gauges):
                with self._guarded(gauge):
                    gauge.after_step(self._step_of(optimizer, self._pending, gauge))
            self._collect(self._pending)
            self._share(self._pending)
        elif self._armed and self._touched:  # nobody observed this window
            self._disarm()
        self._open_ahead()

    def _open_ahead(self) -> None:
        """Open the window to come if its step is probably due."""
        ahead = not self._steps_seen or self._optimizer_steps == self._apart
        if self._armed or self._rests or not ahead:
            return
        first = self._steps.observed is None
        affordable = first or self._budget is None or self._budget.may_afford_next()
        if affordable and self._is_due(self._steps.following):
            self._arm()

    @property
    def _rests(self) -> bool:
        """Whether nothing is to be seen: inside `paused`, or after a failure."""
        if self._state.stopped and self._armed:
            self._disarm()
        return self._resting or self._state.stopped

    @property
    def _touched(self) -> bool:
        return any(gauge.touched for gauge in self._gauges)

    def _arm(self) -> None:
        self._armed = True
        for gauge in tuple(self._gauges):
            with self._guarded(gauge):
                gauge.arm()

    def _disarm(self) -> None:
        self._armed = False
        for gauge in tuple(self._gauges):
            with self._guarded(gauge):
                gauge.disarm()

    def _collect(self, pending: Pending) -> None:
        """Take what the gauges have seen in this window; they rest. Only once for a window."""
        if pending.collected_once:
            return
        pending.collected_once = True
        self._armed = False
        for gauge in tuple(self._gauges):
            with self._guarded(gauge):
                collected = gauge.collect()
                if collected is not None:
                    pending.collected[gauge.name] = collected

    def _share(self, pending: Pending) -> None:
        """Let gauges reduce what all ranks have collected; every rank steps its optimizer now."""
        shared = [gauge for gauge in self._gauges if gauge.reduces]
        if pending.shared or not shared or not self._state.sharded:
            return
        pending.shared = True
        if self._state.all_here("stepped its optimizer; train in step"):
            self._state.agree()
            for gauge in () if self._state.stopped else shared:
                own = pending.collected.pop(gauge.name, None)
                with self._guarded(gauge):
                    pending.collected[gauge.name] = gauge.shared(own)

    def _holds_parameters(self, optimizer: Optimizer) -> bool:
        """Tell whether an optimizer holds parameters of the model, cheaply after the first time."""
        if optimizer not in self._holds:
            self._holds[optimizer] = bool(self._parameters(optimizer))
        return self._holds[optimizer]

    def _parameters(self, optimizer: Optimizer) -> dict[str, Tensor]:
        its_own = {id(p) for group in optimizer.param_groups for p in group["params"]}
        tensors = named_tensors(self._model)
        return {name: tensor for name, tensor in tensors.items() if id(tensor) in its_own}

    def _step_of(self, optimizer: Optimizer, pending: Pending, gauge: Gauge) -> OptimizerStep:
        sharded = self._state.sharded

        def keep(name: str, tensors: Mapping[str, Tensor]) -> None:
            whole = gathered(tensors)
            try:
                if pending.buffer is not None:
                    pending.buffer.side(f"{gauge.name}/{name}").add(whole, device=self._device)
            finally:
                if sharded:
                    for _ in whole:
                        pass  # gathering is collective: a rank that copies nothing takes part

        parameters = self._parameters(optimizer)
        return OptimizerStep(optimizer, parameters, self._weights, keep)

    @contextlib.contextmanager
    def _guarded(self, gauge: Gauge) -> Iterator[None]:
        """Give up a gauge that fails here, with one warning; charge its time."""
        try:
            with self._lost.charged(), torch.no_grad():
                yield
        except Exception as failure:
            if gauge in self._gauges:
                self._gauges.remove(gauge)
            with contextlib.suppress(Exception):
                gauge.disarm()
            self._notices.once(f"{gauge.name} failed", failure_of(gauge.name, failure))

    def _notice_gaps(self, pending: Pending) -> None:
        """Warn of what a window that is over has not shown; even if `strict`, training goes on."""
        for gauge in self._gauges:
            if reason := gauge.missing():
                self._notices.tell(f"{gauge.name} lacks something", reason)
        waiting = [gauge.name for gauge in self._gauges if gauge.follows_optimizer]
        if waiting and not pending.stepped and not self._in_backward:
            self._notices.tell(
                "no optimizer step",
                f"no torch optimizer stepped on the model between step {pending.step} and the next "
                f"one, so {' and '.join(waiting)} are NaN there; observe once per optimizer step",
            )


def _end(handles: Iterable[RemovableHandle], gauges: Iterable[Gauge]) -> None:
    for handle in handles:
        handle.remove()
    for gauge in gauges:
        with contextlib.suppress(Exception):
            gauge.disarm()
