"""Folders of shards, models and adapters; nothing outside a folder is read."""

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from rankscope.checkpoints import open_checkpoint

REAL = Path(os.environ.get("RANKSCOPE_DATA", "")) / "checkpoints"


def sharded(folder: Path, *, count: int = 3, index: bool = True) -> dict[str, torch.Tensor]:
    """Write `count` shards of two tensors each and return all tensors."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, torch.Tensor] = {}
    weight_map: dict[str, str] = {}
    for number in range(count):
        part = {f"layers.{number}.{key}.weight": torch.randn(4, 3) for key in "ab"}
        name = f"model-{number + 1:05}-of-{count:05}.safetensors"
        save_file(part, folder / name)
        tensors |= part
        weight_map |= dict.fromkeys(part, name)
    if index:
        text = json.dumps({"metadata": {}, "weight_map": weight_map})
        (folder / "model.safetensors.index.json").write_text(text)
    return tensors


@pytest.mark.parametrize("index", [True, False])
def test_shards_are_read_as_one(tmp_path: Path, index: bool) -> None:
    tensors = sharded(tmp_path, index=index)
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.tensors.keys() == tensors.keys()
    assert all(torch.equal(checkpoint.read(name), tensors[name]) for name in tensors)
    assert not checkpoint.problems and checkpoint.source == str(tmp_path)


@pytest.mark.parametrize("index", [True, False])
def test_a_missing_shard_is_named_and_the_rest_read(tmp_path: Path, index: bool) -> None:
    sharded(tmp_path, index=index)
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    checkpoint = open_checkpoint(tmp_path)
    assert len(checkpoint.tensors) == 4
    (problem,) = checkpoint.problems
    assert "00002-of-00003" in problem if index else problem == "1 of 3 shards are missing: 2"


def test_one_shard_alone_names_the_missing_one(tmp_path: Path) -> None:
    sharded(tmp_path, count=2, index=False)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    checkpoint = open_checkpoint(tmp_path)
    assert len(checkpoint.tensors) == 2
    assert checkpoint.problems == ("1 of 2 shards are missing: 2",)


def test_a_damaged_shard_is_named_and_the_rest_read(tmp_path: Path) -> None:
    sharded(tmp_path)
    (tmp_path / "model-00003-of-00003.safetensors").write_bytes(b"\x05" * 9)
    (problem,) = open_checkpoint(tmp_path).problems
    assert "00003-of-00003" in problem and "2 tensors are missing with it" in problem


def test_an_index_that_disagrees_with_its_shards_is_named(tmp_path: Path) -> None:
    sharded(tmp_path, count=2)
    path = tmp_path / "model.safetensors.index.json"
    content = json.loads(path.read_text())
    content["weight_map"]["ghost"] = "model-00001-of-00002.safetensors"
    del content["weight_map"]["layers.1.a.weight"]
    path.write_text(json.dumps(content))
    checkpoint = open_checkpoint(tmp_path)
    assert "layers.1.a.weight" not in checkpoint.tensors
    assert [line.partition(" ")[2] for line in checkpoint.problems] == [
        "lacks 1 tensors that the index puts there, first 'ghost'",
        "holds 'layers.1.a.weight', which is not in the index",
    ]


@pytest.mark.parametrize("name", ["../secret.safetensors", "/etc/passwd", "a/b", "..", "", "x\0y"])
def test_shards_outside_the_folder_are_not_read(tmp_path: Path, name: str) -> None:
    save_file({"secret": torch.ones(2, 2)}, tmp_path / "secret.safetensors")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"secret": name}})
    )
    with pytest.raises(ValueError, match="no plain file name, and nothing outside"):
        open_checkpoint(folder)


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    save_file({"secret": torch.ones(2, 2)}, tmp_path / "secret.safetensors")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.safetensors").symlink_to(tmp_path / "secret.safetensors")
    with pytest.raises(ValueError, match="a link that leads outside its folder; pass the file"):
        open_checkpoint(folder)
    assert "secret" in open_checkpoint(folder / "model.safetensors").tensors


def test_links_of_the_hub_cache_are_followed(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--a--b" / "snapshots" / "0123"
    blobs = tmp_path / "models--a--b" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    save_file({"weight": torch.ones(2, 2)}, blobs / "abcd")
    (snapshot / "model.safetensors").symlink_to("../../blobs/abcd")
    assert "weight" in open_checkpoint(snapshot).tensors


def test_configurations_come_along(tmp_path: Path) -> None:
    save_file({"weight": torch.ones(2, 2)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    (tmp_path / "adapter_config.json").write_text("{")
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.metadata["config"] == {"model_type": "gpt2"}
    (problem,) = checkpoint.problems
    assert "adapter_config.json" in problem


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "weights.safetensors"])
def test_a_file_with_a_usual_name_has_the_configurations_beside_it(
    tmp_path: Path, name: str
) -> None:
    save_file({"weight": torch.ones(2, 2)}, tmp_path / name)
    (tmp_path / "adapter_config.json").write_text('{"r": 8}')
    expected = {"r": 8} if name.startswith("adapter") else None
    assert open_checkpoint(tmp_path / name).metadata.get("adapter_config") == expected


def test_an_index_has_the_configurations_beside_it(tmp_path: Path) -> None:
    sharded(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    checkpoint = open_checkpoint(tmp_path / "model.safetensors.index.json")
    assert checkpoint.metadata["config"] == {"model_type": "gpt2"}


def test_other_places_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not exist; pass the path"):
        open_checkpoint(tmp_path / "nothing")
    with pytest.raises(ValueError, match="holds no checkpoint that is known"):
        open_checkpoint(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="is not a file"):
        open_checkpoint(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(ValueError, match="cannot be read"):
        open_checkpoint(tmp_path / "loop")


@pytest.mark.skipif("RANKSCOPE_DATA" not in os.environ, reason="needs RANKSCOPE_DATA")
def test_a_real_adapter_is_read() -> None:
    checkpoint = open_checkpoint(REAL / "gpt2-lora-emotion")
    assert checkpoint.metadata["adapter_config"]["r"] == 8
    assert all(checkpoint.read(name).isfinite().all() for name in checkpoint.tensors)
