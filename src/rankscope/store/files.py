"""Files that are replaced in one step."""

import contextlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

from rankscope.store.layout import Contents
from rankscope.store.metadata import ROOT

__all__ = ["ROOT", "replace_file", "sync_folder", "write_own_metadata"]


def replace_file(path: Path, data: bytes, *, durable: bool) -> None:
    """Put `data` at `path` in one step: a reader finds the old file or the new one, never a part.

    durable: wait until file and folder entry are on the disk, to survive a loss of power.
    """
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)  # a full disk needs the room
        raise
    if durable:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Wait until the names in `folder` are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_own_metadata(
    run: Path, contents: Contents, names: Iterable[str], *, durable: bool
) -> None:
    """Write the zarr.json of each named array, for readers that do not use the root's."""
    for name in names:
        data = json.dumps(contents.metadata(name)).encode()
        replace_file(run / name / ROOT, data, durable=durable)
