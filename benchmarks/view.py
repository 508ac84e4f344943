"""The viewer: the server's start, answers and memory; a run that grows; the page in a browser.

python -m benchmarks view
python -m benchmarks.view --live 1800   # half an hour of a run that grows
"""

import argparse
import http.client
import json
import os
import re
import statistics
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import view_page
from benchmarks.timing import table
from benchmarks.view_runs import FOLDER, LANGUAGE, LARGE, LIVE, Size, append, written
from rankscope.store import Writer

REPETITIONS = 15
COMPLETE_SECONDS = 300
METRICS = ("normalized_effective_rank", "stable_rank", "frobenius_norm", "condition_number")


def main(*, live: float = 60.0) -> None:
    for size in (LARGE, LANGUAGE, LIVE):
        written(size)
    console = Console(width=120)
    for size in (LARGE, LANGUAGE):
        console.print(measure(size))
    console.print(measure_live(live))
    view_page.main()


class Viewer:
    """A server in a process of its own, asked as the page asks it."""

    def __init__(self, *runs: Path) -> None:
        began = time.perf_counter()
        command = [sys.executable, "-m", "rankscope", "view", *map(str, runs), "--no-open"]
        self.process = subprocess.Popen(
            [*command, "--port", "0"], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        match = re.search(r"127\.0\.0\.1:(\d+)/\?token=(\S+)", self.process.stdout.readline())
        assert match is not None
        self.port, self.token = int(match[1]), match[2]
        self.cookie = f"rankscope_token_{self.port}={self.token}"
        self.get("/static/app.js")
        self.page_seconds = time.perf_counter() - began
        self.runs = {
            Path(run["name"]).name: run["id"] for run in json.loads(self.get("runs"))["runs"]
        }
        self.start_seconds = time.perf_counter() - began

    def get(self, path: str) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        path = path if path.startswith("/") else f"/api/{path}"
        connection.request("GET", path, headers={"Cookie": self.cookie})
        response = connection.getresponse()
        body = response.read()
        connection.close()
        if response.status != 200:
            raise RuntimeError(f"{path}: {response.status} {body[:500]!r}")
        return body

    def memory(self, name: str = "VmRSS") -> float:
        """Memory of the server in MB; VmHWM is the most it had."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        match = re.search(rf"{name}:\s+(\d+) kB", text)
        assert match is not None
        return int(match[1]) / 1024

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()


def described(frame: bytes) -> dict[str, Any]:
    (length,) = struct.unpack_from("<I", frame, 4)
    header: dict[str, Any] = json.loads(frame[8 : 8 + length])
    return header


def measure(size: Size) -> Table:
    """Time the answers about one large run: at first, and when all is known."""
    rows = table(
        f"{size.name}: {size.matrices} matrices, k = {size.k}, {size.snapshots} snapshots",
        *("what", "median", "95%", "worst", "bar"),
    )
    viewer = Viewer(FOLDER / size.name)
    try:
        run = viewer.runs[size.name]
        rows.add_row("start, until the page", *_one(viewer.page_seconds), "1.5 s")
        rows.add_row("start, until the list of runs", *_one(viewer.start_seconds), "1.5 s")
        rows.add_row("description of the run", *_times(viewer, [f"run?run={run}"]), "")
        heat = f"heat?run={run}&of=singular_values&width=1200&metric="
        first, share = _first(viewer, heat + METRICS[0])
        rows.add_row(f"first heat map ({share:.1%} of its columns)", *_one(first), "1.5 s")
        first, share = _first(viewer, heat + METRICS[1])
        rows.add_row(f"another metric ({share:.1%} of its columns)", *_one(first), "500 ms")
        rows.add_row("that metric in every column", *_one(_complete(viewer, heat + METRICS[1])), "")
        whole = sum(_complete(viewer, heat + metric) for metric in METRICS)
        rows.add_row("three further metrics in every column", *_one(whole), "")
        rows.add_row(
            "change of a metric that is known",
            *_times(viewer, [heat + m for m in METRICS]),
            "500 ms",
        )
        cursor = [f"spectrum?run={run}&row=5&at={at}" for at in _spread(size.snapshots)]
        rows.add_row("spectrum at the cursor", *_times(viewer, cursor), "50 ms, 120 ms")
        matrices = [f"spectra?run={run}&row={row}" for row in _spread(min(size.whole, 150))]
        rows.add_row("all values of a matrix over time", *_times(viewer, matrices), "500 ms")
        for name in ("moved", "events", "scalars", "lines&rows=0-63"):
            path = f"{name.partition('&')[0]}?run={run}&{name.partition('&')[2]}"
            rows.add_row(f"{name.partition('&')[0]}", *_times(viewer, [path]), "500 ms")
        rows.add_row("most memory, MB", "", "", f"{viewer.memory('VmHWM'):.0f}", "600")
    finally:
        viewer.close()
    return rows


def measure_live(seconds: float) -> Table:
    """Append a snapshot a second to a run of 10,000, and time until the page could show it."""
    title = f"live: {LIVE.matrices} matrices, {LIVE.snapshots} snapshots and one more each second"
    rows = table(title, "what", "median", "95%", "worst", "bar")
    path = written(LIVE)
    (FOLDER / "live.done").unlink()  # it grows now, so the next benchmark writes it again
    viewer = Viewer(path)
    try:
        heat = f"heat?run={viewer.runs['live']}&width=1200&from=0"
        _complete(viewer, heat)
        delays, memory = [], []
        with Writer.resume(path) as writer:
            end, number = time.monotonic() + seconds, LIVE.snapshots
            while time.monotonic() < end:
                append(writer, LIVE, range(number, number + 1))
                delays.append(_until_shown(viewer, heat, 10 * number))
                number += 1
                memory.append(viewer.memory())
                time.sleep(max(0.0, 1 - delays[-1]))
        rows.add_row("new snapshot in the heat map, after its commit", *_spread_of(delays), "2 s")
        settled = memory[len(memory) // 4 :]
        rows.add_row("memory, MB", *(f"{value:.0f}" for value in _summary(memory)), "600")
        growth = statistics.mean(settled[-5:]) - statistics.mean(settled[:5])
        rows.add_row(
            f"growth of memory over {len(settled)} snapshots, MB", f"{growth:.1f}", "", "", ""
        )
    finally:
        viewer.close()
    return rows


def _until_shown(viewer: Viewer, heat: str, step: int) -> float:
    """Poll four times a second, as the page does at its quickest, until `step` is shown."""
    began = time.perf_counter()
    run = viewer.runs["live"]
    commit = None
    while time.perf_counter() - began < 30:
        version = json.loads(viewer.get(f"version?run={run}"))["runs"][run]
        if version != commit:
            commit = version
            frame = viewer.get(heat)
            header = described(frame)
            entry = header["arrays"]["x"]
            place = 8 + struct.unpack_from("<I", frame, 4)[0] + entry["offset"]
            last = struct.unpack_from("<d", frame, place + 8 * (entry["shape"][0] - 1))[0]
            if last >= step and header["complete"]:
                return time.perf_counter() - began
            commit = None
        time.sleep(0.25)
    raise RuntimeError(f"step {step} was not shown within 30 s")


def _first(viewer: Viewer, path: str) -> tuple[float, float]:
    began = time.perf_counter()
    share = described(viewer.get(path))["done"]
    return time.perf_counter() - began, share


def _complete(viewer: Viewer, path: str) -> float:
    began = time.perf_counter()
    while not described(viewer.get(path))["complete"]:
        if time.perf_counter() - began > COMPLETE_SECONDS:
            raise RuntimeError(f"{path} was not complete within {COMPLETE_SECONDS} s")
        time.sleep(0.1)
    return time.perf_counter() - began


def _times(viewer: Viewer, paths: list[str]) -> tuple[str, str, str]:
    times = []
    for repetition in range(max(REPETITIONS, len(paths))):
        began = time.perf_counter()
        viewer.get(paths[repetition % len(paths)])
        times.append(time.perf_counter() - began)
    return _spread_of(times)


def _spread(count: int) -> list[int]:
    return [round(place * (count - 1) / (REPETITIONS - 1)) for place in range(REPETITIONS)]


def _summary(values: list[float]) -> tuple[float, float, float]:
    ordered = sorted(values)
    return statistics.median(ordered), ordered[int(0.95 * (len(ordered) - 1))], ordered[-1]


def _spread_of(times: list[float]) -> tuple[str, str, str]:
    middle, high, worst = (f"{1e3 * value:.0f} ms" for value in _summary(times))
    return middle, high, worst


def _one(seconds: float) -> tuple[str, str, str]:
    return f"{1e3 * seconds:.0f} ms", "", ""


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--live", type=float, default=60.0, help="seconds of the growing run")
    main(live=parser.parse_args().live)
