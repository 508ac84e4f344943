"""Budget of a tracker: the share of a run's time that its snapshots may take.

A snapshot costs training more than the wait for its copy. Where the CPU trains, measuring takes
cores from it: the CPU time of the one thread that measures counts, or the time of several cores.
It is held against the CPU time of the run, since other processes stretch the wall time of both.
Where a GPU trains and a process measures, only what happens in this process counts.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch

from rankscope import snapshot
from rankscope.tracker.defaults import MeasurerKind

DEFAULT_SHARE = 0.05

# A run may always spend this many seconds, which nobody notices: a tenth of a run of one second.
# Every due step releases a part, so that short runs spread their snapshots over all due steps.
FREE_SECONDS = 0.1
FREE_SECONDS_PER_STEP = 0.005

OPERATIONS_PER_SECOND = 1e10  # of one core, roughly
OVERHEAD = 5e6  # operations: half a millisecond for each matrix, however small


class Budget:
    """Decides which due steps a share of the run's time affords. Both threads charge it."""

    def __init__(
        self,
        share: float,
        *,
        expected_seconds: float,
        cores: int | None,
        cpu_trains: bool = False,
    ) -> None:
        """`expected_seconds` is the cost of a snapshot until one has been measured.

        cores: number of cores that measure at the expense of training. None means that only the
            CPU time of the worker's own thread counts.
        cpu_trains: a run lasts as long as it has used the CPU, if that is less than its wall time.
        """
        self.share = share
        self.seconds = 0.0  # spent so far
        self._expected = expected_seconds
        self._cores = cores
        self._cpu_trains = cpu_trains
        self._began: tuple[float, float] | None = None  # wall time, CPU time
        self._due = 0
        self._under_way = 0
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start the clock at the first step; later calls do nothing."""
        if self._began is None:
            self._began = time.perf_counter(), time.process_time()

    def affords_another(self) -> bool:
        """Count a due step and return whether a snapshot at it stays within the budget."""
        with self._lock:
            self._due += 1
            return self._affords(self._due)

    def may_afford_next(self) -> bool:
        """Return whether a step that is due next would stay within the budget, if it were now."""
        with self._lock:
            return self._began is None or self._affords(self._due + 1)

    def _affords(self, due: int) -> bool:
        assert self._began is not None
        wall, cpu = self._began
        elapsed = time.perf_counter() - wall
        if self._cpu_trains:
            elapsed = min(elapsed, time.process_time() - cpu)
        free = min(FREE_SECONDS, FREE_SECONDS_PER_STEP * due)
        cost = self.seconds + (self._under_way + 1) * self._expected
        return cost <= max(free, self.share * elapsed)

    @contextmanager
    def copying(self) -> Iterator[None]:
        """Charge the time that the training thread spends on a snapshot."""
        began = time.perf_counter()
        try:
            yield
        finally:
            with self._lock:
                self.seconds += time.perf_counter() - began

    def submitted(self) -> None:
        """Note that the worker has a snapshot to measure."""
        with self._lock:
            self._under_way += 1

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Charge what a snapshot that was submitted costs in the worker's thread."""
        wall, cpu = time.perf_counter(), time.thread_time()
        try:
            yield
        finally:
            wall, cpu = time.perf_counter() - wall, time.thread_time() - cpu
            cost = cpu if self._cores in (None, 1) else max(cpu, wall * self._cores)
            with self._lock:
                self.seconds += cost
                self._expected = cost
                self._under_way -= 1


def chosen_budget(
    share: float | Literal["auto"] | None,
    schedule: object,
    plan: snapshot.Plan,
    *,
    home: torch.device,
    measurer: MeasurerKind,
    threads: int,
    operations: float = 0.0,
) -> Budget | None:
    """Return the budget a user asked for; "auto" limits the default schedule only.

    operations: those of a snapshot beyond the plan's.
    """
    if share == "auto":
        share = DEFAULT_SHARE if schedule is None else None
    if share is None:
        return None
    if isinstance(share, str) or not 0 < share <= 1:
        raise ValueError(f'budget: expected a share between 0 and 1, None or "auto", got {share!r}')
    if home.type == "cpu":
        cores: int | None = threads
    else:
        cores = None if measurer == "process" else 1
    expected = expected_seconds(plan) + operations / OPERATIONS_PER_SECOND
    cpu_trains = home.type == "cpu"
    return Budget(share, expected_seconds=expected, cores=cores, cpu_trains=cpu_trains)


def expected_seconds(plan: snapshot.Plan) -> float:
    """Return a rough cost of the first snapshot: an overhead per matrix, and the arithmetic."""
    operations = OVERHEAD * (len(plan.readings) + len(plan.products) + len(plan.pairs))
    operations += sum(operations_of(r.m, r.n, plan.leading) for r in plan.readings)
    operations += sum(operations_of(p.left.m + p.right.m, 2 * p.left.n) for p in plan.products)
    return 0.003 + operations / OPERATIONS_PER_SECOND


def operations_of(m: int, n: int, leading: int | None = None) -> int:
    """Operations of a Gram matrix and its eigenvalues, weighted for their lower speed.

    Or those of the Krylov space of leading directions, which is some times larger than these.
    """
    k = min(m, n)
    full = 2 * (m * n * k + 10 * k**3)
    return full if leading is None else min(full, 4 * m * n * 8 * leading)
