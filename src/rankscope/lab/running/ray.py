"""Execution of runs on a Ray cluster: one task per run, with one core and thread each.

All nodes must be able to import rankscope, and see the output folder and the data under the same
absolute paths. A run whose worker is lost starts again from its checkpoint, if it has one. A run
that raises has failed.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rankscope.lab.running.processes import ONE_THREAD, Ended, Step, Watcher, attempt, throttled
from rankscope.lab.running.stored_run import StoredRun
from rankscope.ray_connection import connected
from rankscope.store.lock import wait_until_free

RETRIES = 3  # after lost workers; Ray counts those that ran out of memory apart
PROGRESS_SECONDS = 0.5  # between two messages of a run, and between two looks at them
LOST_SECONDS = 120.0  # after which a file server has freed the locks of a machine that is lost
CANCEL_SECONDS = 10.0  # that cancelled runs have to close their stores


def execute(
    runs: Iterable[StoredRun],
    *,
    jobs: int | None,
    watcher: Watcher,
    gpus_per_run: float = 0.0,
    address: str | None = None,
) -> list[Ended]:
    """Execute `runs`, up to `jobs` at a time, by default as many as fit.

    gpus_per_run: 0.2 lets five runs share a GPU; Ray tells each run which one it sees.
    address: that of a cluster; None for the environment variable RAY_ADDRESS, then for a Ray on
        this machine that ends with the runs.
    """
    sent = [replace(run, path=run.path.absolute()) for run in runs]
    if not sent:
        return []
    with _connected(address, jobs=jobs, gpus_per_run=gpus_per_run):
        return _Sweep.begin(watcher, gpus_per_run=gpus_per_run).execute(sent, at_once=jobs)


@dataclass(frozen=True)
class _Sweep:
    """The running tasks on a cluster, and the watcher of their progress."""

    watcher: Watcher
    task: Any
    mailbox: Any
    running: dict[Any, StoredRun] = field(default_factory=dict)
    started: set[str] = field(default_factory=set)

    @classmethod
    def begin(cls, watcher: Watcher, *, gpus_per_run: float) -> "_Sweep":
        task = ray.remote(
            num_cpus=1,
            num_gpus=gpus_per_run,
            max_retries=RETRIES,
            runtime_env={"env_vars": ONE_THREAD},
        )
        # On the driver's node, so that losing another node does not lose the mailbox.
        driver_node = NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        mailbox = ray.remote(Mailbox).options(num_cpus=0, scheduling_strategy=driver_node)
        return cls(watcher, task(_execute_remotely), mailbox.remote())

    def execute(self, runs: list[StoredRun], *, at_once: int | None) -> list[Ended]:
        """Submit the runs in order; return them in the order in which they end."""
        waiting, ended = deque(runs), list[Ended]()
        try:
            while len(ended) < len(runs):
                while waiting and len(self.running) < (at_once or len(runs)):
                    stored = waiting.popleft()
                    self.running[self.task.remote(stored, self.mailbox)] = stored
                done, _ = ray.wait(list(self.running), timeout=PROGRESS_SECONDS)
                self._report_progress()
                ended += map(self._end, done)
        except BaseException:  # Ctrl-C above all
            self._cancel()
            raise
        return ended

    def _report_progress(self) -> None:
        titles = {stored.title for stored in self.running.values()}
        steps: dict[str, Step] = ray.get(self.mailbox.empty.remote())
        for title in steps.keys() & titles:  # a message may arrive after the end of its run
            self._start(title)
            self.watcher.progressed(title, *steps[title])

    def _start(self, title: str) -> None:
        """Report the start of a run once, however often it is started again."""
        if title not in self.started:
            self.started.add(title)
            self.watcher.started(title)

    def _end(self, task: Any) -> Ended:
        stored = self.running.pop(task)
        self._start(stored.title)
        try:
            ended: Ended = ray.get(task)
        except RayError as error:
            sentence = _sentence(error)
            with suppress(OSError):
                stored.fail(sentence, str(error))
            ended = Ended(stored.title, 0.0, sentence)
        self.watcher.ended(ended)
        return ended

    def _cancel(self) -> None:
        """End the running tasks, first as Ctrl-C does, then by force."""
        tasks = list(self.running)
        for task in tasks:
            ray.cancel(task)
        if tasks:
            _, left = ray.wait(tasks, num_returns=len(tasks), timeout=CANCEL_SECONDS)
            for task in left:
                ray.cancel(task, force=True)


def _sentence(error: RayError) -> str:
    """Ray's reason for giving up a task, in one line; a task's own error has a traceback."""
    lines = str(error).strip().splitlines() or [""]
    line = lines[-1] if isinstance(error, RayTaskError) else lines[0]
    return f"{type(error).__name__}: {line}"


class Mailbox:
    """An actor that stores the last message of each run until the driver asks for it."""

    def __init__(self) -> None:
        self._steps: dict[str, Step] = {}
        self._starts: Counter[str] = Counter()

    def start(self, title: str) -> int:
        """Return how often a run was started before; the workers that did so are lost."""
        self._starts[title] += 1
        return self._starts[title] - 1

    def put(self, title: str, step: Step) -> None:
        self._steps[title] = step

    def empty(self) -> dict[str, Step]:
        steps, self._steps = self._steps, {}
        return steps


def _execute_remotely(stored: StoredRun, mailbox: Any) -> Ended:
    """Execute a run in a worker of Ray."""
    if ray.get(mailbox.start.remote(stored.title)):
        wait_until_free(stored.path, seconds=LOST_SECONDS)

    def send(step: Step) -> None:
        mailbox.put.remote(stored.title, step)

    send(Step(0.0, ""))
    return attempt(stored, throttled(send, seconds=PROGRESS_SECONDS))


@contextmanager
def _connected(address: str | None, *, jobs: int | None, gpus_per_run: float) -> Iterator[None]:
    """Connect to Ray while the body runs; ValueError if a Ray on this machine has too few GPUs."""
    with connected(address, cores=jobs) as is_started:
        if is_started:  # a cluster may still grow
            _require_gpus(gpus_per_run)
        yield


def _require_gpus(gpus_per_run: float) -> None:
    """Raise ValueError if GPUs are missing; Ray would wait for them forever."""
    gpus = ray.cluster_resources().get("GPU", 0.0)  # type: ignore[no-untyped-call]
    if gpus_per_run > gpus:
        raise ValueError(
            f"each run was to have {gpus_per_run:g} GPUs, but this machine has {gpus:g}; run on "
            "the CPU, or give the address of a cluster in RAY_ADDRESS"
        )
