"""SIGKILL at random moments, with steps back: nothing acknowledged is lost, no reader sees a hole.

All 1,000: pytest -m slow tests/tracker/test_kills.py -s
"""

import json
import os
import random
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import rankscope as rs
from tracker.lives import all_lives, check, server


@dataclass
class Readers:
    """Reads a run again and again, at times a while after it was opened."""

    path: Path
    seed: int
    reads: int = 0
    stop: threading.Event = field(default_factory=threading.Event)

    def read(self) -> int:
        moments = random.Random(self.seed)
        while not self.stop.is_set():
            if self.path.exists():
                dataset = rs.open(self.path)
                if moments.random() < 0.5:
                    time.sleep(moments.uniform(0, 0.2))
                check(dataset.load())
                self.reads += 1
            time.sleep(0.02)
        return self.reads


def live(
    process: subprocess.Popen, path: Path, *, start: int, life: int, beside: str, moment: float
) -> list[int]:
    """Kill a life `moment` seconds after its first snapshot, or before; return its words."""
    order = {"path": str(path), "start": start, "life": life, "beside": beside}
    process.stdin.write(json.dumps(order) + "\n")
    process.stdin.flush()
    word, child = process.stdout.readline().split()
    assert word == "born"
    acknowledged = []
    if moment > 0:
        while not acknowledged or acknowledged[-1] < start:
            word, number = process.stdout.readline().split()
            assert word == "committed", "it died by itself"
            acknowledged.append(int(number))
    time.sleep(abs(moment))
    os.kill(int(child), signal.SIGKILL)
    while True:
        word, number = process.stdout.readline().split()
        if word == "dead":
            assert int(number) == signal.SIGKILL, "it died by itself"
            return acknowledged
        acknowledged.append(int(number))


def next_start(moments: random.Random, last: int) -> int:
    """Return the step at which the next life resumes a run that ends with the step `last`."""
    choice = moments.random()
    if last > 150 or choice < 0.05:
        return 0
    return last + 1 if choice < 0.5 else moments.randint(max(0, last - 20), last + 1)


@pytest.mark.parametrize(
    ("kills", "in_process"), [(8, 0), pytest.param(1000, 30, marks=pytest.mark.slow)]
)
def test_kills_and_steps_back(tmp_path: Path, kills: int, in_process: int) -> None:
    moments, path = random.Random(kills), tmp_path / "run"
    acknowledged: set[tuple[int, int]] = set()
    visible: dict[int, int] = {}
    back = 0
    readers = [Readers(path, seed) for seed in range(2)]
    with server() as process, ThreadPoolExecutor(2) as pool:
        reading = [pool.submit(reader.read) for reader in readers]
        try:
            for life in range(1, kills + 1):
                last = max(visible, default=-1)
                start = next_start(moments, last)
                back += start <= last
                beside = "process" if life <= in_process else "thread"
                # Every fourth may die while it creates the run, resumes it or goes back.
                moment = moments.uniform(-0.05, 0.2) if life % 4 else moments.uniform(-0.3, 0)
                words = live(process, path, start=start, life=life, beside=beside, moment=moment)
                new = {(step, life) for step in words if step >= start}
                acknowledged |= new
                visible = check(rs.open(path).load()) if path.exists() else {}
                assert all(visible.get(step) == life for step, life in new), "one was lost"
                assert max(visible, default=-1) >= max(words, default=-1)
                if life not in visible.values():  # nothing new: the old snapshots are all there
                    assert max(visible, default=-1) == last
        finally:
            for reader in readers:
                reader.stop.set()
        reads = sum(future.result() for future in reading)
    lives = all_lives(path)
    lost = [(step, life) for step, life in acknowledged if life not in lives[step]]
    print(
        f"{kills} kills, {in_process} with a measuring process, {back} steps back: "
        f"{len(acknowledged)} acknowledged, {len(lost)} lost, {reads} reads, 0 bad"
    )
    assert not lost and acknowledged and reads
