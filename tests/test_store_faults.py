"""Real faults: killed writers, full and read-only disks, a failure at every step of a commit.

Acknowledged means committed: every snapshot whose `append` returned is there, at most one more is,
and whoever reads meanwhile sees whole snapshots only.
"""

import contextlib
import errno
import multiprocessing
import os
import random
import resource
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from known_run import CHUNK, append, check, create, extend, write, write_until_killed
from rankscope import store
from rankscope.store import Writer, files
from tiny_disk import tmpfs

# A server that has imported everything once, and from which each writer is forked.
context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["known_run"])


def write_and_kill(path: Path, *, after_commit: bool, seconds: float) -> int | None:
    """Kill a writer some time after its start or first commit; return its last known step."""
    ours, theirs = context.Pipe(duplex=False)
    writer = context.Process(target=write_until_killed, args=(path, theirs))
    writer.start()
    theirs.close()
    acknowledged = ours.recv() if after_commit else None
    time.sleep(seconds)
    writer.kill()
    writer.join()
    with contextlib.suppress(EOFError):
        while True:
            acknowledged = ours.recv()
    ours.close()
    return acknowledged


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """While inside, another thread reads the run at `path`; afterwards nothing wrong was seen."""
    stop = threading.Event()

    def read() -> list[int]:
        lengths = []
        while not stop.is_set():
            if path.exists():
                lengths.append(check(store.open(path)))
            time.sleep(0.01)  # leaves the writers some of the machine
        return lengths

    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(read)
        try:
            yield
        finally:
            stop.set()
    lengths = reader.result()
    assert len(set(lengths)) > 1
    assert lengths == sorted(lengths)


@pytest.mark.parametrize("kills", [8, pytest.param(50, marks=pytest.mark.slow)])
def test_killed_at_random_moments(
    tmp_path: Path, kills: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(Path(__file__).parent)
    monkeypatch.setenv("PYTHONPATH", folder, prepend=os.pathsep)  # where the server looks
    path = tmp_path / "run"
    moments = random.Random(kills)
    snapshots = 0
    with reading(path):
        for kill in range(kills):
            # Every third may die before its first commit: while it creates the run or resumes it.
            last = write_and_kill(path, after_commit=kill % 3 > 0, seconds=moments.uniform(0, 0.1))
            acknowledged = snapshots if last is None else last + 1
            snapshots = check(xr.open_zarr(path)) if path.exists() else 0
            assert snapshots in (acknowledged, acknowledged + 1)
    with Writer.resume(path) as writer:
        append(writer, snapshots)
        assert not list(path.rglob("*.partial"))
    assert store.open(path).sizes["step"] == snapshots + 1


class Crash(BaseException):
    """Stands for the end of the process: nothing cleans up after it."""


@contextlib.contextmanager
def failing(call: int | None, failure: BaseException | None = None) -> Iterator[list[Path]]:
    """Make replacement number `call` of a file fail; yield the files that are replaced."""
    original = os.replace
    replaced: list[Path] = []

    def replace(source: Path, target: Path) -> None:
        replaced.append(target)
        if len(replaced) - 1 == call:
            raise failure or AssertionError
        original(source, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", replace)
        yield replaced


def test_any_step_of_creating_may_crash(tmp_path: Path) -> None:
    with failing(None) as replaced:
        writer = create(tmp_path / "whole")
    writer.close()
    for call in range(len(replaced)):
        path = tmp_path / f"run{call}"
        with failing(call, Crash()), pytest.raises(Crash):
            create(path)
        assert not path.exists()
        with create(path) as writer:
            append(writer, 0)
        assert check(store.open(path)) == 1
    assert sum(1 for _ in tmp_path.glob(".*")) == 0


def test_any_step_of_a_commit_may_fail(tmp_path: Path) -> None:
    path = tmp_path / "run"
    failures = 0
    with create(path) as writer:
        for step in range(24):
            with failing(step, OSError(errno.ENOSPC, "no space left")):
                for commit in (append, extend):
                    try:
                        commit(writer, step)
                    except OSError:
                        failures += 1
                        assert check(store.open(path)) == step + (commit is extend)
                        commit(writer, step)
            assert check(store.open(path)) == step + 1
    assert failures > 2 * CHUNK


def test_any_step_of_a_commit_may_crash(tmp_path: Path) -> None:
    path = tmp_path / "run"
    writer = create(path)
    crashes = 0
    for step in range(24):
        for commit in (append, extend):
            try:
                with failing(step, Crash()):
                    commit(writer, step)
            except Crash:
                crashes += 1
                writer.close()
                writer = Writer.resume(path)
            axis, rows = ("step", step + 1) if commit is append else ("train_step", 10 * step + 10)
            if len(writer.positions(axis)) < rows:
                commit(writer, step)
            assert check(store.open(path)) == step + 1
    assert crashes > 2 * CHUNK
    writer.close()


def go_back(writer: Writer, step: int = 2) -> None:
    """Go back to `step`, before which there are as many training steps, and write it anew."""
    writer.rewind(step)
    rows = np.arange(step, 10 * step + 10)
    writer.extend("train_step", rows, {"every": rows / 4})  # waits for the snapshot
    append(writer, step)


def test_any_step_of_going_back_may_crash(tmp_path: Path) -> None:
    """Readers see the old rows or the new ones; a reader from before sees the old ones."""
    with create(tmp_path / "run") as writer:
        write(writer, range(13))
        shutil.copytree(tmp_path / "run", tmp_path / "whole")
        with failing(None) as replaced:
            go_back(writer)
    assert check(store.open(tmp_path / "run" / "dropped" / "1")) == 13
    for call in range(len(replaced)):
        path = tmp_path / f"run{call}"
        shutil.copytree(tmp_path / "whole", path)
        writer = Writer.resume(path)
        early = store.open(path)
        with contextlib.suppress(Crash), failing(call, Crash()):
            go_back(writer)
        writer._lock.release()  # as the end of the process does
        assert check(early) == 13
        committed = check(store.open(path))
        assert committed == (3 if (path / "zarr.json").read_bytes() != root(tmp_path) else 13)
        with Writer.resume(path) as writer:
            assert len(writer.steps) == committed
            assert len(writer.positions("train_step")) == 10 * committed
            assert check(xr.open_zarr(path)) == committed  # with no help of ours
            write(writer, range(committed, 14))
        assert check(store.open(path)) == 14
        assert check(early) == 13 or committed == 13
        assert os.listdir(path / "dropped") == (["1"] if committed == 3 else [])


def root(folder: Path) -> bytes:
    return (folder / "whole" / "zarr.json").read_bytes()


def test_going_back_again_keeps_each_run(tmp_path: Path) -> None:
    path = tmp_path / "run"
    early = []
    with create(path) as writer:
        for steps in (13, 9, 5):
            write(writer, range(len(writer.steps), steps))
            early.append((steps, store.open(path)))
            go_back(writer, 1)
    assert check(store.open(path)) == 2
    for number, (steps, dataset) in enumerate(early, 1):
        assert check(dataset) == steps
        assert check(store.open(path / "dropped" / str(number))) == steps
    assert store.open(path).attrs["dropped"] == 3


def test_rows_that_wait_are_committed_on_closing(tmp_path: Path) -> None:
    with create(tmp_path / "run") as writer:
        write(writer, range(3))
        writer.rewind(2)
        assert check(store.open(tmp_path / "run")) == 3
    assert check(store.open(tmp_path / "run")) == 3  # nothing new came
    with Writer.resume(tmp_path / "run") as writer:
        writer.rewind(20)
        extend(writer, 2)
        writer.set_attrs({"seed": 1})
        assert check(store.open(tmp_path / "run")) == 3
    ds = store.open(tmp_path / "run")
    assert (check(ds), ds.attrs["seed"], ds.attrs["dropped"]) == (3, 1, 1)


def test_a_file_system_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(source: Path, target: Path) -> None:
        raise OSError(errno.ENOTSUP, "no links")

    monkeypatch.setattr(os, "link", link)
    writer = create(tmp_path / "run")
    write(writer, range(5))
    with contextlib.suppress(Crash), failing(3, Crash()):
        go_back(writer)
    writer._lock.release()  # as the end of the process does
    with Writer.resume(tmp_path / "run") as writer:
        assert check(xr.open_zarr(tmp_path / "run")) == 5
        go_back(writer)
    assert check(store.open(tmp_path / "run")) == 3
    assert check(store.open(tmp_path / "run" / "dropped" / "1")) == 5


def test_files_of_the_user_in_a_run_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with create(path) as writer:
        write(writer, range(3))
        (path / "checkpoint.pt").write_text("early")
        writer.rewind(1)
        writer.keep_dropped()
        (path / "checkpoint.pt").unlink()
        (path / "checkpoint.pt").write_text("late")
    assert (path / "checkpoint.pt").read_text() == "late"  # the run went back, the file did not
    with Writer.resume(path) as writer:
        go_back(writer, 1)
    assert not (path / "dropped" / "1" / "checkpoint.pt").exists()
    with pytest.raises(ValueError, match=r"'checkpoint.pt' beside the run.* would remove"):
        create(path, overwrite=True)
    assert (path / "checkpoint.pt").read_text() == "late"
    (path / "checkpoint.pt").unlink()
    create(path, overwrite=True).close()


@pytest.mark.parametrize("exchange", [True, False])
def test_any_step_of_overwriting_may_crash(
    tmp_path: Path, exchange: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not exchange:
        monkeypatch.setattr("rankscope.store.exchange._exchanged", lambda *paths: False)
    with create(tmp_path / "whole") as writer:
        write(writer, range(3))
    with failing(None) as replaced:
        writer = create(tmp_path / "new")
    writer.close()
    lengths = []
    for call in range(len(replaced) - 2, len(replaced) + 2):
        path = tmp_path / f"run{call}"
        shutil.copytree(tmp_path / "whole", path)
        with contextlib.suppress(Crash), failing(call, Crash()):
            writer = create(path, overwrite=True)
        writer.close()
        if not exchange and not path.exists():
            path = path.with_name(f".{path.name}.replaced")  # between two renames
        lengths.append(check(store.open(path)))
        with create(tmp_path / f"run{call}", overwrite=True) as writer:
            write(writer, range(1))
        assert check(store.open(tmp_path / f"run{call}")) == 1
    assert lengths == sorted(lengths, reverse=True) and set(lengths) == {3, 0}
    assert not list(tmp_path.glob(".*.partial")) and not list(tmp_path.glob(".*.lock"))


def test_overwriting_through_a_link(tmp_path: Path) -> None:
    with create(tmp_path / "run") as writer:
        write(writer, range(3))
    (tmp_path / "link").symlink_to("run")
    create(tmp_path / "link", overwrite=True).close()
    assert (tmp_path / "link").is_symlink()
    assert check(store.open(tmp_path / "run")) == 0
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").touch()
    with pytest.raises(ValueError, match="is not a run"):
        create(tmp_path / "notes", overwrite=True)


@contextlib.contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """No file of this process may grow beyond `size` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk(tmp_path: Path) -> None:
    with tmpfs(tmp_path, "256k"):
        path, ballast = tmp_path / "run", tmp_path / "ballast"
        writer = create(path)
        ballast.write_bytes(bytes(100_000))
        with pytest.raises(OSError, match="No space left") as failure:
            write(writer, range(10_000))
        assert failure.value.errno == errno.ENOSPC
        committed = check(store.open(path))
        assert committed > 0
        with pytest.raises(OSError, match="No space left"):
            create(tmp_path / "another")
        assert sorted(os.listdir(tmp_path)) == [".run.lock", "ballast", "run"]
        ballast.unlink()
        for behind in range(len(writer.positions("train_step")) // 10, committed):
            extend(writer, behind)
        write(writer, range(committed, committed + 1))
        assert check(store.open(path)) == committed + 1
        writer.close()


def test_a_disk_that_becomes_read_only(tmp_path: Path) -> None:
    with tmpfs(tmp_path, "1m") as remount:
        with create(tmp_path / "run") as writer:
            write(writer, range(1))
            remount("ro")
            with pytest.raises(OSError, match="Read-only"):
                append(writer, 1)
            with pytest.raises(OSError, match="Read-only"):
                create(tmp_path / "another")
            assert check(store.open(tmp_path / "run")) == 1
            remount("rw")
            append(writer, 1)
        assert check(store.open(tmp_path / "run")) == 2


@pytest.mark.parametrize("size", [0, 100, 400, 2000])
def test_files_that_may_not_grow(tmp_path: Path, size: int) -> None:
    with create(tmp_path / "run") as writer:
        write(writer, range(1))
        with file_size_limit(size), pytest.raises(OSError, match="too large"):
            append(writer, 1)
        assert check(store.open(tmp_path / "run")) == 1
        append(writer, 1)
    with file_size_limit(size), pytest.raises(OSError, match="too large"):
        create(tmp_path / "another")
    assert check(store.open(tmp_path / "run")) == 2
    assert os.listdir(tmp_path) == ["run"]


def test_a_path_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "run", tmp_path / "file" / "deeper" / "run"):
        with pytest.raises(OSError, match="file"):
            create(path)


def test_durable_commits_reach_the_disk_before_they_are_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each chunk is synced before it gets its name, all of them before the root does."""
    events: list[str] = []
    sync, replace = os.fsync, os.replace

    def watched_sync(descriptor: int) -> None:
        events.append(f"sync {Path(os.readlink(f'/proc/self/fd/{descriptor}')).name}")
        sync(descriptor)

    def watched_replace(source: Path, target: Path) -> None:
        events.append(f"replace {source.name}")
        replace(source, target)

    with Writer.create(
        tmp_path / "run", coords={}, variables={"x": store.Variable(("step",))}, durable=True
    ) as writer:
        monkeypatch.setattr(files.os, "fsync", watched_sync)
        monkeypatch.setattr(files.os, "replace", watched_replace)
        writer.append(0, {"x": 1})
    assert events[:9] == [
        "sync c.0.partial",
        "replace c.0.partial",
        "sync step",
        "sync c.0.partial",
        "replace c.0.partial",
        "sync x",
        "sync zarr.json.partial",
        "replace zarr.json.partial",
        "sync run",
    ]
