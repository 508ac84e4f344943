"""Work spread over threads that each compute on one core.

LAPACK gains little from a second core on the matrices of a network. One matrix per core uses all.
"""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


def spread(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    cost: Callable[[Item], float],
    threads: int | None = None,
) -> list[Result]:
    """Return function(item) for each item, computed by `threads` threads of one core each.

    With threads=None there are as many as torch uses. An item that costs more than a thread's share
    of the whole would keep the others waiting; it then runs in the calling thread on all its cores.
    """
    count = torch.get_num_threads() if threads is None else threads
    if torch.get_num_threads() == count == 1:
        return [function(item) for item in items]
    costs = [cost(item) for item in items]
    share = sum(costs) / count
    alone = {i for i, c in enumerate(costs) if threads is None and c > share}
    order = sorted(set(range(len(items))) - alone, key=lambda i: -costs[i])
    results = {i: function(items[i]) for i in sorted(alone)}
    try:
        futures = {i: _pool(count).submit(function, items[i]) for i in order}
    except RuntimeError:  # the interpreter is shutting down and starts no more threads
        return [results[i] if i in results else function(items[i]) for i in range(len(items))]
    results |= {i: future.result() for i, future in futures.items()}
    return [results[i] for i in range(len(items))]


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    pool = ThreadPoolExecutor(threads, thread_name_prefix="rankscope", initializer=keep_to_one_core)
    # Start all threads now: later ones would touch torch's default at a time nobody expects.
    all_started = threading.Barrier(threads)
    for future in [pool.submit(all_started.wait) for _ in range(threads)]:
        future.result()
    return pool


_starting = threading.Lock()


def keep_to_one_core() -> None:
    """Limit this thread, and no other, to one core.

    torch.set_num_threads acts on the calling thread. It also sets the default for threads that use
    torch for the first time later. So one new thread reads that default and another restores it.
    """
    torch.get_num_threads()  # a thread's first call takes over the default
    with _starting:
        default = _in_new_thread(torch.get_num_threads)
        torch.set_num_threads(1)
        _in_new_thread(lambda: torch.set_num_threads(default))


def _in_new_thread(function: Callable[[], Result]) -> Result:
    results: list[Result] = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join()
    return results[0]


def _forget_threads() -> None:
    """Forget the pool in a forked child, where its threads do not exist."""
    global _starting
    _starting = threading.Lock()
    _pool.cache_clear()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forget_threads)
