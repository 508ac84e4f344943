"""Threads that keep to one core and do not limit others."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from rankscope.spectra import workers
from rankscope.spectra.workers import spread


@pytest.fixture
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    workers._pool.cache_clear()
    yield
    torch.set_num_threads(before)


def test_results_keep_their_order_and_errors_reach_the_caller(three_threads) -> None:
    items = [3, 1, 2, 5, 4]
    assert spread(lambda x: x * x, items, cost=float, threads=2) == [9, 1, 4, 25, 16]
    assert spread(lambda x: x, [], cost=float) == []
    with pytest.raises(ZeroDivisionError):
        spread(lambda x: 1 / x, [1, 0], cost=lambda _: 1.0, threads=2)


def test_each_thread_keeps_to_one_core(three_threads) -> None:
    meet = threading.Barrier(2, timeout=20)

    def cores(_: int) -> tuple[str, int]:
        meet.wait()  # both threads must take part
        return threading.current_thread().name, torch.get_num_threads()

    threads = spread(cores, [0, 1, 2, 3], cost=lambda _: 1.0, threads=2)
    assert len({name for name, _ in threads}) == 2
    assert {count for _, count in threads} == {1}


def test_other_threads_are_not_limited(three_threads) -> None:
    spread(lambda x: torch.ones(x).sum(), [4, 4, 4, 4], cost=float, threads=4)
    assert torch.get_num_threads() == 3
    assert workers._in_new_thread(torch.get_num_threads) == 3


def test_a_heavy_item_gets_all_cores(three_threads) -> None:
    def where(_: float) -> tuple[threading.Thread, int]:
        return threading.current_thread(), torch.get_num_threads()

    heavy, *light = spread(where, [9.0, 1.0, 1.0, 1.0], cost=float)
    assert heavy == (threading.current_thread(), 3)
    assert all(thread is not threading.current_thread() for thread, _ in light)
    # A stated number of threads is a bound.
    assert all(count == 1 for _, count in spread(where, [9.0, 1.0], cost=float, threads=2))


SCRIPT = """
import atexit, os, torch
from rankscope.spectra import singular_values

matrices = {str(i): torch.diag(torch.tensor([3.0, 2.0])) for i in range(4)}

def check(where):
    values = singular_values(matrices)
    assert all(S.tolist() == [3.0, 2.0] for S in values.values()), values
    os.write(1, f"{where}\\n".encode())

atexit.register(check, "exit")
torch.set_num_threads(2)
check("start")
child = os.fork()
check("child" if child == 0 else "parent")
if child:
    _, status = os.waitpid(child, 0)
    assert status == 0, status
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_fork_and_shutdown(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    process = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=False
    )
    assert process.returncode == 0, process.stderr
    assert sorted(process.stdout.split()) == ["child", "exit", "exit", "parent", "start"]
