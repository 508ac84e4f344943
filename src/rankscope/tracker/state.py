"""State of a tracker: it works, has failed, or has stopped, on this rank or on all together."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from rankscope.tracker.distributed import Meetings, Trouble, agreed, is_writer

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store


class State:
    """Decides whether a tracker goes on.

    failed: why tracking has failed, or None.
    stopped: whether nothing is observed any more, after a failure or on closing.
    sharded: whether ranks gather shards, share the matrices or reduce a measure, so that they act
        and stop together.
    home: device on which the model trains, where ranks agree.
    tell: tells the workers of other ranks why this one has failed, if they wait for it.
    """

    def __init__(self, path: Path, *, strict: bool, sharded: bool) -> None:
        self.failed: str | None = None
        self.stopped = False
        self.sharded = sharded
        self._path = path
        self._strict = strict
        self.home = torch.device("cpu")
        self.tell: Callable[[str], None] | None = None
        self._meetings = Meetings(path) if sharded else None
        self._failure: BaseException | None = None
        self._mistaken = False

    @property
    def store(self) -> "Store | None":
        """Store that the trackers of all ranks share, if they act together."""
        return None if self._meetings is None else self._meetings.store

    def fail(self, failure: BaseException, *, stacklevel: int = 5) -> None:
        """Warn once and let training go on; raise instead if `strict`."""
        if self.failed is None:
            self.failed = f"{type(failure).__name__}: {failure}"
            self._failure = failure
            if self.tell is not None:
                self.tell(f"stopped tracking ({self.failed})")
            if not self._strict:
                message = (
                    f"rankscope stopped tracking {self._path} and training goes on: {self.failed}"
                )
                warnings.warn(message, RuntimeWarning, stacklevel=stacklevel)
        # Ranks that gather shards stop together, at the next snapshot; others stop at once.
        self.stopped = self.stopped or not self.sharded
        if self._strict and self.stopped:
            raise failure

    def refuse(self, mistake: ValueError) -> None:
        """Note a user's mistake, which `raise_mistake` raises when all ranks know of it."""
        self.failed, self._failure, self._mistaken = str(mistake), mistake, True

    @contextmanager
    def catching(self) -> Iterator[None]:
        """Note a mistake inside this context, or a trouble that training survives."""
        try:
            yield
        except ValueError as mistake:
            self.refuse(mistake)
        except Exception as failure:  # a disk in trouble must not end training
            self.fail(failure, stacklevel=7)

    def raise_mistake(self) -> None:
        if self._mistaken and self._failure is not None:
            raise self._failure

    def all_here(self, deed: str) -> bool:
        """Return whether the trackers of all ranks have come here, if they gather shards."""
        absent = [] if self._meetings is None else self._meetings.absent()
        if self._meetings is None or not absent:
            return True
        self._stop_for(
            f"all ranks gather a sharded model or share what is measured, and after "
            f"{self._meetings.patience:g} seconds rank {absent[0]} had not {deed} on every rank, "
            "one of which writes"
        )
        return False

    def all_want(self, step: int, wanted: bool, *, room: bool = True) -> bool:
        """Return whether the writer wants a snapshot; stop if a rank is at another step.

        room: whether this rank has a free place for its copies, if it shall not wait for one.
        """
        if not self.sharded:
            return wanted
        if not self.all_here(f"come to the snapshot of step {step}; call observe and snapshot"):
            return False
        refused = not room or (is_writer() and not wanted)
        left_out, last, first = self.agree(int(refused), step, -step)
        if last != -first:
            self._stop_for(
                f"ranks came to snapshots of steps {-first} and {last}; pass the same steps on "
                "every rank"
            )
        return not left_out

    def agree(self, *votes: int) -> tuple[int, ...]:
        """Return the largest votes of all ranks, and stop on all once any has failed."""
        if not self.sharded:
            return votes
        trouble = Trouble.NONE if self.failed is None else Trouble.FAILURE
        worst, *largest = agreed(self.home, Trouble.MISTAKE if self._mistaken else trouble, *votes)
        if worst != Trouble.NONE:
            self.stopped = True
            self.failed = self.failed or "the tracker of another rank failed"
            if self._strict or worst == Trouble.MISTAKE:
                error = ValueError if worst == Trouble.MISTAKE else RuntimeError
                raise self._failure or error(self.failed)
        return tuple(largest)

    def _stop_for(self, reason: str) -> None:
        self.stopped = True
        self.fail(RuntimeError(reason), stacklevel=7)
