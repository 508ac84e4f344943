"""Processes of `test_distributed`: the ranks of a training, and a nursery that forks them.

Importing torch's sharding takes seconds, so it happens once, in the nursery. That process is
spawned and has no threads that a fork could lose.
"""

import contextlib
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # what optimizers import when they are made
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import rankscope as rs
import rankscope.snapshot
from rankscope.tracker import distributed

SOON = 90.0  # seconds after which a rank that waits for another is taken to hang


@dataclass(frozen=True)
class Case:
    """One training: `way` is "alone", "ddp" or "fsdp2"; `trouble` is what goes wrong.

    deed: what each rank does instead of `train`; it returns the rank's message.
    """

    folder: Path
    way: str
    trouble: str = "none"
    ranks: int = 2
    deed: Callable[["Case", int], object] | None = None

    @property
    def path(self) -> Path:
        return self.folder / f"{self.way}-{self.trouble}"


class Nursery:
    """A process from which the ranks of each case are forked."""

    def __init__(self) -> None:
        context = get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,))
        self._process.start()
        theirs.close()

    def launch(self, case: Case) -> list[Any]:
        """Return each rank's message; its exit code if it sends none, None if it hangs."""
        self._connection.send(case)
        answers: list[Any] = self._connection.recv()
        return answers

    def close(self) -> None:
        self._connection.close()
        self._process.join()


def _serve(connection: Connection) -> None:
    with contextlib.suppress(EOFError):
        while True:
            connection.send(_launch(connection.recv()))


def _launch(case: Case) -> list[Any]:
    context = get_context("fork")
    ranks = []
    for rank in range(1 if case.way == "alone" else case.ranks):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_live, args=(case, rank, theirs))
        process.start()
        theirs.close()
        ranks.append((process, ours))
    answers: list[Any] = []
    for process, ours in ranks:
        process.join(SOON)
        answers.append(ours.recv() if process.exitcode == 0 else process.exitcode)
        process.kill()
        process.join()
    return answers


def _live(case: Case, rank: int, connection: Connection) -> None:
    torch.set_num_threads(1)
    if case.way != "alone":
        meeting = f"file://{case.path}-meeting"
        size = case.ranks
        dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=size)
    warnings.simplefilter("ignore")
    if case.deed is not None:
        connection.send(case.deed(case, rank))
        connection.close()
        os._exit(0)  # ranks that are gone are no longer waited for
    model = network(case.way)
    if case.trouble == "mistake":
        connection.send(refusal(case, model, rank))
    elif case.trouble == "truncate":
        connection.send(truncation(model))
    elif case.trouble in ("one tracker", "one snapshot", "other steps"):
        connection.send(astray(case, model, rank))
    else:
        connection.send(train(case, model))
    if case.way != "alone":
        dist.barrier()
        dist.destroy_process_group()


def network(way: str) -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 4))
    attention = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
    model = nn.Sequential(layers, attention)
    if way == "ddp":
        return DistributedDataParallel(model)
    if way == "fsdp2":
        mesh = init_device_mesh("cpu", (2,))
        for layer in model:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    return model


def refusal(case: Case, model: nn.Module, rank: int) -> str:
    """Track into a folder that is not empty, which only the writing rank notices."""
    if rank == 0:
        case.path.mkdir()
        (case.path / "in the way").touch()
    dist.barrier()
    try:
        rs.Tracker(model, case.path, schedule=1)
    except ValueError:
        return "refused"
    return "accepted"


def truncation(model: nn.Module) -> str:
    """Truncate a sharded model as it is, and then as the message says."""
    try:
        rs.truncate(model)
    except ValueError as refusal:
        assert "get_model_state_dict" in str(refusal)
    else:
        return "accepted"
    options = StateDictOptions(full_state_dict=True)
    whole = network("alone")
    whole.load_state_dict(get_model_state_dict(model, options=options))
    rank = torch.linalg.matrix_rank(rs.truncate(whole, keep=0.5)[0][0].weight)
    return f"rank {int(rank)}"


def astray(case: Case, model: nn.Module, rank: int) -> str:
    """Train while only the first rank has a tracker or takes a snapshot, or with other steps."""
    distributed.START_PATIENCE = distributed.PATIENCE = 1.0
    tracker = None
    if rank == 0 or case.trouble != "one tracker":
        # The forward pass on an example gathers too.
        example = torch.ones(2, 5, 6) if case.trouble == "one tracker" else None
        tracker = rs.Tracker(model, case.path, schedule=1, example=example)
    for step in range(3):
        if tracker is not None:
            tracker.observe(step + 3 * rank if case.trouble == "other steps" else step)
        model(torch.ones(2, 5, 6)).sum().backward()
    if tracker is None:
        return "no tracker"
    if rank == 0:
        tracker.snapshot(9)
    tracker.close()
    return f"failed: {tracker.failed}"


def train(case: Case, model: nn.Module) -> str:
    """Train four steps, take a snapshot, and return why the tracker failed, or None."""
    optimizer, path = torch.optim.SGD(model.parameters(), lr=0.1), case.path
    if case.trouble == "disk":
        path.touch()
        path /= "run"
    reference = model if case.trouble == "reference" else "init"
    breaks = case.trouble == "worker" and dist.get_rank() == 0
    with rs.Tracker(model, path, schedule=1, reference=reference) as tracker:
        norm: float | torch.Tensor = 1.0
        for step in range(4):
            if breaks and step == 2:
                tracker.flush()
                rankscope.snapshot.measure = fail
            tracker.observe(step, loss=float(step), norm=norm)
            if breaks:
                tracker.flush()
            generator = torch.Generator().manual_seed(step)
            loss = model(torch.randn(2, 5, 6, generator=generator)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            # Under FSDP2 a sharded scalar: only all ranks together can read it.
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1e6)
            optimizer.step()
        tracker.snapshot(4, loss=4.0, norm=norm)
    return f"failed: {tracker.failed}"


def fail(*arguments: object, **options: object) -> None:
    raise OSError("broken")
