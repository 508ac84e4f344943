"""Torch's distributed checkpoints, written by torch: whole, sharded, and damaged."""

import os
import pickle
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp

from rankscope.checkpoints import open_checkpoint

pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns of its own single-process mode


def state() -> dict[str, torch.Tensor]:
    names = {"layers.0.weight": (6, 4), "layers.0.bias": (6,), "model.head": (3, 6), "scale": ()}
    return {name: torch.randn(shape).bfloat16() for name, shape in names.items()}


def saved(folder: Path, content: dict[str, Any]) -> Path:
    dcp.save(content, checkpoint_id=folder, no_dist=True)
    return folder


@pytest.mark.parametrize("wrap", ["", "model"])
def test_tensors_are_those_that_were_saved(tmp_path: Path, wrap: str) -> None:
    tensors = state()
    content = {wrap: tensors, "optimizer": {"state": {0: torch.ones(2, 2)}}} if wrap else tensors
    content = {**content, "train_state": {"step": torch.tensor(3)}}
    checkpoint = open_checkpoint(saved(tmp_path / "step", content))
    assert checkpoint.tensors.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert torch.equal(checkpoint.read(name), tensor)
        assert checkpoint.tensors[name].bytes == tensor.numel() * 2
    assert torch.equal(checkpoint.read_rows("model.head", 1, 3), tensors["model.head"][1:3])


NESTED = {
    "the state of an application": lambda weights, other: {
        "app": {"model": weights, "optim": other}
    },
    "a container of another name": lambda weights, other: {"net": weights, "optimizer": other},
    "an optimizer within": lambda weights, other: {"a": {"optim": {"model": other}, "w": weights}},
}


@pytest.mark.parametrize("nested", NESTED.values(), ids=NESTED)
def test_only_weights_are_taken_out_of_nested_dicts(tmp_path: Path, nested: Any) -> None:
    tensors = state()
    other = {"state": {name: torch.ones(2, 2) for name in tensors}}
    checkpoint = open_checkpoint(saved(tmp_path / "step", nested(tensors, other)))
    assert checkpoint.tensors.keys() == tensors.keys() and not checkpoint.problems
    assert all(torch.equal(checkpoint.read(name), tensors[name]) for name in tensors)


def test_two_models_keep_their_names(tmp_path: Path) -> None:
    models = {name: {"model": state(), "optim": state()} for name in ("generator", "critic")}
    checkpoint = open_checkpoint(saved(tmp_path / "step", models))
    expected = {
        f"{name}.model.{key}": model["model"][key]
        for name, model in models.items()
        for key in state()
    }
    assert checkpoint.tensors.keys() == expected.keys()
    assert all(torch.equal(checkpoint.read(name), tensor) for name, tensor in expected.items())


SHARDED = """
import os, sys, torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.tensor import DeviceMesh, Replicate, Shard, distribute_tensor
rank, folder = int(sys.argv[1]), sys.argv[2]
store = dist.FileStore(folder + ".store", 2)
dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
mesh = DeviceMesh("cpu", [0, 1])
torch.manual_seed(0)
W = torch.randn(7, 6)
tensors = {
    "rows": distribute_tensor(W, mesh, [Shard(0)]),
    "columns": distribute_tensor(W, mesh, [Shard(1)]),
    "whole": distribute_tensor(W, mesh, [Replicate()]),
    "uneven": distribute_tensor(W[:1], mesh, [Shard(0)]),
}
dcp.save({"model": tensors}, checkpoint_id=folder)
dist.destroy_process_group()
os._exit(0)  # threads of gloo may outlive the group and abort a usual exit
"""


def test_shards_of_several_processes_are_joined(tmp_path: Path) -> None:
    folder = tmp_path / "step"
    ranks = [
        subprocess.Popen([sys.executable, "-W", "ignore", "-c", SHARDED, str(rank), str(folder)])
        for rank in range(2)
    ]
    assert [process.wait(120) for process in ranks] == [0, 0]
    torch.manual_seed(0)
    W = torch.randn(7, 6)
    checkpoint = open_checkpoint(folder)
    for name, expected in {"rows": W, "columns": W, "whole": W, "uneven": W[:1]}.items():
        assert torch.equal(checkpoint.read(name), expected), name
        assert checkpoint.tensors[name].shape == tuple(expected.shape)
    for name in ("rows", "columns"):
        assert torch.equal(checkpoint.read_rows(name, 3, 5), W[3:5])
    os.remove(folder / "__1_0.distcp")
    rest = open_checkpoint(folder)
    assert "rows" not in rest.tensors and len(rest.problems) >= 2
    assert all("__1_0.distcp" in problem for problem in rest.problems)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return saved(tmp_path / "step", state())


def forge(folder: Path, change: Any) -> None:
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    change(metadata)
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))


def elsewhere(metadata: Any) -> None:
    places = metadata.storage_data
    for index, place in places.items():
        places[index] = replace(place, relative_path="../secret")


def beyond(metadata: Any) -> None:
    places = metadata.storage_data
    for index, place in places.items():
        places[index] = replace(place, length=2**40)


def other_shape(metadata: Any) -> None:
    for name, entry in metadata.state_dict_metadata.items():
        size = torch.Size([*entry.size, 1])
        metadata.state_dict_metadata[name] = replace(entry, size=size)


def hole(metadata: Any) -> None:
    for entry in metadata.state_dict_metadata.values():
        entry.chunks.clear()


def with_chunks(metadata: Any, change: Any) -> None:
    for name, entry in metadata.state_dict_metadata.items():
        chunks = [replace(chunk, **change(chunk)) for chunk in entry.chunks]
        metadata.state_dict_metadata[name] = replace(entry, chunks=chunks)


def before_the_start(metadata: Any) -> None:
    with_chunks(metadata, lambda chunk: {"offsets": tuple(-1 for _ in chunk.offsets)})


def texts_for_sizes(metadata: Any) -> None:
    with_chunks(metadata, lambda chunk: {"sizes": tuple("2" for _ in chunk.sizes)})


def text_for_shape(metadata: Any) -> None:
    for name, entry in metadata.state_dict_metadata.items():
        metadata.state_dict_metadata[name] = replace(entry, size="6")


def far_larger(metadata: Any) -> None:
    def huge(values: Any) -> torch.Size:
        return torch.Size(2**24 for _ in values)

    with_chunks(metadata, lambda chunk: {"sizes": huge(chunk.sizes)})
    for name, entry in metadata.state_dict_metadata.items():
        metadata.state_dict_metadata[name] = replace(entry, size=huge(entry.size))


def one_part_for_two(metadata: Any) -> None:
    """Both halves of a tensor are said to be in the part that is listed without offsets."""
    places = metadata.storage_data
    metadata.storage_data = {replace(i, offset=None): place for i, place in places.items()}
    for name, entry in metadata.state_dict_metadata.items():
        size = torch.Size(2 * n for n in entry.size[:1]) + entry.size[1:]
        second = [replace(c, offsets=c.sizes[:1] + c.offsets[1:]) for c in entry.chunks]
        whole = replace(entry, size=size, chunks=[*entry.chunks, *second])
        metadata.state_dict_metadata[name] = whole


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (before_the_start, "a part of .* is outside of it"),
        (texts_for_sizes, "a part of .* is outside of it"),
        (text_for_shape, "shape is no list of sizes"),
        (far_larger, "should have shape .* bytes are too few"),
        (one_part_for_two, "a part of .* is nowhere"),
        (elsewhere, "no plain file name, and nothing outside"),
        (beyond, "is cut short"),
        (other_shape, "a part of .* is outside of it"),
        (hole, "the parts of .* do not fill it"),
    ],
)
def test_damaged_metadata_are_refused(folder: Path, change: Any, match: str) -> None:
    forge(folder, change)
    try:
        checkpoint = open_checkpoint(folder)
    except ValueError as refusal:
        sentences = [str(refusal)]
    else:  # the scalar has neither rows nor columns
        assert checkpoint.tensors.keys() == {"scale"}
        sentences = list(checkpoint.problems)
    assert all(re.search(match, sentence) for sentence in sentences), sentences


def test_a_plan_that_lies_is_named_and_not_followed(folder: Path) -> None:
    def move(metadata: Any) -> None:
        metadata.planner_data["layers.0.weight"] = ("optimizer", "layers.0.weight")

    forge(folder, move)
    checkpoint = open_checkpoint(folder)
    assert checkpoint.tensors.keys() == state().keys()
    (problem,) = checkpoint.problems
    assert "its plan has 'layers.0.weight' under another name" in problem


def test_a_part_that_is_listed_twice_is_refused(folder: Path) -> None:
    """Python's dicts have no equal keys, but a file may."""
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    index, place = next(iter(metadata.storage_data.items()))

    twin = replace(index, fqn="another")
    metadata.storage_data[twin] = place
    object.__setattr__(twin, "fqn", index.fqn)
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    with pytest.raises(ValueError, match="is listed twice"):
        open_checkpoint(folder)


def test_metadata_that_want_to_call_something_are_refused(folder: Path, tmp_path: Path) -> None:
    (folder / ".metadata").write_bytes(b"cos\nmkdir\n(X\x01\x00\x00\x00atR.")
    with pytest.raises(ValueError, match=r"wants to call os\.mkdir"):
        open_checkpoint(folder)


def test_parts_that_overlap_are_refused(folder: Path) -> None:
    from rankscope.checkpoints.dcp_chunks import Chunk, Chunks
    from rankscope.checkpoints.files import LocalFile, Part

    part = Part(LocalFile.at(folder / ".metadata"), 0, 1)
    grid = [(2 * i, 2 * j) for i in range(40) for j in range(40)]
    late = [*grid[:-1], grid[-2]]
    for boxes in ([(0, 0), (1, 0)], [(0, 0), (0, 1)], late):
        chunks = tuple(Chunk(offsets, (2, 2), part) for offsets in boxes)
        with pytest.raises(ValueError, match="two parts of 'w' overlap"):
            Chunks("w", (80, 80), torch.float32, chunks).load()
    whole = Chunks("w", (80, 80), torch.float32, tuple(Chunk(b, (2, 2), part) for b in grid))
    with pytest.raises(ValueError, match="does not hold 'w' as torch"):
        whole.load()
