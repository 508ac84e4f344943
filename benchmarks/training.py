"""Cost of the laboratory's training loop, and the fastest way to train several small networks.

The first table compares the loop with one written by hand, in short blocks by turns. Both have the
same network, optimizer and order of data. The second table trains a few seeds of one network: one
after another on all cores, in a single-threaded process per core, and stacked with `torch.func`.
"""

import os
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from math import comb
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import torch.nn.functional as F
from rich.console import Console
from torch import Tensor
from torch.func import functional_call, stack_module_state

from benchmarks.timing import by_turns, seconds_of, silent, table
from rankscope.lab.papers.yunis2024 import mlp, vgg
from rankscope.lab.training.evaluation import Truncation
from rankscope.lab.training.loop import Loop
from rankscope.lab.training.order import generator
from rankscope.lab.training.rates import Constant
from rankscope.lab.training.task import Machine
from rankscope.lab.training.training_run import TrainingRun
from rankscope.tracker import Every

CPU = torch.device("cpu")
SEEDS = 4
NEVER = 10**9


# The small networks of yunis2024 on digits. The timed part contains no snapshot.
NETWORKS = {
    name: replace(
        run, steps=NEVER, snapshots=Every(NEVER), rate=Constant(), truncation=Truncation()
    )
    for name, run in {"VGG": vgg.SMALL, "MLP": mlp.SMALL}.items()
}


def main(*, rounds: int = 40, side_by_side_rounds: int = 10) -> None:
    torch.set_num_threads(os.cpu_count() or 1)
    headings = ("by hand", "the loop", "ratio", "95%", "a snapshot beside it")
    loops = table("Training loop on the CPU, digits", "network", *headings)
    for name, run in NETWORKS.items():
        loops.add_row(name, *loop_row(run, rounds=rounds, steps=10 if name == "VGG" else 100))
    Console(width=120).print(loops)
    title = f"{SEEDS} seeds side by side, images/s summed ({cores()} cores)"
    several = table(title, "network", "one after another", "a process per core", "stacked")
    for name, run in NETWORKS.items():
        steps = 5 if name == "VGG" else 50
        several.add_row(name, *several_row(run, rounds=side_by_side_rounds, steps=steps))
    Console(width=120).print(several)


def cores() -> int:
    return torch.get_num_threads()


def loop_row(run: TrainingRun, *, rounds: int, steps: int) -> list[str]:
    bare = Bare(run, seed=0)
    with (
        tempfile.TemporaryDirectory() as folder,
        run.assembled(Path(folder) / "run", seed=0, progress=silent) as (loop, begun),
    ):

        def advance() -> None:
            nonlocal begun
            begun, _ = loop.advance(begun, begun + steps)

        advance(), bare.train(steps)
        loop.tracker.flush()  # the first snapshot must not be timed
        times = by_turns({"bare": lambda: bare.train(steps), "loop": advance}, rounds=rounds)
        for ours, theirs in zip(
            loop.problem.model.parameters(), bare.model.parameters(), strict=True
        ):
            assert torch.equal(ours, theirs), "the two loops did not do the same"
        snapshot = seconds_of(lambda: look(loop))
    ratio, low, high = ratio_of(times["loop"], times["bare"])
    return [
        *(f"{1000 * statistics.median(times[name]) / steps:.2f} ms" for name in ("bare", "loop")),
        f"{ratio:.3f}",
        f"{low:.3f} to {high:.3f}",
        f"{snapshot:.2f} s",
    ]


class Bare:
    """One network in a loop written by hand; all data are floats in memory."""

    def __init__(self, run: TrainingRun, *, seed: int) -> None:
        problem = run.task.build(Machine(), seed=seed)
        everything = problem.draw(torch.arange(problem.samples), generator(seed, "noise"))
        (self.images,) = problem.inputs(*everything)
        self.labels = everything[1]
        self.model = problem.model.train()
        self.optimizer = run.optimizer.build(self.model.parameters(), CPU)
        self.batch, self.seed, self.step = run.batch, seed, 0
        self.permutation = torch.empty(0)

    def indices(self) -> Tensor:
        epoch, position = divmod(self.step, len(self.labels) // self.batch)
        if position == 0:
            drawn = generator(self.seed, "order", epoch)
            self.permutation = torch.randperm(len(self.labels), generator=drawn)
        self.step += 1
        return self.permutation[position * self.batch : (position + 1) * self.batch]

    def train(self, steps: int) -> Tensor:
        for _ in range(steps):
            chosen = self.indices()
            loss = F.cross_entropy(self.model(self.images[chosen]), self.labels[chosen])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return loss.detach()


def look(loop: Loop) -> None:
    """Take a snapshot, evaluate it and wait for the result."""
    loop.tracker.observe(NEVER)
    loop.tracker.flush()


def several_row(run: TrainingRun, *, rounds: int, steps: int) -> list[str]:
    alone = [Bare(run, seed=seed) for seed in range(SEEDS)]
    stacked = Stacked([Bare(run, seed=seed) for seed in range(SEEDS)])
    expected = torch.stack([bare.train(1) for bare in alone])
    torch.testing.assert_close(stacked.train(1), expected, rtol=1e-4, atol=1e-4)
    with Processes.of(run, count=cores()) as processes:
        times = by_turns(
            {
                "alone": lambda: [bare.train(steps) for bare in alone],
                "processes": lambda: processes.train(steps),
                "stacked": lambda: stacked.train(steps),
            },
            rounds=rounds,
        )
    cells = []
    for name, seconds in times.items():
        speed = SEEDS * steps * run.batch / statistics.median(seconds)
        ratio, low, high = ratio_of(times["alone"], seconds)
        against = "" if name == "alone" else f", {ratio:.2f}x ({low:.2f} to {high:.2f})"
        cells.append(f"{speed:,.0f}{against}")
    return cells


class Stacked:
    """Several networks of one shape as one: parameters and batches have a leading axis."""

    def __init__(self, networks: Sequence[Bare]) -> None:
        self.networks = networks
        self.model = networks[0].model
        self.parameters, self.buffers = stack_module_state([bare.model for bare in networks])
        leaves = [value.requires_grad_() for value in self.parameters.values()]
        # SGD acts on each number alone, so a step of the stack is a step of every network.
        self.optimizer = torch.optim.SGD(leaves, **networks[0].optimizer.defaults)

    def train(self, steps: int) -> Tensor:
        losses = torch.vmap(self.loss)
        for _ in range(steps):
            chosen = [bare.indices() for bare in self.networks]
            pairs = list(zip(self.networks, chosen, strict=True))
            images = torch.stack([bare.images[indices] for bare, indices in pairs])
            labels = torch.stack([bare.labels[indices] for bare, indices in pairs])
            loss = losses(self.parameters, self.buffers, images, labels)
            self.optimizer.zero_grad()
            loss.sum().backward()
            self.optimizer.step()
        return loss.detach()

    def loss(
        self,
        parameters: Mapping[str, Tensor],
        buffers: Mapping[str, Tensor],
        images: Tensor,
        labels: Tensor,
    ) -> Tensor:
        logits = functional_call(self.model, {**parameters, **buffers}, images)
        return F.cross_entropy(logits, labels)


@dataclass(frozen=True)
class Processes:
    """Single-threaded processes that train their share of the seeds on request."""

    connections: list[Connection]

    @classmethod
    @contextmanager
    def of(cls, run: TrainingRun, *, count: int) -> "Iterator[Processes]":
        context = get_context("spawn")
        with ExitStack() as stack:
            connections = []
            for first in range(count):
                ours, theirs = context.Pipe()
                seeds = range(first, SEEDS, count)
                process = context.Process(target=serve, args=(theirs, run, seeds))
                process.start()
                theirs.close()  # so that the pipe ends when the process does
                stack.callback(process.join)
                stack.callback(ours.close)
                connections.append(ours)
            yield cls(connections)

    def train(self, steps: int) -> None:
        for connection in self.connections:
            connection.send(steps)
        for connection in self.connections:
            connection.recv()


def serve(connection: Connection, run: TrainingRun, seeds: range) -> None:
    """Serve requests until the pipe closes."""
    torch.set_num_threads(1)
    networks = [Bare(run, seed=seed) for seed in seeds]
    while True:
        try:
            steps = connection.recv()
        except EOFError:
            return
        for bare in networks:
            bare.train(steps)
        connection.send("done")


def ratio_of(times: Sequence[float], to: Sequence[float]) -> tuple[float, float, float]:
    """Median ratio of neighbouring blocks, and its 95% confidence interval.

    The interval comes from the sign test, which assumes only that the noise is independent.
    """
    ratios = sorted(a / b for a, b in zip(times, to, strict=True))
    n, cut, tail = len(ratios), 0, 0.5 ** len(ratios)
    while cut < n // 2 and 2 * tail <= 0.05:
        cut += 1
        tail += comb(n, cut) * 0.5**n
    cut = max(cut - 1, 0)
    return statistics.median(ratios), ratios[cut], ratios[n - 1 - cut]


if __name__ == "__main__":
    main()
