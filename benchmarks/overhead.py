"""Share of a training that tracking takes: `python -m benchmarks overhead`.

VGG-16 and the ViT train as in the papers' experiments, each step one CUDA graph, on random images.
Epochs with and without a tracker take turns. A snapshot starts with every other epoch, and is
measured in a process on the host, the default. Each tracked epoch is compared with the mean of its
two neighbours; a bootstrap gives the interval of the median. Training and measuring are pinned to
cores of their own, where there are more than two.

`python -m benchmarks.overhead --only ViT --minutes 4` measures one network. Half of `--minutes` is
for each of two networks, preparation included; when they are over, no further epoch is begun.
`--size tiny --device cpu` trains networks so small that a CPU trains them.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from rich.console import Console

import rankscope as rs
from benchmarks.gpu_steps import random_data
from benchmarks.timing import silent, table, wait_for_gpu
from rankscope.lab.papers.boix2023 import vit_cifar10
from rankscope.lab.papers.yunis2024 import vgg
from rankscope.lab.training.execution_context import execution_context
from rankscope.lab.training.task import Machine
from rankscope.lab.training.training_run import TrainingRun, declared_pairs

Case = tuple[TrainingRun, int]  # and the steps of an epoch

TRAINING_CORES = 2


def main(
    device: str = "cuda",
    *,
    size: str = "paper",
    only: str = "",
    epochs: int = 40,
    minutes: float = 8.0,
) -> None:
    """Print the rows of networks whose name contains `only`."""
    if device == "cuda" and not torch.cuda.is_available():
        Console().print("overhead: torch sees no GPU, nothing is measured")
        return
    title = f"One snapshot an epoch, at most {epochs} tracked epochs between untracked ones"
    headings = ("pairs", "products", "tracked", "epoch", "added time", "95%")
    rows = table(title, "network", *headings, "copy + wait", "measuring")
    chosen = {name: case for name, case in cases(size).items() if only.lower() in name.lower()}
    began = time.perf_counter()
    for number, (name, (run, steps)) in enumerate(chosen.items(), start=1):
        end = began + 60 * minutes * number / len(chosen)
        run = replace(run, truncation=None, machine=Machine(device))
        row = measured(run, steps, epochs, end=end)
        print(name, *row, flush=True)  # in case a later row fails
        rows.add_row(name, *row)
    Console(width=120).print(rows)


def cases(size: str) -> dict[str, Case]:
    if size == "tiny":
        return {"VGG-16": (vgg.SMOKE, 2), "ViT": (vit_cifar10.SMOKE, 2)}
    papers = {"VGG-16": (vgg.PAPER, vgg.EPOCH), "ViT": (vit_cifar10.PAPER, vit_cifar10.EPOCH)}
    return {
        name: (replace(run, task=random_data(run.task)), steps)
        for name, (run, steps) in papers.items()
    }


def measured(run: TrainingRun, steps: int, epochs: int, *, end: float) -> list[str]:
    """Return a row of the table; no epoch begins after `end`."""
    with ExitStack() as stack:
        stack.enter_context(execution_context(torch.device(run.machine.device)))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        loop, _ = stack.enter_context(run.assembled(folder / "loop", seed=0, progress=silent))
        batch = loop.problem.draw(loop.order(0), torch.Generator().manual_seed(0))
        loop.learn(batch)  # captures the graph
        cores = sorted(os.sched_getaffinity(0))
        stack.callback(os.sched_setaffinity, 0, cores)
        apart = len(cores) > TRAINING_CORES
        if apart:  # which the measuring process and the worker inherit
            os.sched_setaffinity(0, cores[TRAINING_CORES:])
        tracker = rs.Tracker(
            loop.problem.model,
            folder / "run",
            schedule=f"every:{steps}",
            pairs=declared_pairs(loop.problem.model),
            reference="init" if run.changes else None,
            products=run.changes,
            budget=None,
            beside="process",
        )
        stack.enter_context(tracker)
        if apart:
            os.sched_setaffinity(0, cores[:TRAINING_CORES])
        tracker.observe(0)
        tracker.flush()
        bare, tracked = by_turns(lambda: loop.learn(batch), tracker, steps, epochs, end=end)
        tracker.flush()
        ds = rs.open(folder / "run").load()
    low, median, high = interval(bare, tracked)
    own = {
        part: float(ds[f"tracker_{part}_seconds"][1:].median())
        for part in ("copy", "wait", "compute")
    }
    return [
        str(ds.sizes.get("pair", 0)),
        str(ds.sizes.get("product", 0)),
        str(len(tracked)),
        f"{statistics.median(bare):.2f} s",
        f"{median:+.2%}",
        f"{low:+.2%} to {high:+.2%}",
        f"{1000 * (own['copy'] + own['wait']):.1f} ms",
        f"{1000 * own['compute']:.0f} ms",
    ]


def by_turns(
    learn: Callable[[], object], tracker: rs.Tracker, steps: int, epochs: int, *, end: float
) -> tuple[list[float], list[float]]:
    """Seconds of each untracked and each tracked epoch; the first and last are untracked."""
    bare: list[float] = [epoch_seconds(learn, steps, None, 0)]
    tracked: list[float] = []
    for epoch in range(1, epochs + 1):
        if tracked and time.perf_counter() > end:
            break
        tracked.append(epoch_seconds(learn, steps, tracker, epoch * steps))
        tracker.flush()
        bare.append(epoch_seconds(learn, steps, None, 0))
        # In case the machine is taken back before the row is whole.
        print(f"epoch {epoch}: {tracked[-1]:.4f} s, then untracked {bare[-1]:.4f} s", flush=True)
    return bare, tracked


def epoch_seconds(
    learn: Callable[[], object], steps: int, tracker: rs.Tracker | None, start: int
) -> float:
    wait_for_gpu()
    began = time.perf_counter()
    for step in range(start, start + steps):
        if tracker is not None:
            tracker.observe(step)
        learn()
    wait_for_gpu()
    return time.perf_counter() - began


def interval(bare: list[float], tracked: list[float]) -> tuple[float, float, float]:
    """Return the median share of time that is added, between the ends of its 95% interval."""
    without = np.array(bare)
    shares = 2 * np.array(tracked) / (without[:-1] + without[1:]) - 1
    draws = np.random.default_rng(0).integers(0, len(shares), (10_000, len(shares)))
    low, high = np.percentile(np.median(shares[draws], axis=1), (2.5, 97.5))
    return float(low), float(np.median(shares)), float(high)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
    parser.add_argument("--size", default="paper", choices=("paper", "tiny"))
    parser.add_argument("--only", default="", help="networks whose name contains this")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--minutes", type=float, default=8.0)
    main(**vars(parser.parse_args()))
