"""Cost of tracking as a share of training time, with one snapshot an epoch.

The CPU trains a small Transformer, a GPU (`--device cuda`) the papers' VGG-16 and ViT. Epochs with
and without a tracker take turns, so that a slow moment of the machine affects both.
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
from benchmarks.networks import ViT
from benchmarks.timing import table, wait_for_gpu
from rankscope.lab.models.transformer import TransformerConfig
from rankscope.lab.models.vgg import VggConfig

Batch = tuple[Tensor, Tensor]
Case = Callable[[], tuple[nn.Module, Batch, int, bool]]  # model, batch, steps an epoch, compiled
Training = Callable[[int, rs.Tracker | None, int], float]


def main(device: str = "cpu", *, epochs: int = 5) -> None:
    cases = gpu_cases() if device == "cuda" else cpu_cases()
    ways = [("cpu", "thread")]
    if device == "cuda":
        ways = [("cpu", "process"), ("cpu", "thread"), ("cuda", "thread")]
    title = f"Tracker: one snapshot an epoch, training on {device}"
    headings = ("measured on", "pairs", "products", "epoch", "share", "from, to", "copy + wait")
    rows = table(title, "network", *headings, "compute")
    for name, make in cases.items():
        torch.manual_seed(0)
        model, batch, steps, compiled = make()
        model, batch = model.to(device), (batch[0].to(device), batch[1].to(device))
        train = training(model, batch, compiled=compiled)
        train(steps if device == "cuda" else 10, None, 0)  # warm up
        for where, beside in ways:
            row = measure(model, batch, train, steps, epochs, device=where, beside=beside)
            print(name, where, beside, *row, flush=True)  # in case a later row fails
            rows.add_row(name, f"{where}, {beside}", *row)
    Console(width=120).print(rows)


def cpu_cases() -> dict[str, Case]:
    def transformer() -> tuple[nn.Module, Batch, int, bool]:
        model = TransformerConfig(layers=4, width=128, heads=4, vocabulary=256, context=64).build()
        tokens = torch.randint(256, (32, 65))
        return model, (tokens[:, :-1], tokens[:, 1:]), 222, False

    return {"Transformer, 4 layers of 128": transformer}


def gpu_cases() -> dict[str, Case]:
    def images(model: nn.Module, batch: int) -> tuple[nn.Module, Batch, int, bool]:
        return (
            model,
            (torch.randn(batch, 3, 32, 32), torch.randint(10, (batch,))),
            50_000 // batch,
            True,
        )

    return {
        "VGG-16": lambda: images(VggConfig().build(0), 128),
        "ViT, depth 6": lambda: images(ViT(), 512),
    }


def measure(
    model: nn.Module, batch: Batch, train: Training, steps: int, epochs: int, **options: str
) -> list[str]:
    """Return a row of the table: medians over epochs, with and without a tracker in turn."""
    pairs = rs.discover_pairs(model, batch[0])
    bare, tracked = [], []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        # A snapshot in the middle of an epoch: the timed part includes the worker's time.
        schedule = rs.At(steps // 2 + epoch * steps for epoch in range(-1, epochs))
        with rs.Tracker(model, path, schedule=schedule, pairs=pairs, **options) as tracker:
            tracker.observe(steps // 2 - steps)
            tracker.flush()
            for epoch in range(epochs):
                bare.append(train(steps, None, 0))
                tracked.append(train(steps, tracker, epoch * steps))
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


def training(model: nn.Module, batch: Batch, *, compiled: bool) -> Training:
    """Return a function that trains some steps and returns the seconds they took."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    forward = torch.compile(model) if compiled else model
    device = batch[0].device

    def train(steps: int, tracker: rs.Tracker | None, start: int) -> float:
        wait_for_gpu()
        began = time.perf_counter()
        for step in range(start + 1, start + steps + 1):
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                logits = forward(batch[0]).flatten(0, -2)
                loss = nn.functional.cross_entropy(logits, batch[1].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if tracker is not None:
                tracker.observe(step, loss=loss)
        wait_for_gpu()
        return time.perf_counter() - began

    return train


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--epochs", type=int, default=5)
    arguments = parser.parse_args()
    main(arguments.device, epochs=arguments.epochs)
