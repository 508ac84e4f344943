"""Warnings of a tracker, each given once."""

import warnings
from pathlib import Path


class Notices:
    """Gives each warning once, or raises it as a ValueError if `strict`."""

    def __init__(self, path: Path, *, strict: bool) -> None:
        self._path = path
        self._strict = strict
        self._given: set[str] = set()

    def once(self, key: str, message: str, *, stacklevel: int = 6) -> None:
        """Warn unless there was a warning under the same key."""
        if key in self._given:
            return
        self._given.add(key)
        if self._strict:
            raise ValueError(f"{self._path}: {message}")
        self.warn(message, stacklevel=stacklevel + 1)

    def warn(self, message: str, *, stacklevel: int = 4) -> None:
        """Warn, whether `strict` or not."""
        warnings.warn(f"rankscope, {self._path}: {message}", RuntimeWarning, stacklevel=stacklevel)


def listed(names: list[str], *, most: int = 5) -> str:
    """Return the first names of a list, quoted."""
    return ", ".join(repr(name) for name in names[:most]) + (" ..." if len(names) > most else "")
