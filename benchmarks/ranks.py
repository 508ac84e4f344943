"""Time and memory of a snapshot that one rank measures, and that all ranks share.

`python -m benchmarks ranks`. A replicated model with the matrices of GPT-2 small's blocks, one
thread for each process. Contenders take turns; times are medians, from the request until the
snapshot is committed. The warm-up takes the reference.
"""

import multiprocessing
import statistics
import tempfile
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from rich.console import Console
from torch import nn

from benchmarks.timing import by_turns, table
from rankscope import Tracker
from rankscope.tracker.cost import MEBIBYTE

RANKS, ROUNDS, LAYERS, WIDTH = 2, 5, 12, 768


def main(
    *, ranks: int = RANKS, rounds: int = ROUNDS, layers: int = LAYERS, width: int = WIDTH
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        context = multiprocessing.get_context("spawn")
        sizes = (ranks, rounds, layers, width)
        processes = [
            context.Process(target=measure, args=(Path(folder), rank, *sizes))
            for rank in range(ranks)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
    assert not any(process.exitcode for process in processes)


def measure(folder: Path, rank: int, ranks: int, rounds: int, layers: int, width: int) -> None:
    """Take the snapshots of one rank; the first rank prints the table."""
    torch.set_num_threads(1)
    meeting = f"file://{folder / 'meeting'}"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=ranks)
    torch.manual_seed(0)
    blocks = (nn.TransformerEncoderLayer(width, width // 64, 4 * width) for _ in range(layers))
    model = nn.Sequential(*blocks)
    ways = {"rank 0 measures all": False, f"{ranks} ranks share": True}
    trackers = {
        way: Tracker(model, folder / way, schedule=1, share=share)
        for way, share in ways.items()
        if share or rank == 0
    }
    contenders = {way: partial(take, trackers.get(way), model) for way in ways}
    times = by_turns(contenders, rounds=rounds)
    memory: list[dict[str, int]] = [{} for _ in range(ranks)]
    dist.all_gather_object(memory, {way: t.cost.bytes for way, t in trackers.items()})
    for tracker in trackers.values():
        tracker.close()
    if rank == 0:
        report(times, memory)
    dist.barrier()
    dist.destroy_process_group()


def take(tracker: Tracker | None, model: nn.Module) -> None:
    """Take one snapshot of changed weights, and wait until it is committed."""
    with torch.no_grad():
        for weight in model.parameters():
            weight += 1e-3 * torch.randn_like(weight)
    dist.barrier()
    if tracker is not None:
        tracker.observe()
        tracker.flush()
    dist.barrier()


def report(times: dict[str, list[float]], memory: list[dict[str, int]]) -> None:
    rows = table("One snapshot of GPT-2 small's blocks", "", "time", "ratio", "largest of a rank")
    whole = next(iter(times.values()))
    for way, seconds in times.items():
        ratio = statistics.median(b / a for a, b in zip(whole, seconds, strict=True))
        most = max(held.get(way, 0) for held in memory) / MEBIBYTE
        rows.add_row(way, f"{statistics.median(seconds):.2f} s", f"{ratio:.2f}", f"{most:.0f} MiB")
    Console().print(rows)
