"""Warnings of a tracker, each given once."""

import warnings
from pathlib import Path


class Notices:
    """Gives each warning once; what has gone wrong is raised as a ValueError if `strict`."""

    def __init__(self, path: Path, *, strict: bool) -> None:
        self._path = path
        self._strict = strict
        self._given: set[str] = set()

    def once(self, key: str, message: str, *, stacklevel: int = 6) -> None:
        """Warn unless there was a warning under the same key."""
        if self._strict and key not in self._given:
            self._given.add(key)
            raise ValueError(f"{self._path}: {message}")
        self.tell(key, message, stacklevel=stacklevel + 1)

    def tell(self, key: str, message: str, *, stacklevel: int = 6) -> None:
        """Warn unless there was a warning under the same key, whether `strict` or not.

        For what a training lacks, such as the gradient of a frozen weight: nothing has failed.
        """
        if key not in self._given:
            self._given.add(key)
            self.warn(message, stacklevel=stacklevel + 1)

    def warn(self, message: str, *, stacklevel: int = 4) -> None:
        """Warn, whether `strict` or not."""
        warnings.warn(f"rankscope, {self._path}: {message}", RuntimeWarning, stacklevel=stacklevel)


def listed(names: list[str], *, most: int = 5) -> str:
    """Return the first names of a list, quoted."""
    return ", ".join(repr(name) for name in names[:most]) + (" ..." if len(names) > most else "")
