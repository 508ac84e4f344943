"""What ViT-B/16 on ImageNet costs: `python -m benchmarks imagenet --device cuda`.

Measures the steps of boix2023/vit-imagenet on one GPU, as one of eight processes takes them, and
how fast a core decodes images. The images are made, of ImageNet's usual size in pixels and bytes.
`--size tiny` shows the same table for a tiny network.
"""

import io
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image
from rich.console import Console

from benchmarks.timing import seconds_of, silent, table
from rankscope.lab.data.crops import Crops
from rankscope.lab.data.shards import IMAGENET, IMAGENET_VALIDATION
from rankscope.lab.models.vit import VitConfig
from rankscope.lab.papers.boix2023 import vit_imagenet
from rankscope.lab.training import training_run
from rankscope.lab.training.distributed import Together, joined
from rankscope.lab.training.execution_context import execution_context
from rankscope.lab.training.order import generator
from rankscope.lab.training.step import compiler_at_hand
from rankscope.lab.training.task import Machine
from rankscope.lab.training.training_run import TrainingRun

GPUS = 8
BATCH = 1024  # on one GPU, in parts of the size that each of eight has
SIDES = (500, 375)  # width and height of most of ImageNet's images
QUALITY = 95  # of JPEG, which gives made images about ImageNet's 110 kB
TINY = VitConfig(
    image=32, patch=8, depth=2, heads=2, width=32, hidden=64, head_width=16, classes=1000
)


@dataclass(frozen=True)
class Sizes:
    """What is measured. images: how many are made. steps: in one of `rounds` measurements."""

    run: TrainingRun
    batch: int
    images: int
    steps: int
    rounds: int


def sizes(size: str) -> Sizes:
    if size == "paper":
        return Sizes(vit_imagenet.PAPER, BATCH, images=2048, steps=5, rounds=5)
    task: Any = vit_imagenet.PAPER.task
    task = replace(task, model=TINY, crops=Crops(TINY.pixels[0]))
    run = replace(vit_imagenet.PAPER, task=task, batch=64)
    return Sizes(run, batch=16, images=64, steps=2, rounds=2)


def main(device: str = "cuda", size: str = "paper") -> None:
    if size == "paper" and (device == "cpu" or not torch.cuda.is_available()):
        Console().print(
            "imagenet: ViT-B/16 is measured on a GPU (--device cuda), and torch sees none or was "
            "not asked to; nothing is measured"
        )
        return
    measured = sizes(size)
    with tempfile.TemporaryDirectory() as folder, cache_in(Path(folder)):
        data = Path(folder, "data")
        kilobytes = write_images(data, measured.images)
        number = "cuda:0" if device == "cuda" else device  # a process group wants its number
        run = replace(measured.run, machine=Machine(number, data=data))
        rows = measure(run, measured, Path(folder))
    show(run, measured, rows, kilobytes)


@contextmanager
def cache_in(folder: Path) -> Iterator[None]:
    with patch.dict(os.environ, {"RANKSCOPE_CACHE": str(folder / "cache")}):
        yield


def write_images(folder: Path, count: int) -> float:
    """Write both splits in the hub's layout, and return the mean size of an image in kB."""
    draws = np.random.default_rng(0)
    encoded = [jpeg(draws) for _ in range(min(count, 64))]  # a few pictures many times
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    images = [{"bytes": encoded[i % len(encoded)], "path": None} for i in range(count)]
    labels = draws.integers(IMAGENET.classes, size=count)
    columns = {"image": pa.array(images, kind), "label": pa.array(labels)}
    for split in (IMAGENET, IMAGENET_VALIDATION):
        path = folder / split.repo / split.config / f"{split.split}-00000-of-00001.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), path, row_group_size=100)
    return statistics.fmean(map(len, encoded)) / 1000


def jpeg(draws: np.random.Generator) -> bytes:
    """Colours that change smoothly, with grain."""
    coarse = Image.fromarray(draws.integers(0, 256, (12, 16, 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize(SIDES, Image.Resampling.BICUBIC), dtype=float)
    grainy = (smooth + draws.normal(0, 8, smooth.shape)).clip(0, 255).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(grainy).save(buffer, format="JPEG", quality=QUALITY)
    return buffer.getvalue()


def measure(run: TrainingRun, measured: Sizes, folder: Path) -> dict[str, float]:
    """Seconds of a step of each kind, and images per second that one core decodes."""
    part = run.batch // run.accumulate  # of one of eight processes, and of one process alone
    one_of_eight = replace(run, batch=part, accumulate=1)
    alone = replace(run, batch=measured.batch, accumulate=measured.batch // part)
    device = torch.device(run.machine.device)
    times = {}
    with ExitStack() as stack:
        stack.enter_context(group_of_one(device, folder))
        stack.enter_context(execution_context(device))
        loop, steps = stack.enter_context(assembled_steps(one_of_eight, folder / "eight"))
        times["one of eight"] = seconds(steps, measured)
        indices = loop.problem.order(part, seed=0)(0)
        with patch("rankscope.lab.data.shards.threads", lambda: 1):
            began = time.perf_counter()
            loop.problem.draw(indices, generator(0, "noise", 0))
            times["decoded by a core"] = len(indices) / (time.perf_counter() - began)
    with ExitStack() as stack:
        stack.enter_context(execution_context(device))
        _, steps = stack.enter_context(assembled_steps(alone, folder / "alone"))
        times["alone"] = seconds(steps, measured)
    return times


@contextmanager
def group_of_one(device: torch.device, folder: Path) -> Iterator[None]:
    """Make training take the way of several processes, without the others."""
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "0"}
    with (
        patch.dict(os.environ, alone),
        joined(device),
        patch.object(training_run, "current_group", lambda: Together(0, 1)),
    ):
        yield


@contextmanager
def assembled_steps(run: TrainingRun, path: Path) -> Iterator[tuple[Any, Callable[[], None]]]:
    """Yield the loop and a function that takes a step; captured and compiled before."""
    with run.assembled(path, seed=0, progress=silent) as (loop, _):
        drawn = loop.problem.draw(loop.order(0), generator(0, "noise", 0))
        batch = tuple(tensor.to(run.machine.device) for tensor in drawn)
        for _ in range(2):
            loop.learn(batch)
        yield loop, lambda: loop.learn(batch)


def seconds(step: Callable[[], None], measured: Sizes) -> float:
    def steps() -> None:
        for _ in range(measured.steps):
            step()

    return statistics.median(seconds_of(steps) for _ in range(measured.rounds)) / measured.steps


def show(run: TrainingRun, measured: Sizes, times: dict[str, float], kilobytes: float) -> None:
    part = run.batch // run.accumulate
    task: Any = run.task
    weights = sum(weight.numel() for weight in task.model.build().parameters())
    needed = GPUS * part / times["one of eight"]
    hours = run.steps * times["one of eight"] / 3600
    runs = len(vit_imagenet.experiment("paper").runs)
    compiled = "compiled" if compiler_at_hand() and run.machine.device != "cpu" else "as written"
    title = f"{weights / 1e6:.3g} million parameters, {run.precision}, {compiled}"
    rows = table(title, f"{task.images.repo}, {run.machine.device}", "")
    milliseconds = {name: f"{1000 * times[name]:.4g} ms" for name in ("one of eight", "alone")}
    rows.add_row(f"step of {part} images, as one of {GPUS} GPUs", milliseconds["one of eight"])
    rows.add_row(
        f"step of {measured.batch} images in {measured.batch // part} parts, one GPU",
        milliseconds["alone"],
    )
    rows.add_row(f"{run.steps:,} steps of {GPUS * part} images on {GPUS} GPUs", f"{hours:.3g} h")
    rows.add_row(f"... {runs} initial scales, one seed", f"{runs * hours:.3g} h")
    rows.add_row(f"images/s that {GPUS} GPUs then take", f"{needed:,.0f}")
    rows.add_row("images/s that one core decodes", f"{times['decoded by a core']:,.0f}")
    rows.add_row(
        "cores that keep up with them", f"{np.ceil(needed / times['decoded by a core']):,.0f}"
    )
    console = Console(width=100)
    console.print(rows)
    console.print(
        f"Assumes that {GPUS} GPUs are as fast as this one and that images are decoded in time. "
        f"Not counted: the exchange of {4 * weights / 1e6:,.3g} MB of gradients a step, snapshots "
        f"and checkpoints. Images have {SIDES[0]} x {SIDES[1]} pixels and {kilobytes:.0f} kB.",
        highlight=False,
    )


if __name__ == "__main__":
    main()
