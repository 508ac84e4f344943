"""Time to commit a snapshot, and to open and read a long run.

python -m benchmarks.store
"""

import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console

from benchmarks.timing import table
from rankscope import store
from rankscope.store import Variable, Writer

MATRICES, LONGEST, PAIRS, TOP = 60, 768, 60, 100
SNAPSHOTS = 1000
REPETITIONS = 5
SCALARS = {"loss": 1.0, "accuracy": 0.5, "copy_seconds": 0.0, "wait_seconds": 0.0, "seconds": 0.1}


def main() -> None:
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        commits = write_run(path, durable=False)
        durable = write_run(Path(folder) / "durable", durable=True, snapshots=100)
        size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        opened, one, whole = read_run(path)
    title = f"store: {MATRICES} ragged matrices up to k = {LONGEST}, {PAIRS} pairs"
    rows = table(title, "what", "median", "95%", "worst")
    rows.add_row("commit a snapshot", *milliseconds(commits))
    rows.add_row("commit a snapshot, durable", *milliseconds(durable))
    rows.add_row(f"open a run of {SNAPSHOTS}", *milliseconds(opened))
    rows.add_row("open it and read one matrix over time", *milliseconds(one))
    rows.add_row("open it and read all matrices at one step", *milliseconds(whole))
    console.print(rows)
    console.print(f"on disk: {size / SNAPSHOTS / 1024:.0f} KiB per snapshot")


def write_run(path: Path, *, durable: bool, snapshots: int = SNAPSHOTS) -> list[float]:
    """Seconds that each commit takes in a run with spectra, changes and overlaps."""
    generator = np.random.default_rng(0)
    lengths = generator.choice([64, 128, 256, 512, LONGEST], MATRICES)
    seconds = []
    with Writer.create(
        path, coords=coordinates(), variables=variables(), durable=durable
    ) as writer:
        for step in range(snapshots):
            values = snapshot(lengths, generator)
            began = time.perf_counter()
            writer.append(step, values, scalars=SCALARS)
            seconds.append(time.perf_counter() - began)
    return seconds


def read_run(path: Path) -> tuple[list[float], list[float], list[float]]:
    """Seconds to open a run; to open it and read one matrix; to open it and read one step."""
    opened, one, whole = [], [], []
    for _ in range(REPETITIONS):
        began = time.perf_counter()
        dataset = store.open(path)
        opened.append(time.perf_counter() - began)
        dataset["singular_values"].sel(matrix="layer.30").to_numpy()
        one.append(time.perf_counter() - began)
        began = time.perf_counter()
        store.open(path)["singular_values"].isel(step=-1).to_numpy()
        whole.append(time.perf_counter() - began)
    return opened, one, whole


def coordinates() -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
    names = [f"layer.{index}" for index in range(MATRICES)]
    pairs = [f"layer.{index} > layer.{index + 1}" for index in range(PAIRS)]
    return {
        "matrix": (("matrix",), np.array(names, object)),
        "k": (("k",), np.arange(1, LONGEST + 1)),
        "pair": (("pair",), np.array(pairs, object)),
        "i": (("i",), np.arange(1, TOP + 1)),
    }


def variables() -> dict[str, Variable]:
    return {
        "singular_values": Variable(("step", "matrix", "k")),
        "change_singular_values": Variable(("step", "matrix", "k")),
        "status": Variable(("step", "matrix"), np.int8),
        "alignment": Variable(("step", "pair", "i")),
        "alignment_normalized": Variable(("step", "pair", "i")),
        "alignment_background": Variable(("step", "pair")),
    }


def snapshot(lengths: np.ndarray, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Incompressible random numbers, padded like spectra."""
    spectra = generator.random((2, MATRICES, LONGEST))
    spectra[:, np.arange(LONGEST) >= lengths[:, None]] = np.nan
    overlaps = generator.random((2, PAIRS, TOP))
    return {
        "singular_values": spectra[0],
        "change_singular_values": spectra[1],
        "status": np.zeros(MATRICES, np.int8),
        "alignment": overlaps[0],
        "alignment_normalized": overlaps[1],
        "alignment_background": overlaps[0].mean(-1),
    }


def milliseconds(seconds: list[float]) -> list[str]:
    worst = max(seconds)
    most = sorted(seconds)[int(0.95 * (len(seconds) - 1))]
    return [f"{1000 * value:.1f} ms" for value in (statistics.median(seconds), most, worst)]


if __name__ == "__main__":
    main()
