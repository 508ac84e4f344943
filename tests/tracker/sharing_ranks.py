"""What ranks do in `test_sharing`: train with trackers that share, fail, or are killed."""

import hashlib
import os
import signal
import time
import warnings
from collections.abc import Iterable
from contextlib import ExitStack, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import rankscope as rs
import rankscope.snapshot
from rankscope.matrices import full_tensor, stored_tensors
from rankscope.tracker import distributed
from tracker.ranks import Case, fail

INPUTS = (2, 5, 7)
SHORT = 4.0  # seconds of patience in tests


def network(way: str, *, ranks: int) -> nn.Module:
    """Return a model of which no matrix is most of the weights."""
    torch.manual_seed(0)
    layers = [
        nn.TransformerEncoderLayer(12, 2, 24, dropout=0.0, batch_first=True) for _ in range(4)
    ]
    model = nn.Sequential(nn.Linear(7, 12), *layers, nn.Linear(12, 5))
    if way == "ddp":
        return DistributedDataParallel(model)
    if way == "fsdp2":
        mesh = init_device_mesh("cpu", (ranks,))
        for layer in model:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    return model


def train(model: nn.Module, trackers: Iterable[rs.Tracker], steps: Iterable[int]) -> None:
    """Train on noise that depends on the step; all ranks have the same, so one would do too."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in steps:
        for tracker in trackers:
            tracker.observe(step, loss=float(step))
        generator = torch.Generator().manual_seed(step)
        loss = model(torch.randn(INPUTS, generator=generator)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def content(model: nn.Module) -> str:
    """Return a digest of all weights."""
    digest = hashlib.sha256()
    for tensor in stored_tensors(model).values():
        digest.update(full_tensor(tensor).detach().numpy().tobytes())
    return digest.hexdigest()


def beside_one(case: Case, rank: int) -> dict[str, Any]:
    """Train with a tracker that shares and one that does not, and without; go back and resume."""
    bare = network(case.way, ranks=case.ranks)
    train(bare, [], range(6))
    model = network(case.way, ranks=case.ranks)
    chain = rs.discover_pairs(network("alone", ranks=1), torch.ones(INPUTS))
    options: dict[str, Any] = {"schedule": 1, "pairs": chain, "top": 4, "places": 1}

    def trackers(stack: ExitStack, **more: Any) -> list[rs.Tracker]:
        return [
            stack.enter_context(rs.Tracker(model, case.path / name, share=share, **options, **more))
            for name, share in (("shared", True), ("one", False))
        ]

    with ExitStack() as stack:
        shared, one = trackers(stack)
        train(model, [shared, one], range(4))
        shared.snapshot(4)
        one.snapshot(4)
        shared.flush()
        cost = shared.cost
        parts = shared._sharing.own.plan.parameters
    with ExitStack() as stack:
        train(model, trackers(stack, resume=True), range(4, 6))
    sizes = {name: tensor.nbytes for name, tensor in whole(model).items()}
    wanted = {name: sizes[name] for name in shared.plan.parameters}
    return {
        "failed": [shared.failed, one.failed],
        "neutral": content(bare) == content(model),
        "bytes": cost.bytes,
        "snapshots": cost.snapshots,
        "matrices": len(parts),
        "equal": sum(wanted.values()) / case.ranks,
        "largest": max(wanted.values()),
        "all": sum(wanted.values()),
    }


def whole(model: nn.Module) -> dict[str, Tensor]:
    return {name: full_tensor(t) for name, t in rs.matrices.named_tensors(model).items()}


def resumed(case: Case, rank: int) -> str:
    """Go on with a run that other ranks began, from the step that `trouble` names."""
    model = network(case.way, ranks=case.ranks)
    first = int(case.trouble)
    train(model, [], range(first))
    share = True if case.way != "alone" else None
    path = case.folder / "run"
    resume = path.exists()
    beside: Any = "process" if case.way == "ddp" and case.ranks == 2 else None
    if share:
        dist.barrier()
    with rs.Tracker(
        model, path, schedule=1, resume=resume, share=share, strict=True, beside=beside
    ) as tracker:
        train(model, [tracker], range(first, first + 3))
    return str(rs.open(path).attrs.get("ranks")) if rank == 0 else "done"


def in_trouble(case: Case, rank: int) -> tuple[str, float]:
    """Train until rank 1 is in trouble; return why the tracker failed and the seconds waited."""
    model = network(case.way, ranks=case.ranks)
    last = case.ranks - 1
    tracker = rs.Tracker(model, case.path, schedule=1, share=True, places=1)
    train(model, [tracker], range(2))
    tracker.flush()
    dist.barrier()
    distributed.PATIENCE = SHORT
    began = time.monotonic()
    if case.trouble == "measuring" and rank == last:
        rankscope.snapshot.measure = fail
    elif case.trouble == "silent" and rank == last:
        rankscope.snapshot.measure = sleep
    elif case.trouble == "killed" and rank == last:
        os.kill(os.getpid(), signal.SIGKILL)
    elif case.trouble == "raises" and rank == last:
        tracker.close()  # as leaving its with block does
        return f"failed: {tracker.failed}", time.monotonic() - began
    elif case.trouble == "killed while measuring" and rank == last:
        rankscope.snapshot.measure = kill
    for step in range(2, 6):  # no step of training, which would notice a rank that is gone
        tracker.observe(step)
    tracker.close()
    return f"failed: {tracker.failed}", time.monotonic() - began


def sleep(*arguments: object, **options: object) -> None:
    time.sleep(3 * SHORT)


def kill(*arguments: object, **options: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def left_to_one(case: Case, rank: int) -> list[str]:
    """Return what the runs say of who measured, where ranks cannot share."""
    model = network(case.way, ranks=case.ranks)
    probe = Nothing()
    with rs.Tracker(model, case.folder / "probe", schedule=1, probe=probe) as tracker:
        train(model, [tracker], range(2))
    try:
        rs.Tracker(model, case.folder / "refused", probe=probe, share=True)
    except ValueError as mistake:
        refusal = str(mistake)
    other = network("alone", ranks=1)[: 3 + rank]  # stages of a pipeline, for instance
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with rs.Tracker(other, case.folder / "models", schedule=1, share=True) as tracker:
            tracker.observe(0)
    dist.barrier()
    told = [rs.open(case.folder / name).attrs["ranks"] for name in ("probe", "models")]
    dist.barrier()
    return [refusal, str(caught[0].message), *told]


def full_places(case: Case, rank: int) -> dict[str, Any]:
    """Leave out a step for which one rank has no place, rest, and go on without one matrix."""
    model = network("alone", ranks=1)
    with rs.Tracker(
        model, case.path, schedule=1, share=True, when_full="skip", places=1, strict=True
    ) as tracker:
        with tracker._worker.held() if rank == 1 else nullcontext():
            tracker.observe(0)
            tracker.observe(1)
            dist.barrier()
        with tracker.paused():  # the snapshots of all ranks are committed before any may rest
            committed = tracker.committed
            dist.barrier()
        tracker.observe(2)
        tracker.flush()
        dist.barrier()
        model[0] = nn.Linear(6, 12)
        tracker._notices._strict = False
        tracker.observe(3)
    return {"failed": tracker.failed, "committed": committed}


class Nothing:
    """A probe that measures nothing."""

    def __init__(self) -> None:
        self.directions: dict[str, int] = {}

    def __call__(self, tensors: object, directions: object) -> dict[str, float]:
        return {}
