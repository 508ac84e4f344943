"""Rows that a resumed run replaces, kept in its folder `dropped`.

A run that goes back to an earlier step is kept whole before any of its files changes:

    <run>/dropped/1     as it was before it went back for the first time; a run of its own
    <run>/dropped/2     as it was before it went back again

The run's attribute `dropped` counts them. Files are linked, not copied: a run's files are replaced
and never changed, so a link to the old one costs nothing until then.

A reader that opened the run before it went back goes on in the kept one, see `folder_of`. A
process that dies before the first new row is committed leaves a kept run that the attribute does
not count yet; whoever opens the run reads that one, and the next writer puts its files back.
"""

import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rankscope.store.files import ROOT, sync_folder

DROPPED = "dropped"  # the folder, and the attribute


def folder_of(run: Path, attrs: Mapping[str, Any]) -> Path:
    """Return the folder that holds the run whose root has these `attrs`.

    A chunk read before this call, with the answer that it is `run` itself, is one of them too.
    """
    kept = _kept(run, attrs)
    return kept if kept.exists() else run


def keep(
    run: Path, attrs: Mapping[str, Any], arrays: Iterable[str], *, durable: bool
) -> dict[str, int]:
    """Keep the run as it is, unless that is done; return the attribute that counts it."""
    kept = _kept(run, attrs)
    if not kept.exists():
        partial = kept.with_suffix(".partial")
        if partial.exists():
            shutil.rmtree(partial)  # left by a process that died
        partial.mkdir(parents=True)
        for folder in (Path(), *map(Path, arrays)):
            (partial / folder).mkdir(exist_ok=True)
            for file in (run / folder).iterdir():
                if file.is_file() and file.suffix != ".partial":
                    _link(file, partial / folder / file.name)
            if durable:
                sync_folder(partial / folder)
        os.replace(partial, kept)
        if durable:
            sync_folder(kept.parent)
            sync_folder(run)
    return {DROPPED: int(kept.name)}


def restore(run: Path, attrs: Mapping[str, Any]) -> None:
    """Put back the files of a run that went back without committing a new row."""
    kept = _kept(run, attrs)
    partial = kept.with_suffix(".partial")
    if partial.exists():
        shutil.rmtree(partial)  # left by a process that died
    if not kept.exists():
        return
    for file in kept.rglob("*"):
        present = run / file.relative_to(kept)
        if present == run / ROOT or not file.is_file():  # the root may have new attributes
            continue
        if not (present.exists() and present.samefile(file)):
            again = present.with_name(present.name + ".partial")
            again.unlink(missing_ok=True)
            _link(file, again)
            os.replace(again, present)
    os.replace(kept, partial)  # readers find it whole or not at all
    shutil.rmtree(partial)


def _kept(run: Path, attrs: Mapping[str, Any]) -> Path:
    """Return where the run is kept, or will be, when it goes back from the present rows."""
    return run / DROPPED / str(attrs.get(DROPPED, 0) + 1)


def _link(file: Path, target: Path) -> None:
    try:
        os.link(file, target)
    except OSError:  # a file system without links
        shutil.copyfile(file, target)
