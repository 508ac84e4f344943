import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import ray
import torch

from lab.toy_runs import VARIABLES, Decay, Killed, Log
from lab.toy_runs import stored as toy_runs
from rankscope import store
from rankscope.lab.running import ray as ray_execution
from rankscope.lab.running.processes import throttled
from rankscope.lab.running.ray import Mailbox, execute
from rankscope.lab.running.run_key import Progress

SOON = 120.0  # seconds; on a busy machine all this is slow, but what fails would take for ever


@dataclass(frozen=True)
class Logged:
    """Notes each of its lives in a file; waits for its death in those before the last."""

    book: Path
    lives: int = 1

    def execute(self, path: Path, *, seed: int, progress: Progress) -> None:
        with self.book.open("a") as book:
            book.write(f"{os.getpid()}\n")
        if not path.exists():
            born = {"born": os.getpid()}
            store.Writer.create(path, coords={}, variables=VARIABLES, attrs=born).close()
        with store.Writer.resume(path) as writer:
            if len(self.pids()) < self.lives:
                progress(0.5)
                self.book.with_suffix(".waits").touch()
                time.sleep(SOON)
            environment = os.environ.get("OMP_NUM_THREADS")
            writer.set_attrs({"threads": torch.get_num_threads(), "environment": environment})

    def forget(self, path: Path) -> None:
        """Keeps nothing beside its store."""

    def pids(self) -> list[int]:
        return [int(line) for line in self.book.read_text().splitlines()]


def once(condition: Callable[[], bool], act: Callable[[], object]) -> threading.Thread:
    """A thread that acts when the condition is met."""

    def wait() -> None:
        end = time.monotonic() + SOON
        while not condition() and time.monotonic() < end:
            time.sleep(0.05)
        act()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def of_ray() -> set[str]:
    """Processes of Ray and its workers, by number and name."""
    processes = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if command.startswith("ray::") or "/ray/" in command:
            processes.add(f"{folder.name} {command}")
    return processes


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """A Ray of our own, of two cores, which leaves nothing behind."""
    before = of_ray()
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("RAY_ADDRESS", raising=False)
        tests = str(Path(__file__).parents[2])  # where workers find `lab`
        patch.setenv("PYTHONPATH", tests, prepend=os.pathsep)
        with ray_execution._connected(None, jobs=2, gpus_per_run=0.0):
            yield
    assert not ray.is_initialized()
    end = time.monotonic() + SOON
    while of_ray() - before and time.monotonic() < end:
        time.sleep(0.1)
    assert of_ray() <= before


@pytest.mark.usefixtures("cluster")
def test_lost_workers_are_replaced_and_failures_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One raises, one is killed and lives again, one is killed in every life."""
    monkeypatch.setattr(ray_execution, "RETRIES", 1)
    monkeypatch.chdir(tmp_path)
    log, books = Log(), tmp_path / "books"
    books.mkdir()
    mortal, steady = Logged(books / "mortal", lives=2), Logged(books / "steady")
    broken = Decay(fails=(0,))
    stored = toy_runs(Path("out"), mortal, broken, Killed(), steady, Decay())  # a relative path
    waits = mortal.book.with_suffix(".waits")
    killer = once(waits.exists, lambda: os.kill(mortal.pids()[0], signal.SIGKILL))
    ended = {run.title: run for run in execute(stored, jobs=2, watcher=log)}
    killer.join()

    assert [run.state for run in stored] == [
        "whole", "interrupted", "interrupted", "whole", "whole"
    ]  # fmt: skip
    assert ended.keys() == {run.title for run in stored}
    assert all(ended[run.title].failure == run.failure for run in stored)
    assert stored[1].failure == "ArithmeticError: the loss is not a number"
    assert "WorkerCrashedError" in (stored[2].failure or "")
    first, second = mortal.pids()  # which goes on with what the first left, and its lock
    assert first != second and store.open(stored[0].path).attrs["born"] == first
    assert len(steady.pids()) == 1 and os.getpid() not in steady.pids()
    attrs = store.open(stored[3].path).attrs
    assert (attrs["threads"], attrs["environment"]) == (1, "1")

    starts = [title for what, title in log.events if what == "started"]
    assert sorted(starts) == sorted(run.title for run in stored)  # once, whatever became of them
    assert {run.title for run in stored if run.failure} == {
        title for what, title in log.events if what == "failed"
    }
    assert set(log.fractions[stored[0].title]) <= {0.0, 0.5}
    assert ray.is_initialized()


@pytest.mark.usefixtures("cluster")
def test_ctrl_c_ends_the_tasks_and_keeps_what_is_finished(tmp_path: Path) -> None:
    log, endless = Log(), Decay(steps=10**9)
    stored = toy_runs(tmp_path, Decay(), endless, endless)
    both = {run.title for run in stored[1:]}
    heard = signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupter = once(
        lambda: stored[0].state == "whole" and log.fractions.keys() >= both,
        lambda: signal.raise_signal(signal.SIGINT),
    )
    try:
        with pytest.raises(KeyboardInterrupt):
            execute(stored, jobs=2, watcher=log)
    finally:
        interrupter.join()
        signal.signal(signal.SIGINT, heard)
    assert [run.state for run in stored] == ["whole", "interrupted", "interrupted"]
    assert [run.failure for run in stored] == [None] * 3
    if heard is not signal.SIG_IGN:  # which the workers would have taken over, deaf to Ray's word
        assert not list(tmp_path.rglob("*.lock"))  # they had time to close their stores
    assert ray.is_initialized()


@pytest.mark.usefixtures("cluster")
def test_gpus_that_are_not_there_are_not_waited_for() -> None:
    with pytest.raises(ValueError, match="1000 GPUs, but this machine has"):
        ray_execution._require_gpus(1000.0)


def test_nothing_to_run_starts_no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(ray, "is_initialized")
    assert execute([], jobs=2, watcher=Log()) == []


@pytest.mark.parametrize(
    ("argument", "variable", "expected"),
    [(None, "", "local"), (None, "10.0.0.1:6379", "10.0.0.1:6379"), ("auto", "10.0.0.1:1", "auto")],
)
def test_the_argument_comes_before_the_environment(
    argument: str | None, variable: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, set[str]]] = []
    monkeypatch.setenv("RAY_ADDRESS", variable)
    monkeypatch.delenv("RAY_USAGE_STATS_ENABLED", raising=False)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "shutdown", lambda: calls.append(("shutdown", set())))
    monkeypatch.setattr(ray, "cluster_resources", dict)

    def init(address: str, **options: object) -> None:
        calls.append((address, set(options)))
        assert os.environ.get("RAY_USAGE_STATS_ENABLED") == ("0" if address == "local" else None)

    monkeypatch.setattr(ray, "init", init)
    with ray_execution._connected(argument, jobs=2, gpus_per_run=0.0):
        assert [address for address, _ in calls] == [expected]
        assert ("num_cpus" in calls[0][1]) == (expected == "local")  # a cluster has its own
    assert calls[-1][0] == "shutdown"
    assert "RAY_USAGE_STATS_ENABLED" not in os.environ


def test_progress_is_throttled_and_the_last_message_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    mailbox = Mailbox()
    progress = throttled(lambda step: mailbox.put("run", step), seconds=0.5)
    progress(0.1, "slow")
    progress(0.2)
    assert mailbox.empty() == {"run": (0.1, "slow")}
    assert mailbox.empty() == {}
    for fraction in (0.3, 1):
        now += 1.0
        progress(fraction)
    assert mailbox.empty() == {"run": (1.0, "")}


def test_a_restarted_run_knows_of_its_earlier_starts() -> None:
    mailbox = Mailbox()
    assert [mailbox.start(title) for title in ("run-0", "run-1", "run-0")] == [0, 0, 1]
