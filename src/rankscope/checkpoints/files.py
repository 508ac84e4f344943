"""Files of a checkpoint, read by position into buffers of our own.

Nothing is mapped into memory: a mapped file that is cut short kills the process.
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

StrPath = str | os.PathLike[str]

# A pipe is not waited for. Windows has other flags.
OPEN = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
OPEN |= getattr(os, "O_BINARY", 0)

AT_ONCE = 2**30  # Linux reads at most 2 GiB in one call


@runtime_checkable
class File(Protocol):
    """A file of known size that is read by position; safe to use from several threads."""

    @property
    def name(self) -> str:
        """Name for messages."""

    @property
    def size(self) -> int:
        """Number of bytes."""

    def read_into(self, buffer: memoryview, offset: int) -> None:
        """Fill the buffer with the bytes at `offset`; ValueError if the file ends before."""


@dataclass(frozen=True)
class LocalFile:
    """A file on disk, opened anew for each read, so that thousands of shards need no handles."""

    path: Path
    size: int
    identity: tuple[int, int]

    @classmethod
    def at(cls, path: Path) -> "LocalFile":
        """Return the file, after a look at its size; a pipe, device or folder is refused."""
        descriptor, status = _opened(path)
        os.close(descriptor)
        return cls(path, status.st_size, (status.st_dev, status.st_ino))

    @property
    def name(self) -> str:
        return str(self.path)

    def read_into(self, buffer: memoryview, offset: int) -> None:
        descriptor, status = _opened(self.path)
        try:
            if (status.st_dev, status.st_ino) != self.identity or status.st_size < self.size:
                raise ValueError(f"{self.name} changed while it was read; read it again")
            read_fully(descriptor, buffer, offset, self.name)
        finally:
            os.close(descriptor)


def read_fully(descriptor: int, buffer: memoryview, offset: int, name: str) -> None:
    """Fill the buffer from an open file; a short read is repeated, an early end is an error."""
    position = 0
    while position < len(buffer):
        count = _read_once(descriptor, buffer[position : position + AT_ONCE], offset + position)
        if count == 0:
            raise ValueError(
                f"{name} is damaged: it ends at byte {offset + position}, in the middle of a "
                "tensor; fetch it again"
            )
        position += count


def _read_once(descriptor: int, buffer: memoryview, offset: int) -> int:
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [buffer], offset)
    os.lseek(descriptor, offset, os.SEEK_SET)  # the descriptor is this call's own
    data = os.read(descriptor, len(buffer))
    buffer[: len(data)] = data
    return len(data)


def _opened(path: Path) -> tuple[int, os.stat_result]:
    try:
        # Opening a device can have effects, and the file may change after the first look.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ValueError(f"{str(path)!r} is not a file")
        descriptor = os.open(path, OPEN)
    except OSError as failure:
        reason = failure.strerror or type(failure).__name__
        raise ValueError(f"{str(path)!r} cannot be read: {reason}") from None
    except ValueError as failure:  # a name with a null byte
        raise ValueError(str(failure).replace("\0", "?")) from None
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode):
        return descriptor, status
    os.close(descriptor)
    raise ValueError(f"{str(path)!r} is not a file")


def read_bytes(file: File, offset: int, count: int) -> bytes:
    """Return `count` bytes at `offset`; ValueError if the file does not have them."""
    if offset < 0 or count < 0 or offset + count > file.size:
        raise ValueError(
            f"{file.name} is damaged: it has {file.size} bytes, and {count} are expected at "
            f"{offset}; fetch it again"
        )
    buffer = bytearray(count)
    file.read_into(memoryview(buffer), offset)
    return bytes(buffer)


@dataclass(frozen=True)
class Part:
    """A range of a file, read as a file of its own."""

    file: File
    start: int
    size: int

    @property
    def name(self) -> str:
        return self.file.name

    def read_into(self, buffer: memoryview, offset: int) -> None:
        if offset < 0 or offset + len(buffer) > self.size:
            raise ValueError(f"{self.name} is damaged: a tensor reaches beyond its part of it")
        self.file.read_into(buffer, self.start + offset)


def inside(folder: Path, name: str) -> Path:
    """Return the path of a file that must lie in `folder`.

    A link may lead to another file of the folder, or from a snapshot of the hub's cache to the
    blobs beside the snapshots.
    """
    plain = name and name not in (".", "..") and not set(name) & set("/\\\0:")
    if not plain:
        raise ValueError(
            f"{folder}: {name[:80]!r} is no plain file name, and nothing outside the folder is read"
        )
    path = folder / name
    try:
        target, home = path.resolve(), folder.resolve()
    except (OSError, RuntimeError):  # a link to itself
        raise ValueError(f"{str(path)!r} cannot be read: its link leads nowhere") from None
    homes = [home]
    if home.parent.name == "snapshots":
        homes.append(home.parent.parent / "blobs")
    if not any(target.is_relative_to(allowed) for allowed in homes):
        raise ValueError(
            f"{str(path)!r} is a link that leads outside its folder; pass the file it leads to"
        )
    return path


def printable(text: str) -> str:
    """Return a text of one line that a terminal can show, whatever a file has put into it."""
    return "".join(c if c.isprintable() else "?" for c in text)[:900]
