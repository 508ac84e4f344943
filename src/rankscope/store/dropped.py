"""Rows that a resumed run replaces, kept in its folder `dropped`.

A run that goes back to an earlier step is kept whole before any of its files changes; other files
in its folder are left alone:

    <run>/dropped/1     as it was before it went back for the first time; a run of its own
    <run>/dropped/2     as it was before it went back again

The run's attribute `dropped` counts them. Files are linked, not copied: a run's files are replaced
and never changed, so a link to the old one costs nothing until then.

A reader that opened the run before it went back goes on in the kept one, see `Folder.open`. A
process that dies before the first new row is committed leaves a kept run that the attribute does
not count yet; whoever opens the run reads that one, and the next writer puts its files back.
"""

import os
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from rankscope.store.files import ROOT, sync_folder
from rankscope.store.names import DROPPED, FILES, kept_path


def keep(
    run: Path, attrs: Mapping[str, Any], arrays: Collection[str], *, durable: bool
) -> dict[str, int]:
    """Keep the run as it is, unless that is done; return the attribute that counts it."""
    archive = kept_path(run, attrs)
    if not archive.exists():
        partial = archive.with_suffix(".partial")
        if partial.exists():
            shutil.rmtree(partial)  # left by a process that died
        partial.mkdir(parents=True)
        # Files that a user put beside them, such as checkpoints, are not the run's to keep.
        for file in (run / name for name in FILES):
            if file.is_file():
                _link(file, partial / file.name)
        for folder in arrays:
            (partial / folder).mkdir()
            for file in (run / folder).iterdir():
                if file.is_file() and file.suffix != ".partial":
                    _link(file, partial / folder / file.name)
        if durable:
            for folder in (".", *arrays):
                sync_folder(partial / folder)
        os.replace(partial, archive)
        if durable:
            sync_folder(archive.parent)
            sync_folder(run)
    return {DROPPED: int(archive.name)}


def restore(run: Path, attrs: Mapping[str, Any]) -> None:
    """Put back the files of a run that went back without committing a new row."""
    archive = kept_path(run, attrs)
    partial = archive.with_suffix(".partial")
    if partial.exists():
        shutil.rmtree(partial)  # left by a process that died
    if not archive.exists():
        return
    for file in archive.rglob("*"):
        present = run / file.relative_to(archive)
        if present == run / ROOT or not file.is_file():  # the root may have new attributes
            continue
        if not (present.exists() and present.samefile(file)):
            again = present.with_name(present.name + ".partial")
            again.unlink(missing_ok=True)
            _link(file, again)
            os.replace(again, present)
    os.replace(archive, partial)  # readers find it whole or not at all
    shutil.rmtree(partial)


def _link(file: Path, target: Path) -> None:
    try:
        os.link(file, target)
    except OSError:  # a file system without links
        shutil.copyfile(file, target)
