"""Cost of a tracker with default options on short runs of the CPU.

Whole runs with and without a tracker take turns, from its construction until it is closed. CPU
time says what tracking costs on a machine that others use too.
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
from transformers import GPT2Config, GPT2LMHeadModel

import rankscope as rs
from benchmarks.timing import table

Loss = Callable[[], Tensor]
Case = Callable[[], tuple[nn.Module, Loss]]


def main(*, rounds: int = 5, threads: int | None = None) -> None:
    torch.set_num_threads(threads or torch.get_num_threads())
    headings = ("steps", "snapshots", "run", "ratio", "from, to", "ratio of CPU time")
    rows = table("Tracker with default options on short runs", "network", *headings)
    for name, make, steps in CASES:
        row = measure(make, steps, rounds)
        print(name, steps, *row, flush=True)  # in case a later row fails
        rows.add_row(name, str(steps), *row)
    Console(width=120).print(rows)


def gpt2() -> tuple[nn.Module, Loss]:
    """A GPT-2 of 0.9 million parameters, batches of 8 sequences of 64 tokens."""
    config = GPT2Config(
        n_layer=4, n_head=4, n_embd=128, vocab_size=1000, n_positions=128, bos_token_id=0
    )
    model = GPT2LMHeadModel(config)
    tokens = torch.randint(1000, (8, 64))
    return model, lambda: model(tokens, labels=tokens).loss


def mlp() -> tuple[nn.Module, Loss]:
    """An MLP of 1.9 million parameters, batches of 256 images."""
    model = nn.Sequential(
        nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
    )
    images, labels = torch.randn(256, 784), torch.randint(10, (256,))
    return model, lambda: nn.functional.cross_entropy(model(images), labels)


CASES: tuple[tuple[str, Case, int], ...] = (
    ("GPT-2, 4 layers of 128", gpt2, 300),
    ("GPT-2, 4 layers of 128", gpt2, 30),
    ("MLP, 784-1024-1024-10", mlp, 300),
)


def measure(make: Case, steps: int, rounds: int) -> list[str]:
    """Return a row of the table: medians over rounds, after one that warms up."""
    bare, tracked, snapshots = [], [], []
    for turn in range(-1, rounds):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "run"
            # The order alternates, since the second meets a warmer machine.
            order = (None, path) if turn % 2 else (path, None)
            seconds = {tracked_at: train(make, steps, tracked_at) for tracked_at in order}
            if turn >= 0:
                bare.append(seconds[None])
                tracked.append(seconds[path])
                snapshots.append(rs.open(path).sizes["step"])
    # Neighbouring runs cancel slow drifts of the machine.
    pairs = list(zip(tracked, bare, strict=True))
    wall = sorted(ours[0] / theirs[0] for ours, theirs in pairs)
    cpu = sorted(ours[1] / theirs[1] for ours, theirs in pairs)
    return [
        f"{statistics.median(snapshots):g}",
        f"{statistics.median(seconds for seconds, _ in bare):.2f} s",
        f"{statistics.median(wall):.3f}",
        f"{wall[0]:.3f} to {wall[-1]:.3f}",
        f"{statistics.median(cpu):.3f}",
    ]


def train(make: Case, steps: int, path: Path | None) -> tuple[float, float]:
    """Return wall and CPU seconds of a run; `path` is that of a tracker's run, or None."""
    torch.manual_seed(0)
    model, loss_of = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    wall, cpu = time.perf_counter(), time.process_time()
    tracker = None if path is None else rs.Tracker(model, path)
    for step in range(steps):
        loss = loss_of()
        if tracker is not None:
            tracker.observe(step, loss=loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if tracker is not None:
        tracker.close()
    return time.perf_counter() - wall, time.process_time() - cpu


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    main(rounds=arguments.rounds, threads=arguments.threads)
