"""Cost of tracking as a share of training time on a CPU, with one snapshot an epoch.

Epochs with and without a tracker take turns, so that a slow moment of the machine affects both.
`overhead` measures the same on a GPU.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor, nn

import rankscope as rs
from benchmarks.timing import table
from rankscope.lab.models.transformer import TransformerConfig

Batch = tuple[Tensor, Tensor]
Training = Callable[[int, rs.Tracker | None, int], float]

STEPS = 222  # of an epoch


def main(*, epochs: int = 5) -> None:
    headings = ("pairs", "products", "epoch", "share", "from, to", "copy + wait", "compute")
    rows = table("Tracker: one snapshot an epoch, training on the CPU", "network", *headings)
    torch.manual_seed(0)
    model = TransformerConfig(layers=4, width=128, heads=4, vocabulary=256, context=64).build()
    tokens = torch.randint(256, (32, 65))
    batch = tokens[:, :-1], tokens[:, 1:]
    train = training(model, batch)
    train(10, None, 0)  # warm up
    rows.add_row("Transformer, 4 layers of 128", *measure(model, batch, train, epochs))
    Console(width=120).print(rows)


def measure(model: nn.Module, batch: Batch, train: Training, epochs: int) -> list[str]:
    """Return a row of the table: medians over epochs, with and without a tracker in turn."""
    pairs = rs.discover_pairs(model, batch[0])
    bare, tracked = [], []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        # A snapshot in the middle of an epoch: the timed part includes the worker's time.
        schedule = rs.At(STEPS // 2 + epoch * STEPS for epoch in range(-1, epochs))
        options = {"device": "cpu", "beside": "thread"}
        with rs.Tracker(model, path, schedule=schedule, pairs=pairs, **options) as tracker:
            tracker.observe(STEPS // 2 - STEPS)
            tracker.flush()
            for epoch in range(epochs):
                bare.append(train(STEPS, None, 0))
                tracked.append(train(STEPS, tracker, epoch * STEPS))
                tracker.flush()
        ds = rs.open(path)
        own = {
            part: float(ds[f"tracker_{part}_seconds"][1:].median())
            for part in ("copy", "wait", "compute")
        }
        products = ds.sizes.get("product", 0)
    # Comparing neighbouring epochs cancels slow drifts of the machine.
    shares = sorted(100 * (after / before - 1) for before, after in zip(bare, tracked, strict=True))
    return [
        str(len(pairs)),
        str(products),
        f"{statistics.median(bare):.2f} s",
        f"{statistics.median(shares):+.1f}%",
        f"{shares[0]:+.1f} to {shares[-1]:+.1f}%",
        f"{1000 * (own['copy'] + own['wait']):.1f} ms",
        f"{1000 * own['compute']:.0f} ms",
    ]


def training(model: nn.Module, batch: Batch) -> Training:
    """Return a function that trains some steps and returns the seconds they took."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def train(steps: int, tracker: rs.Tracker | None, start: int) -> float:
        began = time.perf_counter()
        for step in range(start + 1, start + steps + 1):
            loss = nn.functional.cross_entropy(model(batch[0]).flatten(0, -2), batch[1].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if tracker is not None:
                tracker.observe(step, loss=loss)
        return time.perf_counter() - began

    return train


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    main(epochs=parser.parse_args().epochs)
