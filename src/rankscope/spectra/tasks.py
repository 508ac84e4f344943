"""Many decompositions at once: stacked by shape, on the device where the matrices are."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence

from rankscope.spectra import device, host
from rankscope.spectra.solvers import Svd
from rankscope.spectra.task import Task, grouped
from rankscope.spectra.workers import spread

# Largest stacks of equal shapes, in float64 and with work space. A stack saves small
# matrices the overhead of a call each.
CPU_STACK_BYTES = 2**20

Report = Callable[[Sequence[str]], None]


def say_nothing(names: Sequence[str]) -> None:
    """Report these matrices to nobody."""


def solve_all(
    tasks: Sequence[Task],
    *,
    threads: int | None,
    on_failure: Report,
    on_redone: Report = say_nothing,
) -> dict[Task, Svd]:
    """Decompose each task.

    on_failure: called with the names of all that failed.
    on_redone: called with the names of those that the GPU got wrong and the CPU decomposed.
    """
    parts = [device.solve([task for task in tasks if not task.on_cpu])]
    parts += spread(
        host.solve_stack,
        list(_stacks(task for task in tasks if task.on_cpu)),
        cost=lambda stack: sum(task.cost for task in stack),
        threads=threads,
    )
    solved = {result.task: result for part in parts for result in part}
    if failed := [task.name for task in tasks if solved[task].failed]:
        on_failure(failed)
    if redone := [task.name for task in tasks if solved[task].redone]:
        on_redone(redone)
    return {task: result.svd for task, result in solved.items()}


def warn_of_failure(names: Sequence[str]) -> None:
    """Give one RuntimeWarning that names the first eight matrices."""
    first_names = ", ".join(repr(name) for name in names[:8])
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    warnings.warn(
        f"singular values are NaN for {first_names}{more}: not finite, or no solver converged; "
        "look for NaN, Inf or overflow in the weights",
        RuntimeWarning,
        stacklevel=4,
    )


def _stacks(tasks: Iterable[Task]) -> Iterator[list[Task]]:
    """Yield tasks of one kind, in lists that stay in a core's cache."""
    for same_kind in grouped(tasks):
        length = max(1, CPU_STACK_BYTES // max(1, same_kind[0].size))
        yield from (same_kind[i : i + length] for i in range(0, len(same_kind), length))
