"""Scan of checkpoints: time and values against WeightWatcher, reading speed, memory.

`python -m benchmarks scan`. The first part writes GPT-2 small as a safetensors file. Ours reads it;
WeightWatcher has the model in memory already. The second part writes 8 GB and deletes them again;
pages are dropped from the cache before each reading. The third part scans norms of a sparse file
of a 70B model's shapes (zeros, 141 GB that take no room) and prints the memory of the process.
"""

import json
import logging
import os
import resource
import struct
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from rich.console import Console
from safetensors.torch import save_file
from torch import nn

import rankscope as rs
from benchmarks.timing import by_turns, table
from rankscope.checkpoints.files import OPEN, read_fully
from rankscope.scanning.weightwatcher import weightwatcher_table

SAME = ("M", "N", "Q", "alpha", "alpha_weighted", "lambda_max", "log_alpha_norm", "log_norm")
SAME += ("log_spectral_norm", "matrix_rank", "norm", "num_evals", "rank_loss", "rf")
SAME += ("spectral_norm", "stable_rank", "sv_max", "sv_min")
DRAWN = ("entropy",)  # WeightWatcher adds a small number to each share


def main() -> None:
    with tempfile.TemporaryDirectory(
        prefix="rankscope-scan-", dir=os.environ.get("TMPDIR")
    ) as name:
        against_weightwatcher(Path(name))
        reading(Path(name))
        memory(Path(name))


# Against WeightWatcher.


def gpt2() -> nn.ModuleDict:
    """Layers of GPT-2 small in the shapes of its weights, as a model that both tools read."""
    torch.manual_seed(0)
    layers: dict[str, nn.Module] = {
        "wte": nn.Embedding(50257, 768),
        "wpe": nn.Embedding(1024, 768),
    }
    for block in range(12):
        for key, (n, m) in {
            "c_attn": (768, 2304),
            "attn_out": (768, 768),
            "c_fc": (768, 3072),
            "mlp_out": (3072, 768),
        }.items():
            layers[f"h{block}_{key}"] = nn.Linear(n, m)
    return nn.ModuleDict(layers)


def against_weightwatcher(folder: Path, *, rounds: int = 3) -> None:
    """Print times, and the largest difference of each value that both define."""
    import weightwatcher

    model = gpt2()
    path = folder / "gpt2.safetensors"
    save_file(model.state_dict(), path)
    logging.disable(logging.CRITICAL)
    results: dict[str, pd.DataFrame] = {}

    def ours() -> None:
        scan = rs.scan(path)
        scan.table()
        results["ours"] = weightwatcher_table(scan.checkpoints)

    def theirs() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            watcher = weightwatcher.WeightWatcher(model=model, log_level=logging.ERROR)
            results["theirs"] = watcher.analyze()

    times = by_turns({"rankscope.scan": ours, "weightwatcher.analyze": theirs}, rounds=rounds)
    ratio = [b / a for a, b in zip(*times.values(), strict=True)]
    shown = table("GPT-2 small, 50 matrices, file to table", "", "seconds", "matrices")
    shown.add_row(
        "rankscope.scan", f"{np.median(times['rankscope.scan']):.1f}", str(len(results["ours"]))
    )
    shown.add_row(
        "weightwatcher.analyze",
        f"{np.median(times['weightwatcher.analyze']):.1f}",
        str(len(results["theirs"])),
    )
    console = Console()
    console.print(shown)
    console.print(f"weightwatcher takes {np.median(ratio):.1f}x as long")
    mine = results["ours"].set_index("longname")
    other = results["theirs"].set_index("longname")
    both = mine.index.intersection(other.index)
    differences = table(f"Largest relative difference over {len(both)} matrices", "column", "")
    for column in (*SAME, *DRAWN):
        a, b = (frame.loc[both, column].to_numpy(float) for frame in (mine, other))
        scale = np.maximum(np.abs(b), 1e-12)
        differences.add_row(column, f"{np.nanmax(np.abs(a - b) / scale):.1e}")
    console.print(differences)
    skipped = sorted(set(mine.index) - set(other.index))
    console.print(f"skipped by weightwatcher: {', '.join(skipped) or 'none'}")
    console.print(
        f"skipped by rankscope: {', '.join(sorted(set(other.index) - set(mine.index))) or 'none'}"
    )


# Reading.


def reading(folder: Path, *, gigabytes: int = 8, rounds: int = 3) -> None:
    """Print the speed of reading a file of random bytes raw, by tensors, and in a scan of norms."""
    path = folder / "large.safetensors"
    sizes = [(4096, 4096)] * int(gigabytes * 1e9 / (4096 * 4096 * 2))
    write_large(path, sizes, random=True)
    size = path.stat().st_size

    def raw(block: int) -> None:
        descriptor = os.open(path, OPEN)
        buffer = bytearray(block)
        for start in range(0, size, len(buffer)):
            part = memoryview(buffer)[: min(len(buffer), size - start)]
            read_fully(descriptor, part, start, str(path))
        os.close(descriptor)

    def tensors() -> None:
        checkpoint = rs.open_checkpoint(path)
        for name in checkpoint.tensors:
            checkpoint.read(name)

    def cold(run: Callable[[], object]) -> Callable[[], None]:
        def after_dropping() -> None:
            drop_from_cache(path)
            run()

        return after_dropping

    shown = table(f"{size / 1e9:.1f} GB from disk", "", "GB/s", "raw beside it", "share")
    contenders = {"every tensor": tensors, "scan of norms": lambda: rs.scan(path, leading=0)}
    for name, contender in contenders.items():
        # Disks change their speed within minutes, so each reading has a raw one as its neighbour.
        pair = by_turns({"raw": cold(lambda: raw(2**25)), name: cold(contender)}, rounds=rounds)
        speeds = {key: size / 1e9 / float(np.median(seconds)) for key, seconds in pair.items()}
        share = np.median([a / b for a, b in zip(pair["raw"], pair[name], strict=True)])
        shown.add_row(name, f"{speeds[name]:.2f}", f"{speeds['raw']:.2f}", f"{share:.0%}")
    Console().print(shown)
    path.unlink()


def write_large(path: Path, shapes: list[tuple[int, int]], *, random: bool) -> None:
    """Write a safetensors file of bf16 matrices, of random bytes or as a hole of zeros."""
    header, position = {}, 0
    for number, (m, n) in enumerate(shapes):
        header[f"layers.{number}.weight"] = {
            "dtype": "BF16",
            "shape": [m, n],
            "data_offsets": [position, position + 2 * m * n],
        }
        position += 2 * m * n
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        if random:
            block = torch.randn(2**24).bfloat16().view(torch.uint8).numpy().tobytes()
            remaining = position
            while remaining:
                remaining -= file.write(block[: min(len(block), remaining)])
        else:
            file.truncate(8 + len(text) + position)
        file.flush()
        os.fsync(file.fileno())


def drop_from_cache(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


# Memory.


def llama70b(layers: int = 80) -> Iterator[tuple[int, int]]:
    """Shapes of Llama 3 70B."""
    yield from [(128256, 8192)] * 2
    for _ in range(layers):
        yield from [(8192, 8192), (1024, 8192), (1024, 8192), (8192, 8192)]
        yield from [(28672, 8192), (28672, 8192), (8192, 28672)]


def memory(folder: Path, *, layers: int = 80) -> None:
    """Print the peak memory of a process that scans the norms of a 70B model's shapes."""
    path = folder / "large.safetensors"
    write_large(path, list(llama70b(layers)), random=False)
    began = time.perf_counter()
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.scan", str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    seconds = time.perf_counter() - began
    before, peak = map(float, ran.stdout.split())
    largest = 128256 * 8192 * 2 / 1e9
    Console().print(
        f"{path.stat().st_size / 1e9:.0f} GB of zeros in {seconds:.0f} s: peak of {peak:.2f} GB of "
        f"own memory, {before:.2f} GB before; the largest tensor has {largest:.2f} GB"
    )
    path.unlink()


def print_peak(path: Path) -> None:
    """Scan a file and print own memory before and at most, in GB; the page cache is not in it."""
    peak, before = 0.0, own_memory()
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.01):
            peak = max(peak, own_memory())

    thread = threading.Thread(target=watch)
    thread.start()
    rs.scan(path, leading=0)
    done.set()
    thread.join()
    print(before, peak)


def own_memory() -> float:
    """Resident memory that belongs to the process and to no file, in GB."""
    pages = Path("/proc/self/statm").read_text().split()
    return (int(pages[1]) - int(pages[2])) * resource.getpagesize() / 1e9


if __name__ == "__main__":
    print_peak(Path(sys.argv[1])) if len(sys.argv) > 1 else main()
