"""Cost of measures on a training of GPT-2's size, with a snapshot at every hundredth step.

Some steps are trained with a snapshot at the first of them and some without, in turns. Both wait
until the tracker is idle, so the difference is all that a snapshot costs: copies, hooks and what
its thread computes beside training. A hundredth of it is its share of each step.
"""

import argparse
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

import rankscope as rs
from benchmarks.timing import table

EVERY = 100  # steps between snapshots
BATCH, CONTEXT = 4, 256
GROUP = 2  # steps that are timed together
SETS: dict[str, Sequence[rs.measures.Measure]] = {
    "weights alone": (),
    "updates": (rs.Updates(),),
    "gradients": (rs.Gradients(),),
    "activations": (rs.Activations("transformer.h.*"),),
    "updates, gradients, activations": (
        rs.Updates(),
        rs.Gradients(),
        rs.Activations("transformer.h.*"),
    ),
}
SHORT = ("weights alone", "updates, gradients, activations")
BAR = 0.03
Clocks = tuple[float, float]  # seconds that pass, and of all cores together
CLOCKS = (0, 1)


def main(*, layers: int = 12, rounds: int = 3, sets: Sequence[str] = SHORT) -> None:
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_layer=layers)).train()
    tokens = torch.randint(50257, (BATCH, CONTEXT + 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    size = sum(p.numel() for p in model.parameters()) / 1e6
    train_group(model, optimizer, tokens, None, 0, steps=2)  # warm up
    title = (
        f"Measures: {size:.0f}M parameters, batch {BATCH} x {CONTEXT}, a snapshot every {EVERY} "
        f"steps; {processor()}, {torch.get_num_threads()} of {os.cpu_count()} cores"
    )
    columns = (
        "step",
        "wait",
        "snapshot",
        "share",
        "CPU of a step",
        "of a snapshot",
        "share of CPU",
    )
    rows = table(title, "measured", *columns)
    alone = (0.0, 0.0)
    for name in sets or SETS:  # none given: all
        step, wait, extra = measure(model, optimizer, tokens, SETS[name], rounds)
        shares = [extra[clock] / (EVERY * step[clock]) for clock in CLOCKS]
        alone = shares if name == "weights alone" else alone
        own = [share - without for share, without in zip(shares, alone, strict=True)]
        told = [f"{share:.2%} (own {o:.2%})" for share, o in zip(shares, own, strict=True)]
        row = (f"{step[0]:.2f} s", f"{wait[0]:.2f} s", f"{extra[0]:.1f} s", told[0])
        row += (f"{step[1]:.2f} s", f"{extra[1]:.1f} s", told[1])
        print(name, *row, flush=True)
        rows.add_row(name, *row)
    Console(width=170).print(rows)
    print(f"bar: {BAR:.0%} for updates, gradients and activations")


def measure(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    tokens: torch.Tensor,
    measures: Sequence[rs.measures.Measure],
    rounds: int,
) -> tuple[Clocks, Clocks, Clocks]:
    """Return medians for a step, and for a snapshot: what the loop waits, and what it takes."""
    plain, waits, extras = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        path, options = Path(folder) / "run", {"pairs": (), "measure": measures}
        due = {(2 * turn + 1) * GROUP for turn in range(rounds + 1)}
        with rs.Tracker(model, path, schedule=sorted(due), **options) as tracker:
            for turn in range(rounds + 1):
                start = 2 * turn * GROUP
                bare = train_group(model, optimizer, tokens, tracker, start, steps=GROUP)
                with_snapshot = train_group(
                    model, optimizer, tokens, tracker, start + GROUP, steps=GROUP
                )
                if turn:  # the first snapshot stores the reference, and allocates all copies
                    plain.append([bare[1][clock] / GROUP for clock in CLOCKS])
                    waits.append([with_snapshot[0][clock] - bare[0][clock] for clock in CLOCKS])
                    extras.append([with_snapshot[1][clock] - bare[1][clock] for clock in CLOCKS])
            assert tracker.failed is None, tracker.failed
    return tuple(
        tuple(statistics.median(seconds) for seconds in zip(*turns, strict=True))
        for turns in (plain, waits, extras)
    )


def train_group(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    tokens: torch.Tensor,
    tracker: rs.Tracker | None,
    start: int,
    *,
    steps: int,
) -> tuple[Clocks, Clocks]:
    """Return the seconds of the first step, and of all until the tracker is idle."""
    began, first = clocks(), None
    for step in range(start, start + steps):
        logits = model(tokens[:, :-1]).logits
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        if tracker is not None:
            tracker.observe(step, loss=loss)
        optimizer.step()
        optimizer.zero_grad()
        first = first or clocks()
    if tracker is not None:
        tracker.flush()
    last = clocks()
    return tuple(since(began, moment) for moment in (first, last))


def clocks() -> Clocks:
    return time.perf_counter(), time.process_time()


def since(began: Clocks, ended: Clocks) -> Clocks:
    return ended[0] - began[0], ended[1] - began[1]


def processor() -> str:
    """Name of the processor, as the kernel gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sets", nargs="*", default=SHORT, metavar="SET")
    arguments = parser.parse_args()
    main(**vars(arguments))
