"""Two processes, DDP and FSDP2: one writer, the spectra of the unsharded model, no hang."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import rankscope as rs

CHILD = """
import os, sys, warnings, torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
import rankscope as rs
import rankscope.snapshot

folder, rank, way, trouble = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
if way != "alone":
    meeting = f"file://{folder}/{way}-{trouble}-meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 4))
attention = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
model = nn.Sequential(model, attention)
if way == "ddp":
    model = DistributedDataParallel(model)
elif way == "fsdp2":
    from torch.distributed.device_mesh import init_device_mesh
    mesh = init_device_mesh("cpu", (2,))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
path = f"{folder}/{way}-{trouble}"
if trouble == "disk":
    open(path, "w").close()
    path += "/run"
warnings.simplefilter("ignore")
reference = "init"
if trouble == "reference":
    reference = model
if trouble == "mistake" and rank == 0:
    os.makedirs(path)
    open(f"{path}/in the way", "w").close()
if trouble == "mistake":
    dist.barrier()
    try:
        rs.Tracker(model, path, schedule=1)
    except ValueError:
        print("refused", flush=True)
    dist.barrier()
    dist.destroy_process_group()
    sys.exit()
with rs.Tracker(model, path, schedule=1, reference=reference) as tracker:
    norm = 1.0
    for step in range(4):
        if trouble == "worker" and step == 2 and rank == 0:
            def fail(*args, **kwargs):
                raise OSError("broken")
            rs.snapshot.measure = fail
            tracker.flush()
        tracker.observe(step, loss=float(step), norm=norm)
        if trouble == "worker" and rank == 0:
            tracker.flush()
        generator = torch.Generator().manual_seed(step)
        loss = model(torch.randn(2, 5, 6, generator=generator)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        # Under FSDP2 a sharded scalar: only all ranks together can read it.
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1e6)
        optimizer.step()
print("failed:", tracker.failed, flush=True)
if way != "alone":
    dist.barrier()
    dist.destroy_process_group()
"""


def launch(folder: Path, way: str, trouble: str = "none") -> list[str]:
    ranks = 1 if way == "alone" else 2
    children = [
        subprocess.Popen(
            [sys.executable, "-c", CHILD, str(folder), str(rank), way, trouble],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for rank in range(ranks)
    ]
    said = []
    try:
        for child in children:
            out, err = child.communicate(timeout=90)
            assert child.returncode == 0, err[-3000:]
            said.append(out)
    finally:
        for child in children:
            child.kill()
    return said


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alone")
    launch(folder, "alone")
    return folder / "alone-none"


@pytest.mark.parametrize("way", ["ddp", "fsdp2"])
def test_two_processes_agree_with_one(tmp_path, way: str, alone: Path) -> None:
    said = launch(tmp_path, way)
    assert all("failed: None" in out for out in said)
    one, two = rs.open(alone), rs.open(tmp_path / f"{way}-none")
    assert list(one.matrix.values) == list(two.matrix.values)
    assert list(two.step.values) == [0, 1, 2, 3]
    np.testing.assert_allclose(one.norm.values, two.norm.values, rtol=1e-4)
    for name in ("singular_values", "change_singular_values", "product_singular_values"):
        np.testing.assert_allclose(one[name].values, two[name].values, rtol=1e-4, atol=1e-5)


def test_a_sharded_reference_is_gathered_by_all_ranks(tmp_path) -> None:
    said = launch(tmp_path, "fsdp2", "reference")
    assert all("failed: None" in out for out in said)
    change = rs.open(tmp_path / "fsdp2-reference").change_singular_values
    assert float(np.nanmax(change.sel(step=0).values)) == 0.0
    assert float(np.nanmax(change.sel(step=3).values)) > 0.0


def test_a_mistake_ends_every_rank(tmp_path) -> None:
    assert launch(tmp_path, "fsdp2", "mistake") == ["refused\n", "refused\n"]


def test_sharded_ranks_stop_together_when_the_worker_fails_later(tmp_path) -> None:
    said = launch(tmp_path, "fsdp2", "worker")
    assert "OSError: broken" in said[0] and "another rank" in said[1]
    assert list(rs.open(tmp_path / "fsdp2-worker").step.values) == [0, 1]


def test_sharded_ranks_stop_together_when_the_writer_fails(tmp_path) -> None:
    said = launch(tmp_path, "fsdp2", "disk")
    assert "NotADirectoryError" in said[0] or "FileExistsError" in said[0]
    assert "another rank" in said[1]
