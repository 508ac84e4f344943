"""Staging of snapshots: what they need is copied in the training thread, and handed over."""

import os
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import nn

from rankscope.tracker import distributed
from rankscope.tracker.budget import Budget
from rankscope.tracker.buffers import RowBuffer
from rankscope.tracker.changes import ChangeReport
from rankscope.tracker.distributed import gathered, gathered_share
from rankscope.tracker.gauging import Gauges
from rankscope.tracker.handover import Handover
from rankscope.tracker.notices import Notices
from rankscope.tracker.scalars import Scalars
from rankscope.tracker.schedules import Schedule
from rankscope.tracker.state import State
from rankscope.tracker.steps import StepCounter
from rankscope.tracker.windows import Collected, Pending, Windows


class Staging:
    """Copies the weights and scalars of due steps.

    handover: takes the copies; None on ranks that do not measure.
    """

    def __init__(
        self,
        changes: ChangeReport,
        scalars: Scalars,
        rows: RowBuffer,
        state: State,
        device: torch.device,
        *,
        share: Collection[str] | None,
    ) -> None:
        """share: names of the tensors that this rank copies; None for all."""
        self._changes = changes
        self._scalars = scalars
        self._rows = rows
        self._state = state
        self._device = device
        self._share = share
        self.handover: Handover | None = None
        self._windows: Windows | None = None  # keeps a copy back until its window is closed

    def follow(
        self,
        gauges: Gauges,
        model: nn.Module,
        steps: StepCounter,
        is_due: Schedule,
        notices: Notices,
        budget: Budget | None,
    ) -> None:
        """Let gauges look at the windows of due steps."""
        if gauges.gauges:
            self._windows = Windows(
                gauges.gauges,
                model,
                steps=steps,
                is_due=is_due,
                weights=self._changes.peek,
                device=self._device,
                state=self._state,
                notices=notices,
                budget=budget,
            )

    def finish(self, *, last: bool = False) -> None:
        """Hand over the snapshot whose window is open; `last` if no step is expected to follow."""
        if self._windows is not None and not self._state.stopped:
            self._windows.finish(last=last)

    def observed(self, *, taken: bool) -> None:
        """Note that a step was observed, and whether its snapshot is taken."""
        if self._windows is not None:
            self._windows.observed(taken=taken)

    def rest(self, resting: bool) -> None:
        """See no forward pass and no optimizer step from here on, or see them again."""
        if self._windows is not None:
            self._windows.rest(resting)

    def end(self, pid: int) -> None:
        """Close the run, also at interpreter exit, but not in a forked child, without a worker."""
        if os.getpid() == pid and self.handover is not None:
            self.close()
            self.handover.close()

    def close(self) -> None:
        """Hand over what is waiting, and remove all hooks."""
        self.finish(last=True)
        if self._windows is not None:
            self._windows.close()

    def has_place(self, *, block: bool) -> bool:
        """Return whether there is a place for a copy, waiting for it if `block` and ranks share.

        Then they wait before they meet: none may wait for its place while others gather.
        """
        if self._share is None or self.handover is None:
            return True
        # Longer than a worker waits for another rank, so that it can tell which one was silent.
        patience = 2 * distributed.PATIENCE if block else 0.0
        if self.handover.reserve(patience=patience):
            return True
        if block:
            slow = f"the last snapshots of this rank were not measured within {patience:g} seconds"
            self._state.fail(RuntimeError(slow))
        return False

    def stage(self, step: int, scalars: Mapping[str, Any], *, block: bool) -> bool:
        """Copy what the snapshot of `step` needs, and return whether it is taken."""
        tensors = self._changes.tensors()
        complete = tensors.keys() >= self._changes.names
        news = self._changes.news(step)
        handover = self.handover
        if handover is not None and news:
            handover.submit(lambda recorder: recorder.note({"changed_tensors": news}))
        buffer, waited = (None, 0.0) if handover is None else handover.free_buffer(block=block)
        if buffer is not None or self._state.sharded:
            numbers = self._scalars.usable(scalars)
            if self._share is None:
                whole = gathered(tensors)
            else:
                whole = gathered_share(tensors, self._share)
            try:
                if buffer is not None:
                    buffer.fill(whole, device=self._device)
            finally:
                if self._state.sharded:
                    for _ in whole:
                        pass  # gathering is collective: a rank that copies nothing takes part
        if handover is not None and buffer is None:
            handover.leave_out(step)
            if not self._state.sharded:
                return False

        def hand_over(collected: Collected) -> None:
            if handover is not None and buffer is not None:
                handover.send_rows(self._rows)
                handover.record(
                    step,
                    buffer,
                    numbers,
                    wait_seconds=waited,
                    complete=complete,
                    collected=collected,
                )

        if self._windows is None:
            hand_over({})
        else:
            self._windows.begin(Pending(step, buffer, hand_over))
        return True
