"""The files of an archive: <paper>/verdicts.json, <paper>/<experiment>/<run>/seed-0.zarr.zip."""

from pathlib import Path

from rankscope.lab.running.run_key import RunKey
from rankscope.store.archive import SUFFIX

VERDICTS = "verdicts.json"


def archive_path(archive: Path, key: RunKey, seed: int) -> Path:
    """Return the file of one run and seed."""
    return archive / key.experiment / key.name / f"seed-{seed}{SUFFIX}"


def is_archive(folder: Path) -> bool:
    """Whether `folder` holds archived runs and not running ones."""
    return any(
        next(folder.glob(f"*/*/{depth}/seed-*{SUFFIX}"), None) is not None for depth in ("*", "*/*")
    )
