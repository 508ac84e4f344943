"""Names in a run's folder: of scalars, each of which is a folder, and of what is no array."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

DROPPED = "dropped"  # the folder of runs that were dropped, and the attribute that counts them
FILES = ("zarr.json", "reference.safetensors")  # of a run, beside the folders of its arrays
OTHER_NAMES = {*FILES, DROPPED}

LONGEST_NAME = 200  # bytes; file systems allow 255, and a suffix may follow


def can_name_scalar(name: str) -> bool:
    """Tell whether a scalar can be stored under `name`.

    Zarr reads a backslash as a slash, which would make the run unreadable.
    """
    return not (
        not name.isprintable()  # no control characters and no half of a surrogate pair
        or not 0 < len(name.encode()) <= LONGEST_NAME
        or any(character in name for character in "/\\")
        or name.startswith((".", "__"))
        or name.endswith(".partial")
        or name in OTHER_NAMES
    )


def check_scalar_name(name: str) -> None:
    """Raise ValueError if `name` cannot be the name of a stored scalar."""
    if not can_name_scalar(name):
        raise ValueError(f"{name!r} cannot name a scalar; use letters, digits, underscores")


def kept_path(run: Path, attrs: Mapping[str, Any]) -> Path:
    """Return where the run with these `attrs` is kept when it goes back to an earlier step."""
    count = attrs.get(DROPPED)
    return run / DROPPED / str(count + 1 if isinstance(count, int) else 1)
