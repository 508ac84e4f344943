"""One writer at a time, whoever it is and whatever path it takes; none outlives its process."""

import contextlib
import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from known_run import append, create
from rankscope.store import Writer
from rankscope.store.lock import Lock, wait_until_free

# A process that takes a lock, says so and waits; a second argument makes it fork a child first.
HOLDER = """
import os, sys, time, warnings
from pathlib import Path
from rankscope.store.lock import Lock
try:
    lock = Lock.take(Path(sys.argv[1]))
except ValueError as refusal:
    print(refusal, flush=True)
    sys.exit(3)
warnings.simplefilter("ignore")
if len(sys.argv) > 2 and os.fork() == 0:
    time.sleep(100)
print("taken", os.getpid(), flush=True)
time.sleep(100)
"""


@contextlib.contextmanager
def holder(run: Path, *options: str, within: tuple[str, ...] = ()) -> Iterator[subprocess.Popen]:
    """Another process that holds the lock of `run`."""
    command = [*within, sys.executable, "-c", HOLDER, str(run), *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("taken")
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def is_free(run: Path) -> bool:
    try:
        Lock.take(run).release()
    except ValueError:
        return False
    return True


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with create(tmp_path / "run") as writer:
        with pytest.raises(ValueError, match="being written by this process; close"):
            Writer.resume(tmp_path / "run")
        with pytest.raises(
            ValueError, match="already holds a run of 0 snapshots; pass resume=True"
        ):
            create(tmp_path / "run")
        with pytest.raises(ValueError, match="being written by this process; close"):
            create(tmp_path / "run", overwrite=True)
    with pytest.raises(ValueError, match="closed"):
        append(writer, 0)
    Writer.resume(tmp_path / "run").close()
    assert os.listdir(tmp_path) == ["run"]


def test_another_process_is_named_and_its_death_frees_the_lock_at_once(tmp_path: Path) -> None:
    create(tmp_path / "run").close()
    with holder(tmp_path / "run", "fork") as process:  # its child does not keep the lock alive
        with pytest.raises(ValueError, match=f"being written by process {process.pid} on"):
            Writer.resume(tmp_path / "run")
        os.kill(process.pid, signal.SIGSTOP)
        assert not is_free(tmp_path / "run")  # it may go on at any time
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert is_free(tmp_path / "run")
    assert os.listdir(tmp_path) == ["run"]


def test_a_symbolic_link_leads_to_the_same_lock(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "link").symlink_to(tmp_path / "run")
    (tmp_path / "folder").symlink_to(tmp_path, target_is_directory=True)
    with create(tmp_path / "elsewhere" / "link"):  # the run itself is made where the link leads
        assert (tmp_path / "run" / "zarr.json").exists()
        for path in (tmp_path / "run", tmp_path / "elsewhere" / "link", tmp_path / "folder/run"):
            with pytest.raises(ValueError, match="being written"):
                Writer.resume(path)
    lock = Lock.take(tmp_path / "folder" / "run2")
    with pytest.raises(ValueError, match="being written"):
        create(tmp_path / "run2")
    lock.release()


@pytest.mark.parametrize("options", [("-p", "-f", "--mount-proc"), ("-U", "-r", "-p", "-f")])
def test_processes_of_two_containers_with_one_host_name(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    """In its own PID namespace each is process 1."""
    within = ("unshare", *options)
    if shutil.which("unshare") is None or subprocess.run([*within, "true"], check=False).returncode:
        pytest.skip("making a PID namespace needs privileges")
    with holder(tmp_path / "run", within=within):
        other = subprocess.run(
            [*within, sys.executable, "-c", HOLDER, str(tmp_path / "run")],
            capture_output=True,
            text=True,
            check=False,
        )
        assert other.returncode == 3 and "being written by process 1 on" in other.stdout
        assert not is_free(tmp_path / "run")
    wait_until_free(tmp_path / "run", seconds=60.0)  # until the kernel has ended the namespace
    assert is_free(tmp_path / "run")


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_neither_ends_the_run_nor_keeps_it(tmp_path: Path) -> None:
    writer = create(tmp_path / "run")
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(theirs)
        writer.close()
        os.read(ours, 1)  # until the parent is done
        os._exit(0)
    try:
        os.close(ours)
        append(writer, 0)
        assert not is_free(tmp_path / "run")
        writer.close()
        Writer.resume(tmp_path / "run").close()  # although the child is alive
    finally:
        os.close(theirs)
        assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("text", ["", "{", '{"pid": 1, "host": "h"}'])
@pytest.mark.parametrize("age", [-1e9, 1e9])
def test_a_file_without_a_lock_is_in_nobodys_way(tmp_path: Path, text: str, age: float) -> None:
    """Left by a process that was killed, whatever is in it and whatever its date."""
    file = tmp_path / ".run.lock"
    file.write_text(text)
    os.utime(file, (time.time() + age,) * 2)
    create(tmp_path / "run").close()
    assert os.listdir(tmp_path) == ["run"]


def test_of_many_at_once_one_gets_it(tmp_path: Path) -> None:
    """The file is removed on release, while others have it open already."""
    holders, most, together = 0, 0, threading.Lock()

    def take(_: int) -> int:
        nonlocal holders, most
        taken = 0
        for _ in range(300):
            with contextlib.suppress(ValueError):
                lock = Lock.take(tmp_path / "run")
                with together:
                    holders += 1
                    most = max(most, holders)
                with together:
                    holders -= 1
                lock.release()
                taken += 1
        return taken

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(take, range(4))) > 0
    assert most == 1
    assert os.listdir(tmp_path) == []


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOTSUP, "not supported")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.warns(RuntimeWarning, match=r"has no locks.*remove it then") as caught:
        lock = Lock.take(tmp_path / "run")
    assert len(caught) == 1
    with pytest.raises(ValueError, match=r"being written by this.*is gone, remove .*\.run\.lock"):
        Lock.take(tmp_path / "run")
    lock.release()
    lock.release()
    with pytest.warns(RuntimeWarning, match="has no locks"):
        Lock.take(tmp_path / "run").release()
    assert os.listdir(tmp_path) == []


def test_waiting_for_a_lost_machine_ends(tmp_path: Path) -> None:
    wait_until_free(tmp_path / "nowhere" / "run", seconds=100.0)
    wait_until_free(tmp_path / "run", seconds=100.0)
    lock = Lock.take(tmp_path / "run")
    wait_until_free(tmp_path / "run", seconds=0.01)
    lock.release()
