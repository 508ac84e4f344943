"""Places that hold the files of a run: a folder, a zip archive, a URL."""

import os
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO, FileIO
from pathlib import Path
from typing import Any

from rankscope.store.chunk import Damage
from rankscope.store.names import kept_path

File = FileIO | BytesIO

URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # Path() makes one slash of two

# A pipe is not waited for. Windows has other flags.
OPEN = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
OPEN |= getattr(os, "O_BINARY", 0)

# What zipfile raises on archives that are damaged.
DAMAGED_ZIP = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, RuntimeError),
    *(NotImplementedError, OverflowError, UnicodeError),
)


def local_path(path: str | Path) -> Path:
    """Return `path` with `~` expanded; ValueError if it is a URL, where nothing can be written."""
    if URL.match(str(path)):
        raise ValueError(
            f"{path} is a URL, and runs are written to local folders; give a folder, and copy the "
            "run when it is closed"
        )
    return Path(path).expanduser()


@dataclass(frozen=True)
class Folder:
    """A run in a folder. A pipe or a device in place of a file is refused, not waited for.

    attrs: attributes of the run when it was opened; if it has gone back to an earlier step since,
        its files of that time are read.
    within: a folder that links must not lead out of.
    """

    path: Path
    attrs: Mapping[str, Any] | None = None
    within: Path | None = None

    def __str__(self) -> str:
        return str(self.path)

    def open(self, name: str, *, most_bytes: int) -> File | None:
        """Return the file, or None if there is none; Damage if it is no file of that size."""
        if self.attrs is None:
            return self._open(self.path / name, most_bytes)
        # The run is kept before any of its files changes, and put back before the kept one goes.
        archive = kept_path(self.path, self.attrs)
        while True:
            is_kept, file, damage = archive.exists(), None, None
            try:
                file = self._open(self.path / name, most_bytes)
            except Damage as failure:
                damage = failure
            if not is_kept and not archive.exists():
                if damage is not None:
                    raise damage
                return file
            if file is not None:
                file.close()
            file = self._open(archive / name, most_bytes)
            if file is not None or archive.exists():
                return file

    def _open(self, path: Path, most_bytes: int) -> File | None:
        if self.within is not None and not leads_into(path, self.within):
            raise Damage("it is a link to a file outside")
        return _open(path, most_bytes)


def leads_into(path: Path, folder: Path) -> bool:
    """Return whether `path`, with all links followed, is in `folder`, which has none."""
    real = os.path.realpath(path)
    return real == str(folder) or real.startswith(os.path.join(folder, ""))


def _open(path: Path, most_bytes: int) -> File | None:
    try:
        # Opening a device can have effects, and the file may change after the first look.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise Damage("it is not a regular file")
        file = FileIO(os.open(path, OPEN))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as failure:
        raise Damage(f"it cannot be read: {failure.strerror}") from None
    status = os.fstat(file.fileno())
    if stat.S_ISREG(status.st_mode) and status.st_size <= most_bytes:
        return file
    file.close()
    raise Damage(f"it has {status.st_size} bytes, more than the {most_bytes} of its chunks")


@dataclass(frozen=True)
class Archive:
    """A run in a zip file, which is open while it is read."""

    path: Path
    archive: zipfile.ZipFile

    def __str__(self) -> str:
        return str(self.path)

    def open(self, name: str, *, most_bytes: int) -> File | None:
        """Return the file, or None if there is none; Damage if it is no file of that size."""
        try:
            entry = self.archive.getinfo(name)
            if entry.file_size > most_bytes:
                raise Damage(
                    f"it unpacks to {entry.file_size} bytes, more than the {most_bytes} of its "
                    "chunks"
                )
            if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise Damage("it is compressed in a way that rankscope does not write")
            with self.archive.open(entry) as file:  # its checksum is compared at the end
                data = file.read(entry.file_size + 1)
        except KeyError:
            return None
        except DAMAGED_ZIP as damage:
            raise Damage(f"the archive cannot be read there: {damage}".rstrip(".")) from None
        if len(data) != entry.file_size:
            raise Damage("it is cut short")
        return BytesIO(data)


@dataclass(frozen=True)
class ArchiveFile:
    """A run in a zip file that is opened for each file that is read, and not held open."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    def open(self, name: str, *, most_bytes: int) -> File | None:
        """Return the file, or None if there is none; Damage if it is no file of that size."""
        try:
            with zipfile.ZipFile(self.path) as archive:
                return Archive(self.path, archive).open(name, most_bytes=most_bytes)
        except DAMAGED_ZIP as damage:
            raise Damage(f"the archive cannot be read: {damage}".rstrip(".")) from None


@dataclass(frozen=True)
class Remote:
    """A run at a URL that fsspec can read."""

    url: str
    files: Any

    @classmethod
    def at(cls, url: str) -> "Remote":
        try:
            import fsspec  # type: ignore[import-untyped]

            return cls(url, fsspec.get_mapper(url))
        except (ImportError, ValueError) as failure:
            raise ValueError(f"{url} cannot be opened: {failure}; copy the run here") from None

    def __str__(self) -> str:
        return self.url

    def open(self, name: str, *, most_bytes: int) -> File | None:
        """Return the file, or None if there is none; Damage if it is no file of that size."""
        try:
            size = self.files.fs.size(f"{self.files.root}/{name}")
            if size is not None and size > most_bytes:
                raise Damage(f"it has {size} bytes, more than the {most_bytes} of its chunks")
            data = self.files[name]
        except Damage:
            raise
        except (FileNotFoundError, KeyError):
            return None
        except Exception as failure:  # each protocol has exceptions of its own
            raise Damage(f"it cannot be read: {failure}") from None
        if len(data) > most_bytes:
            raise Damage(f"it has {len(data)} bytes, more than the {most_bytes} of its chunks")
        return BytesIO(data)


Source = Folder | Archive | ArchiveFile | Remote
