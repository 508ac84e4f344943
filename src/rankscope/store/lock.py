"""Locks: one writer per run. A file beside the run names the process that writes it.

The lock lies beside the run, not inside, so that it covers creation and a copied run has no lock.
flock would not do: cluster and cloud file systems often lack it, and a forked data-loader worker
would keep it alive.
"""

import json
import os
import socket
import time
from dataclasses import asdict, dataclass
from pathlib import Path

# Longest time in seconds that a process takes between creating a file and writing into it.
PATIENCE = 5.0


@dataclass(frozen=True)
class Holder:
    """A process; its start time tells it from a later one with the same id."""

    pid: int
    host: str
    started: str | None

    @classmethod
    def me(cls) -> "Holder":
        return cls(os.getpid(), socket.gethostname(), _start_time(os.getpid()))

    def may_be_running(self) -> bool:
        if self.host != socket.gethostname() or os.name != "posix":
            return True  # there is no harmless way to find out
        if Path("/proc/self/stat").exists():
            return self.started == _start_time(self.pid)
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True


def _start_time(pid: int) -> str | None:
    """Return the clock ticks from boot to the start of a living process, if there is a /proc."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *fields = stat.rpartition(")")[2].split()
    return None if state in "ZX" else fields[18]  # a zombie no longer writes


@dataclass(frozen=True)
class Lock:
    """The right to write one run."""

    path: Path
    holder: Holder

    @classmethod
    def take(cls, run: Path) -> "Lock":
        """Take the lock of `run`; ValueError while another writer holds it."""
        lock = cls(_path(run), Holder.me())
        while True:
            try:
                file = lock.path.open("x")
            except FileExistsError:
                _remove_if_stale(lock.path, run)
                continue
            try:
                with file:
                    json.dump(asdict(lock.holder), file)
            except OSError:
                lock.release()
                raise
            return lock

    def is_mine(self) -> bool:
        """Return False in a forked child, which must not end its parent's run."""
        return self.holder.pid == os.getpid()

    def release(self) -> None:
        """Let another process take the lock."""
        if self.is_mine():
            self.path.unlink(missing_ok=True)


def forget(run: Path, holder: Holder) -> None:
    """Remove the lock that `holder` left on `run`, if you know that this process is gone.

    For a process of another machine, the lock itself cannot tell.
    """
    if _read(_path(run)) == holder:
        _path(run).unlink(missing_ok=True)


def _path(run: Path) -> Path:
    return run.with_name(f".{run.name}.lock")


def _remove_if_stale(path: Path, run: Path) -> None:
    """Remove the lock of a process that is gone.

    A second file lets one process at a time look and remove. Otherwise the slower of two could
    remove the fresh lock of the faster.
    """
    guard = path.with_name(path.name + ".check")
    try:
        guard.open("x").close()
    except FileExistsError:
        if _age(guard) > PATIENCE:
            guard.unlink(missing_ok=True)
        time.sleep(0.01)
        return
    try:
        holder = _read(path)
        if holder is not None and holder.may_be_running():
            raise ValueError(
                f"{run} is being written by process {holder.pid} on {holder.host}; stop it or "
                f"choose another path (if that process is gone, remove {path})"
            )
        if holder is not None or _age(path) > PATIENCE:
            path.unlink(missing_ok=True)
    finally:
        guard.unlink(missing_ok=True)
    if path.exists():
        time.sleep(0.05)  # a new lock, whose holder is about to write its name


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _read(path: Path) -> Holder | None:
    """Return the holder of the lock; None if it is gone or has no name in it yet."""
    try:
        return Holder(**json.loads(path.read_text()))
    except (FileNotFoundError, json.JSONDecodeError):
        return None
