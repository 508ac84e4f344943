"""Work spread over threads that each compute on one core.

On the matrices of a network LAPACK gains little from a second core; one matrix per core gains all.
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
    """function(item) for each item, on `threads` one-core threads (None: as many as torch uses).

    With threads=None, an item that costs more than a thread's share of the whole, and so would keep
    the others waiting, runs in the calling thread on all its cores instead.
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
    everyone = threading.Barrier(threads)
    for started in [pool.submit(everyone.wait) for _ in range(threads)]:
        started.result()
    return pool


_starting = threading.Lock()


def keep_to_one_core() -> None:
    """Limit this thread to one core, and no other.

    torch.set_num_threads acts on the thread that calls it, but also sets the default of threads
    that use torch for the first time later: a new thread reads that default, another restores it.
    """
    torch.get_num_threads()  # a thread's first call takes over the default; have that behind us
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
    """In a forked child the pool's threads do not exist."""
    global _starting
    _starting = threading.Lock()
    _pool.cache_clear()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forget_threads)
