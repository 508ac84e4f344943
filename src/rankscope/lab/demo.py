"""The demonstration: a small Transformer learns Python source code, and every rank is followed."""

import json
import math
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
import xarray as xr
from jaxtyping import Int
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from torch import Tensor

from rankscope import store
from rankscope.figures import (
    alignment_over_time,
    effective_rank_by_depth,
    mean_alignment_by_pair,
    overview,
    save,
    singular_values_over_time,
    whole_matrices,
)
from rankscope.lab.data.text import StandardLibraryText, Text, draw_batch, unigram_entropy
from rankscope.lab.models import Transformer, TransformerConfig
from rankscope.matrices import Coverage
from rankscope.tracker import Tracker

LAYERS, WIDTH, HEADS, CONTEXT, BATCH = 4, 128, 4, 64, 32
# Over 600 steps the sum of rate x decay, 0.1, is within a factor of 2 of the paper's run (0.12).
PEAK_RATE, DECAY, WARM_UP = 3e-3, 0.1, 50
SNAPSHOTS = 40
CAPTION = (
    "Ranks at the first and last snapshot. Strongest alignment at the end of the matrix, or a part "
    "of it, with a neighbour: mean overlap (as a multiple of chance) and kind of pair."
)
MARK = {"made_by": "rankscope demo"}  # what tells a run that may be replaced from any other


def demo(out: Path, *, steps: int = 600, seed: int = 0) -> xr.Dataset:
    """Train, print what happened to each matrix, write the run and its figures to `out`.

    600 steps take about a minute on 2 cores. An earlier demonstration's run in `out` is replaced.
    """
    talk = Console(stderr=True)
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file; choose a folder with --out")
    text = StandardLibraryText().build()
    run = fresh_folder(out / "run")
    model = TransformerConfig(
        layers=LAYERS,
        width=WIDTH,
        heads=HEADS,
        vocabulary=text.vocabulary,
        context=CONTEXT,
        seed=seed,
    ).build()
    with Tracker(
        model, run, schedule=snapshot_steps(steps), attrs={**MARK, "seed": seed}
    ) as tracker:
        talk.print(f"Following {tracker.coverage.summary}.", highlight=False)
        for line in not_plainly_read(tracker.coverage):
            talk.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)
        train(model, text, tracker, steps=steps, seed=seed, console=talk)
    ds = store.open(run)
    Console().print(rank_table(ds))
    talk.print(
        f"Loss on text never trained on: {validation_loss(model, text):.2f} nats per byte; "
        f"knowing only how often each byte comes gives {unigram_entropy(text.validation):.2f}."
    )
    talk.print(cost(ds), highlight=False)
    for path in write_figures(ds, out):
        talk.print(f"wrote {path}", highlight=False)
    return ds


def not_plainly_read(coverage: Coverage) -> list[str]:
    """One line for each tensor that the summary counts as anything but "read"."""
    return [
        f"{line.tensor} {'x'.join(map(str, line.shape))} {line.status}: {line.how}"
        for line in coverage
        if line.status != "read"
    ]


def cost(ds: xr.Dataset) -> str:
    """What the tracker says of itself."""
    seconds = {
        part: float(ds[f"tracker_{part}_seconds"].sum()) for part in ("copy", "wait", "compute")
    }
    held = seconds["copy"] + seconds["wait"]
    return (
        f"{ds.sizes['step']} snapshots held training up for {held:.2f} s "
        f"of {ds.attrs['wall_seconds']:.0f} s; measuring took {seconds['compute']:.1f} s beside it."
    )


def fresh_folder(run: Path) -> Path:
    """`run`, after removing an earlier demonstration from there; nothing else is ever removed."""
    if run.exists():
        metadata = run / "zarr.json"
        found = json.loads(metadata.read_text())["attributes"] if metadata.exists() else {}
        if not MARK.items() <= found.items():
            raise ValueError(f"{run} is not an earlier demo's; choose another folder with --out")
        shutil.rmtree(run)
    return run


def snapshot_steps(steps: int) -> tuple[int, ...]:
    """Step 0, the last one, and between them some that are dense early, as the papers' schedule."""
    spread = np.geomspace(1, steps, SNAPSHOTS - 1).round().astype(int)
    return (0, *np.unique(spread).tolist())


def train(
    model: Transformer, text: Text, tracker: Tracker, *, steps: int, seed: int, console: Console
) -> None:
    """AdamW with warm-up and cosine decay; the tracker sees the weights before each update."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_RATE, weight_decay=DECAY)
    generator = torch.Generator().manual_seed(seed)
    with progress_bar(console, steps) as advance:
        for step in range(steps + 1):
            batch = draw_batch(text.train, batch=BATCH, context=CONTEXT, generator=generator)
            loss = next_byte_loss(model, *batch)
            tracker.observe(step, loss=loss)
            if step == steps:
                break
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, steps)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            advance(loss.item())


def next_byte_loss(
    model: Transformer, inputs: Int[Tensor, "batch time"], targets: Int[Tensor, "batch time"]
) -> Tensor:
    return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


@torch.no_grad()
def validation_loss(model: Transformer, text: Text, *, batches: int = 8) -> float:
    generator = torch.Generator().manual_seed(0)
    losses = [
        next_byte_loss(
            model,
            *draw_batch(text.validation, batch=BATCH, context=CONTEXT, generator=generator),
        )
        for _ in range(batches)
    ]
    return float(torch.stack(losses).mean())


def learning_rate(step: int, steps: int) -> float:
    """Linear warm-up, then a cosine from the peak to a tenth of it, as in yunis2024."""
    warm_up = min(WARM_UP, steps // 10)
    if step < warm_up:
        return PEAK_RATE * (step + 1) / warm_up
    done = (step - warm_up) / max(steps - warm_up, 1)
    return PEAK_RATE * (0.55 + 0.45 * math.cos(math.pi * done))


@contextmanager
def progress_bar(console: Console, steps: int) -> Iterator[Callable[[float], None]]:
    """A progress bar; calling what it gives with a loss counts one step."""
    columns = (
        TextColumn("training"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.2f}  {task.fields[speed]:.1f} steps/s"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=steps, loss=math.nan, speed=math.nan)

        def advance(loss: float) -> None:
            speed = progress.tasks[task].speed or math.nan
            progress.update(task, advance=1, loss=loss, speed=speed)

        yield advance


def rank_table(ds: xr.Dataset) -> Table:
    """One row per whole matrix: shape, ranks at first and last snapshot, strongest alignment."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), caption=CAPTION, caption_justify="left")
    table.add_column("matrix", no_wrap=True)
    for column in ("shape", "effective\nrank", "stable\nrank"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("strongest\nalignment")
    effective, stable = ds.rankscope.effective_rank(), ds.rankscope.stable_rank()
    aligned = strongest_alignments(ds)
    for name in whole_matrices(ds):
        m, n = (int(ds[size].sel(matrix=name)) for size in ("m", "n"))
        ranks = [first_to_last(rank.sel(matrix=name)) for rank in (effective, stable)]
        table.add_row(name, f"{m}x{n}", *ranks, aligned.get(name, "-"))
    return table


def first_to_last(values: xr.DataArray) -> str:
    return f"{float(values[0]):.3g} → {float(values[-1]):.3g}"


def strongest_alignments(ds: xr.Dataset) -> dict[str, str]:
    """For each whole matrix its most aligned pair at the end, measured against the background."""
    last = ds.isel(step=-1)
    parts = zip(ds["matrix"].to_numpy(), ds["part_of"].to_numpy(), strict=True)
    whole = {str(name): str(part_of or name) for name, part_of in parts}
    means = last.rankscope.mean_alignment().to_numpy()
    ratios = means / last["alignment_background"].to_numpy()
    found: dict[str, str] = {}
    for i in np.argsort(ratios):  # later entries, the stronger ones, replace earlier ones
        text = f"{means[i]:.2f} ({ratios[i]:.1f}x) {ds['pair_kind'].values[i]}"
        found |= {whole[str(ds[end].values[i])]: text for end in ("earlier", "later")}
    return found


def write_figures(ds: xr.Dataset, out: Path) -> list[Path]:
    """The figures as PNG and SVG; matrix and pair shown are in the middle of the network."""
    middle = f"blocks.{LAYERS // 2}"
    figures = {
        "overview": overview(ds, f"{middle}.attn.qkv"),
        "singular_values": singular_values_over_time(ds, f"{middle}.attn.qkv"),
        "effective_rank": effective_rank_by_depth(ds),
        "alignment": alignment_over_time(ds, f"{middle}.w1 > {middle}.w2"),
        "mean_alignment": mean_alignment_by_pair(ds),
    }
    return [path for name, figure in figures.items() for path in save(figure, out / name)]
