"""Running what is not there yet on a Ray cluster: one task per run, one core and thread each.

The nodes of a cluster must be able to import rankscope, and see the output folder and the data
under the same absolute paths as the machine that starts the runs. A run whose worker is lost is
started again and goes on from its own checkpoint, if it keeps one; a run that raises has failed.
"""

import logging
import os
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rankscope.lab.running.processes import THREADS, Ended, Step, Watcher, attempt, seldom
from rankscope.lab.running.stored_run import StoredRun
from rankscope.store.lock import Holder, forget

RETRIES = 3  # lives of a run after the first; those that lack of memory ended Ray counts apart
PROGRESS_EVERY = 0.5  # seconds between two messages of a run, and between two looks at them
OBJECT_MEMORY = 100 * 2**20  # bytes: what travels is a declaration and a few numbers
PATIENCE = 10.0  # seconds that cancelled runs have to close their stores


def execute(
    runs: Iterable[StoredRun],
    *,
    jobs: int | None,
    watcher: Watcher,
    gpus_per_run: float = 0.0,
    address: str | None = None,
) -> list[Ended]:
    """Execute `runs`, up to `jobs` at a time, by default as many as there is place for.

    gpus_per_run: 0.2 lets five runs share a GPU; Ray tells each run which one it sees.
    address: of a cluster; without it that of the environment variable RAY_ADDRESS, and without
        that a Ray of this machine alone, which is there as long as the runs are.
    """
    sent = [replace(run, path=run.path.absolute()) for run in runs]
    if not sent:
        return []
    with _connected(address, jobs=jobs, gpus_per_run=gpus_per_run):
        return _Sweep.begin(watcher, gpus_per_run=gpus_per_run).execute(sent, at_once=jobs)


@dataclass(frozen=True)
class _Sweep:
    """Runs under way on a cluster, and who is told about them."""

    watcher: Watcher
    task: Any
    mailbox: Any
    under_way: dict[Any, StoredRun] = field(default_factory=dict)
    started: set[str] = field(default_factory=set)

    @classmethod
    def begin(cls, watcher: Watcher, *, gpus_per_run: float) -> "_Sweep":
        task = ray.remote(
            num_cpus=1,
            num_gpus=gpus_per_run,
            max_retries=RETRIES,
            runtime_env={"env_vars": dict.fromkeys(THREADS, "1")},
        )
        # Beside the driver, so that no other node that is lost takes the mailbox along.
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        mailbox = ray.remote(Mailbox).options(num_cpus=0, scheduling_strategy=here)
        return cls(watcher, task(_execute_there), mailbox.remote())

    def execute(self, runs: list[StoredRun], *, at_once: int | None) -> list[Ended]:
        """Submit the runs in their order; returns them in the order in which they end."""
        waiting, ended = deque(runs), list[Ended]()
        try:
            while len(ended) < len(runs):
                while waiting and len(self.under_way) < (at_once or len(runs)):
                    stored = waiting.popleft()
                    self.under_way[self.task.remote(stored, self.mailbox)] = stored
                over, _ = ray.wait(list(self.under_way), timeout=PROGRESS_EVERY)
                self._pass_on_progress()
                ended += map(self._end, over)
        except BaseException:  # Ctrl-C above all
            self._cancel()
            raise
        return ended

    def _pass_on_progress(self) -> None:
        titles = {stored.title for stored in self.under_way.values()}
        steps: dict[str, Step] = ray.get(self.mailbox.empty.remote())
        for title in steps.keys() & titles:  # what was sent may arrive after the end of its run
            self._start(title)
            self.watcher.progressed(title, *steps[title])

    def _start(self, title: str) -> None:
        """Once only, though a run may have several lives."""
        if title not in self.started:
            self.started.add(title)
            self.watcher.started(title)

    def _end(self, task: Any) -> Ended:
        stored = self.under_way.pop(task)
        self._start(stored.title)
        try:
            ended: Ended = ray.get(task)
        except RayError as error:
            sentence = _sentence(error)
            for life in ray.get(self.mailbox.lives.remote(stored.title)):
                forget(stored.path, life)
            with suppress(OSError):
                stored.fail(sentence, str(error))
            ended = Ended(stored.title, 0.0, sentence)
        self.watcher.ended(ended)
        return ended

    def _cancel(self) -> None:
        """End what is under way, first as Ctrl-C does, then by force."""
        tasks = list(self.under_way)
        for task in tasks:
            ray.cancel(task)
        over, _ = ray.wait(tasks, num_returns=len(tasks), timeout=PATIENCE) if tasks else ([], [])
        for task in set(tasks) - set(over):
            ray.cancel(task, force=True)


def _sentence(error: RayError) -> str:
    """What Ray says of a task that it gave up; errors in one carry a whole traceback."""
    lines = str(error).strip().splitlines() or [""]
    line = lines[-1] if isinstance(error, RayTaskError) else lines[0]
    return f"{type(error).__name__}: {line}"


class Mailbox:
    """An actor that keeps the last word of each run until the driver asks for it."""

    def __init__(self) -> None:
        self._steps: dict[str, Step] = {}
        self._lives: dict[str, list[Holder]] = {}

    def live(self, title: str, holder: Holder) -> list[Holder]:
        """Note a life of a run; returns those it had before, which Ray knows to be over."""
        lives = self._lives.setdefault(title, [])
        lives.append(holder)
        return lives[:-1]

    def lives(self, title: str) -> list[Holder]:
        return self._lives.get(title, [])

    def put(self, title: str, step: Step) -> None:
        self._steps[title] = step

    def empty(self) -> dict[str, Step]:
        steps, self._steps = self._steps, {}
        return steps


def _execute_there(stored: StoredRun, mailbox: Any) -> Ended:
    """The task, in a worker of Ray."""
    for lost in ray.get(mailbox.live.remote(stored.title, Holder.me())):
        forget(stored.path, lost)  # which only its own machine could see to be stale

    def send(step: Step) -> None:
        mailbox.put.remote(stored.title, step)

    send(Step(0.0, ""))
    return attempt(stored, seldom(send, every=PROGRESS_EVERY))


@contextmanager
def _connected(address: str | None, *, jobs: int | None, gpus_per_run: float) -> Iterator[None]:
    """A Ray to submit to. One that was there before stays."""
    if ray.is_initialized():
        yield
        return
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address == "local":
        with _no_usage_report():
            ray.init(
                address,
                num_cpus=jobs,  # of None Ray makes the cores it may use
                include_dashboard=False,
                object_store_memory=OBJECT_MEMORY,
                **quiet,
            )
    else:
        ray.init(address, **quiet)
    try:
        if address == "local":  # a cluster may yet get the nodes it lacks
            _check_there_are_gpus(gpus_per_run)
        yield
    finally:
        ray.shutdown()


def _check_there_are_gpus(gpus_per_run: float) -> None:
    """Ray itself would wait for them without end."""
    there = ray.cluster_resources().get("GPU", 0.0)  # type: ignore[no-untyped-call]
    if gpus_per_run > there:
        raise ValueError(
            f"each run was to have {gpus_per_run:g} GPUs, but this machine has {there:g}; run on "
            "the CPU, or give the address of a cluster in RAY_ADDRESS"
        )


@contextmanager
def _no_usage_report() -> Iterator[None]:
    """Unless the user asked for it, a Ray that we start reports nothing to its makers."""
    chosen = "RAY_USAGE_STATS_ENABLED" in os.environ
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        yield
    finally:
        if not chosen:
            del os.environ["RAY_USAGE_STATS_ENABLED"]
