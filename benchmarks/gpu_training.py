"""Five VGG-16s of the paper's size side by side on one GPU: `python -m benchmarks gpu_training`.

The images are random, with CIFAR-10's shape and number. Speed is measured after the first step,
which captures the graph. The tracker evaluates the network at each snapshot.
"""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from rich.console import Console

from benchmarks.timing import table
from rankscope import store
from rankscope.lab.data.images import Images
from rankscope.lab.models.vgg import VggConfig
from rankscope.lab.papers.yunis2024 import vgg
from rankscope.lab.running.processes import Ended
from rankscope.lab.running.stored_run import StoredRun
from rankscope.lab.running.threads import execute
from rankscope.lab.tasks.classification import Classification
from rankscope.lab.training.task import Machine
from rankscope.lab.training.training_run import TrainingRun


@dataclass(frozen=True)
class RandomImages:
    """Random images with CIFAR-10's shape and number."""

    count: int = 50_000
    shape: tuple[int, int, int] = (3, 32, 32)

    def build(self, folder: Path | None = None) -> Images:
        generator = torch.Generator().manual_seed(0)
        return Images(
            torch.randint(256, (self.count, *self.shape), generator=generator, dtype=torch.uint8),
            torch.randint(10, (self.count,), generator=generator),
            10,
        )


class Silent:
    """A watcher that stops at the first failure."""

    def started(self, title: str) -> None: ...
    def progressed(self, title: str, fraction: float, note: str = "") -> None: ...

    def ended(self, ended: Ended) -> None:
        if ended.failure:
            raise RuntimeError(ended.failure)


def main(*, epochs: int = 16) -> None:
    if not torch.cuda.is_available():
        Console().print("gpu_training: torch sees no GPU, nothing is measured")
        return
    run = replace(
        vgg.PAPER,
        task=Classification(RandomImages(), VggConfig()),
        steps=epochs * vgg.EPOCH,
        machine=Machine("cuda"),
    )
    title = f"VGG-16, batch 128, bfloat16, {epochs} epochs, a snapshot each epoch"
    headings = ("runs at once", "evaluated at snapshots", "images/s of one", "summed")
    rows = table(title, *headings)
    whole = replace(run, truncation=None)
    for count, declared, what in ((1, whole, "whole"), (5, whole, "whole"), (5, run, "and halves")):
        speeds = measure(declared, count)
        rows.add_row(str(count), what, f"{sum(speeds) / count:,.0f}", f"{sum(speeds):,.0f}")
    Console(width=100).print(rows)


def measure(run: TrainingRun, count: int) -> list[float]:
    """Images per second of each of `count` runs that train at the same time."""
    with tempfile.TemporaryDirectory() as folder:
        runs = [StoredRun(f"run-{i}", i, run, Path(folder) / f"run-{i}") for i in range(count)]
        execute(runs, jobs=count, watcher=Silent())
        return [float(store.open(run.path).attrs["speed"]) for run in runs]


if __name__ == "__main__":
    main()
