"""Progress of a scan on stderr: tensors, bytes per second, time left."""

import shutil
import sys
import time
from pathlib import Path
from typing import Protocol, TextIO, runtime_checkable

SECONDS = 0.5  # between two lines on a terminal
LARGE = 1e8  # bytes from which on sizes are shown in GB


@runtime_checkable
class Progress(Protocol):
    """Receiver of what a scan has done."""

    def start(self, source: str, tensors: int, size: int, *, remaining: int = 0) -> None:
        """Begin a checkpoint of so many tensors and bytes; `remaining` others come after it."""

    def advance(self, tensors: int, size: int) -> None:
        """Count tensors and bytes that are measured."""

    def finish(self) -> None:
        """End a checkpoint."""


class Silent:
    """Progress that nobody sees."""

    def start(self, source: str, tensors: int, size: int, *, remaining: int = 0) -> None:
        pass

    def advance(self, tensors: int, size: int) -> None:
        pass

    def finish(self) -> None:
        pass


class Lines:
    """Progress on a terminal, in one line that is written again; silent elsewhere."""

    def __init__(self, stream: TextIO | None = None, *, always: bool = False) -> None:
        self._stream = stream or sys.stderr
        self._shown = always or self._stream.isatty()
        self._width = 0
        self._source, self._tensors, self._size, self._remaining = "", 0, 0, 0
        self._done, self._read = 0, 0
        self._began = self._last = 0.0

    def start(self, source: str, tensors: int, size: int, *, remaining: int = 0) -> None:
        self._source, self._tensors, self._size = Path(source).name, tensors, size
        self._remaining = remaining
        self._done = self._read = 0
        self._began = time.monotonic()

    def advance(self, tensors: int, size: int) -> None:
        self._done += tensors
        self._read += size
        now = time.monotonic()
        if self._shown and now - self._last >= SECONDS:
            self._last = now
            room = shutil.get_terminal_size().columns - 1  # a line that wraps cannot be replaced
            self._write(self.line(now - self._began)[-room:])

    def finish(self) -> None:
        if self._shown and self._width:
            self._write("")

    def line(self, seconds: float) -> str:
        """Return the line after so many seconds; the others are taken to be of the same size."""
        speed = self._read / max(seconds, 1e-9)
        left = (self._size * (1 + self._remaining) - self._read) / speed if speed else 0.0
        unit, name = (1e9, "GB") if self._size >= LARGE else (1e6, "MB")
        others = f", {self._remaining} more to scan" if self._remaining else ""
        return (
            f"{self._source}: {self._done} of {self._tensors} tensors, "
            f"{self._read / unit:.2f} of {self._size / unit:.2f} {name}, "
            f"{speed / unit:.2f} {name}/s{others}, {left:.0f} s left"
        )

    def _write(self, line: str) -> None:
        self._stream.write("\r" + line.ljust(self._width) + ("" if line else "\r"))
        self._stream.flush()
        self._width = len(line)
