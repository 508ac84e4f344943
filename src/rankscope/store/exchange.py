"""Replacement of a whole folder in one step."""

import contextlib
import ctypes
import os
import shutil
from pathlib import Path

AT_FDCWD = -100
RENAME_EXCHANGE = 2


def put_folder(new: Path, path: Path) -> None:
    """Put the folder `new` at `path`, and remove the folder that was there.

    On Linux the two change places in one step. Elsewhere, and on file systems that cannot do that,
    there is nothing at `path` for a moment.
    """
    if not path.exists() or not any(path.iterdir()):
        os.replace(new, path)
        return
    old = new
    if not _exchanged(new, path):
        old = new.with_suffix(".replaced")
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(old)
        os.replace(path, old)
        os.replace(new, path)
    shutil.rmtree(old, ignore_errors=True)


def _exchanged(one: Path, other: Path) -> bool:
    """Let two folders change places; False where the system cannot."""
    if os.name != "posix":
        return False
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    if rename is None:
        return False
    arguments = (AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE)
    return bool(rename(*arguments) == 0)
