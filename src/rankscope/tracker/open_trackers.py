"""Trackers of this process that have their run open, by path.

A notebook cell that is run again makes a second tracker while the first is still alive. The kernel
is the same process, so the first one can be closed instead of refusing the second.
"""

import contextlib
import weakref
from pathlib import Path
from typing import Protocol, runtime_checkable


@runtime_checkable
class OpenTracker(Protocol):
    """What is needed of a tracker here."""

    def close(self) -> None: ...


_trackers: weakref.WeakValueDictionary[Path, OpenTracker] = weakref.WeakValueDictionary()


def remember(tracker: OpenTracker, path: Path) -> None:
    """Note that `tracker` writes the run at `path`."""
    _trackers[path.resolve()] = tracker


def close_earlier(path: Path) -> None:
    """Close the tracker of this process that writes the run at `path`; its snapshots are committed.

    Its own troubles are told by its attribute `failed`.
    """
    earlier = _trackers.pop(path.resolve(), None)
    if earlier is not None:
        with contextlib.suppress(Exception):
            earlier.close()
