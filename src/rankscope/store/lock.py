"""Locks: one writer per run, which the kernel sees to.

The locked file lies beside the run, so that it covers creation, and at the run's resolved path, so
that a symbolic link leads to the same file. The kernel frees the lock when its process ends, in
whatever way, and knows nothing of host names and process numbers, which containers share.

flock belongs to the opened file, as Linux's OFD locks do. macOS and sandboxes that lack OFD locks
have it, and NFS and SMB pass it on to the server. A POSIX lock would end when any descriptor of the
file is closed. A forked child inherits the opened file; it closes it at once, so that a data-loader
worker does not hold the run of a parent that died.
"""

import contextlib
import errno
import json
import os
import socket
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

if sys.platform != "win32":
    import fcntl

# What flock answers on a file system without locks.
NO_LOCKS = {errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.ENOLCK}


@dataclass(frozen=True)
class Lock:
    """The right to write one run."""

    path: Path
    descriptor: int
    pid: int
    in_kernel: bool

    @classmethod
    def take(cls, run: Path) -> "Lock":
        """Take the lock of `run`; ValueError while another writer holds it."""
        path = lock_path(run)
        while True:
            try:
                descriptor, in_kernel = _open_locked(path)
            except BlockingIOError as held:
                advice = f"; if that one is gone, remove {path}" if not held.errno else ""
                raise ValueError(_refusal(run, path) + advice) from None
            if not _is_at(path, descriptor):  # its last holder has removed it
                os.close(descriptor)
                continue
            lock = cls(path, descriptor, os.getpid(), in_kernel)
            _held.add(lock)
            lock._write_name()
            if not in_kernel:
                warnings.warn(
                    f"the file system of {path.parent} has no locks, so if this process is killed, "
                    f"{path} stays; remove it then to write {run} again",
                    RuntimeWarning,
                    stacklevel=2,
                )
            return lock

    def is_mine(self) -> bool:
        """Return False in a forked child, which must not end its parent's run."""
        return self.pid == os.getpid()

    def release(self) -> None:
        """Let another process take the lock; do nothing the second time, or in a forked child."""
        if not self.is_mine() or self not in _held:
            return
        _held.remove(self)
        if not self.in_kernel:  # Windows removes no file that is open
            os.close(self.descriptor)
        # A file system that has become read-only keeps the file, which says nothing without a lock.
        with contextlib.suppress(OSError):
            if not self.in_kernel or _is_at(self.path, self.descriptor):
                self.path.unlink()  # before the lock ends, or it could be another's by then
        if self.in_kernel:
            os.close(self.descriptor)

    def _write_name(self) -> None:
        """Write who holds the lock, for the message to others; a full disk does not matter."""
        name = json.dumps({"pid": self.pid, "host": socket.gethostname()}).encode()
        with contextlib.suppress(OSError):
            self.path.write_bytes(name)


def lock_path(run: Path) -> Path:
    """Return the path of the file whose lock guards `run`."""
    run = run.resolve()
    return run.with_name(f".{run.name}.lock")


def refuse_while_written(run: Path) -> None:
    """Raise ValueError while another process holds the lock of `run`."""
    path = lock_path(run)
    if path.exists() and not _is_held_here(path):
        with contextlib.suppress(OSError):  # a folder that cannot be written has no writer
            Lock.take(run).release()


def wait_until_free(run: Path, *, seconds: float) -> None:
    """Wait until nobody writes `run`, at most for `seconds`.

    A file server frees the locks of a machine that is lost, but only after a while.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            Lock.take(run).release()
        except ValueError:
            time.sleep(1.0)
        except FileNotFoundError:  # not even its folder is there
            return
        else:
            return


_held: set[Lock] = set()


def _close_inherited() -> None:
    for lock in _held:
        os.close(lock.descriptor)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_inherited)


def _open_locked(path: Path) -> tuple[int, bool]:
    """Open and lock the file at `path`; BlockingIOError while another has it.

    Return its descriptor, and whether the kernel holds the lock. Where it has none, to have
    created the file is the lock, and the error has no number.
    """
    created = False
    # A file that is open for writing would keep an administrator from making the disk read-only.
    # NFS wants it so.
    for access in (os.O_RDONLY, os.O_RDWR):
        descriptor, is_new = _open(path, access)
        created = created or is_new
        try:
            _lock(descriptor)
            return descriptor, True
        except OSError as failure:
            if failure.errno in NO_LOCKS and created:
                return descriptor, False
            os.close(descriptor)
            if failure.errno in NO_LOCKS:
                raise BlockingIOError from None
            if failure.errno != errno.EBADF or access == os.O_RDWR:
                raise
    raise AssertionError


def _lock(descriptor: int) -> None:
    """Take the kernel's lock; OSError where there is none, as on Windows."""
    if sys.platform == "win32":
        raise OSError(errno.ENOSYS, "no flock")
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _open(path: Path, access: int) -> tuple[int, bool]:
    """Open the file at `path`, and say whether it is new."""
    while True:
        try:
            return os.open(path, access | os.O_CREAT | os.O_EXCL, 0o666), True
        except FileExistsError:
            with contextlib.suppress(FileNotFoundError):  # removed since
                return os.open(path, access), False


def _is_at(path: Path, descriptor: int) -> bool:
    """Return whether `descriptor` is the file at `path`; NFS asks its server when one is opened."""
    try:
        other = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        return os.path.sameopenfile(descriptor, other)
    finally:
        os.close(other)


def _is_held_here(path: Path) -> bool:
    """Return whether a writer of this process holds the lock file at `path`."""
    return any(lock.path == path for lock in _held)


def _refusal(run: Path, path: Path) -> str:
    try:
        name = json.loads(path.read_bytes())
        writer = f"process {name['pid']} on {name['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        writer = "another process"
    if _is_held_here(path):
        writer = "this process"
    return f"{run} is being written by {writer}; close that tracker or scan, or choose another path"
