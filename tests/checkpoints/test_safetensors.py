"""Safetensors files: equal to the library's own reading, and refused where bytes do not add up."""

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import rankscope as rs
from rankscope.checkpoints import open_checkpoint
from rankscope.checkpoints.files import LocalFile
from rankscope.checkpoints.json_text import MOST_BYTES
from rankscope.checkpoints.safetensors import DTYPES, open_safetensors
from rankscope.checkpoints.tensors import HUGE_PAGE

REAL = Path(os.environ.get("RANKSCOPE_DATA", "")) / "checkpoints"


def random_bytes(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    count = torch.Size(shape).numel() * dtype.itemsize
    bits = torch.randint(0, 2 if dtype == torch.bool else 256, (count,), dtype=torch.uint8)
    return bits.view(dtype).reshape(shape)


@pytest.mark.parametrize("dtype", sorted(set(DTYPES.values()), key=str))
def test_each_type_is_read_to_the_bit(tmp_path: Path, dtype: torch.dtype) -> None:
    tensors = {"a": random_bytes(dtype, 5, 3), "empty": random_bytes(dtype, 0, 4)}
    tensors["scalar"] = random_bytes(dtype)
    save_file(tensors, tmp_path / "x.safetensors")
    checkpoint = open_safetensors(LocalFile.at(tmp_path / "x.safetensors"))
    assert checkpoint.tensors.keys() == tensors.keys()
    for name, tensor in tensors.items():
        stored, read = checkpoint.tensors[name], checkpoint.read(name)
        assert stored.shape == tuple(tensor.shape) == tuple(read.shape)
        assert stored.dtype == read.dtype == dtype
        assert stored.bytes == tensor.numel() * dtype.itemsize
        assert torch.equal(read.reshape(-1).view(torch.uint8), tensor.reshape(-1).view(torch.uint8))
    rows = checkpoint.read_rows("a", 1, 4).reshape(-1).view(torch.uint8)
    assert torch.equal(rows, tensors["a"][1:4].reshape(-1).view(torch.uint8))


def test_numbers_are_in_memory_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_file({"a": torch.ones(3, 3)}, path)
    checkpoint = open_checkpoint(path)
    checkpoint.read("a").zero_()
    assert checkpoint.read("a").eq(1).all()


def test_large_tensors_begin_at_a_huge_page(tmp_path: Path) -> None:
    tensor = torch.randn(2**20 + 7, 1)
    save_file({"a": torch.ones(3), "b": tensor}, tmp_path / "x.safetensors")
    read = open_checkpoint(tmp_path / "x.safetensors").read("b")
    assert torch.equal(read, tensor) and read.data_ptr() % HUGE_PAGE == 0


def test_unknown_names_and_rows_are_refused(tmp_path: Path) -> None:
    save_file({"weight": torch.ones(3, 3)}, tmp_path / "x.safetensors")
    checkpoint = open_checkpoint(tmp_path / "x.safetensors")
    with pytest.raises(ValueError, match="has no tensor 'weights', close: 'weight'"):
        checkpoint.read("weights")
    with pytest.raises(ValueError, match="rows 2 to 4 are not within"):
        checkpoint.read_rows("weight", 2, 4)


def forged(path: Path, header: object, data: bytes = bytes(24)) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def entry(begin: int, end: int, **changes: Any) -> dict[str, Any]:
    return {"dtype": "F32", "shape": [(end - begin) // 4], "data_offsets": [begin, end]} | changes


@pytest.mark.parametrize(
    ("header", "match"),
    [
        ({"a": entry(0, 16), "b": entry(12, 24)}, "'b': it overlaps another tensor at byte 12"),
        ({"a": entry(0, 8), "b": entry(12, 24)}, "'b': it follows a gap at byte 12"),
        ({"a": entry(0, 20)}, "its tensors take 20 bytes and 24 follow"),
        ({"a": entry(0, 28)}, "its tensors take 28 bytes and 24 follow"),
        ({"a": entry(0, 24, shape=[7])}, r"F32 numbers of shape \(7,\) do not fill"),
        ({"a": entry(0, 24, shape=[-2, -3])}, "its shape is no list of sizes"),
        ({"a": entry(0, 24, shape=[2**40] * 3)}, "do not fill"),
        ({"a": entry(0, 24, shape=[True, 6])}, "its shape is no list of sizes"),
        ({"a": entry(0, 24, shape=6)}, "its shape is no list of sizes"),
        ({"a": entry(0, 24, dtype="Q4")}, "unknown type 'Q4'"),
        ({"a": entry(0, 24, dtype=["F32"])}, "unknown type"),
        ({"a": entry(0, 24, data_offsets=[24])}, "no two positions"),
        ({"a": entry(0, 24, data_offsets=[0, 10**30])}, "no two positions"),
        ({"a": [1]}, "expected dtype, shape and data_offsets"),
        ({"a": entry(0, 24, extra=1)}, "expected dtype, shape and data_offsets"),
        (b'{"a": {"dtype":"F32","dtype":"F64"}}', "'dtype' is listed twice"),
        (b'{"a":1,"a":2}', "'a' is listed twice"),
        (b"[" * 100_000, "cannot be read"),
        (b'{"a"', "it holds no JSON"),
        (b"{\xff}", "it holds no JSON"),
        (b"{" + b" " * MOST_BYTES + b"}", "more than the 16777216 that are read"),
    ],
)
def test_headers_that_do_not_add_up_are_refused(tmp_path: Path, header: object, match: str) -> None:
    with pytest.raises(ValueError, match=match) as refusal:
        open_checkpoint(forged(tmp_path / "x.safetensors", header))
    assert "\n" not in str(refusal.value)


def test_a_length_beyond_the_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(struct.pack("<Q", 2**62) + b"{}")
    with pytest.raises(ValueError, match="its header should have 4611686018427387904 bytes"):
        open_checkpoint(path)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-4])


def replaced(path: Path) -> None:
    content = path.read_bytes()
    path.rename(path.with_name("old"))
    path.write_bytes(content)


@pytest.mark.parametrize("accident", [cut, replaced, Path.unlink])
def test_a_file_that_changes_while_it_is_read_is_noticed(
    tmp_path: Path, accident: Callable[[Path], None]
) -> None:
    path = tmp_path / "x.safetensors"
    save_file({"a": torch.ones(3, 3)}, path)
    checkpoint = open_checkpoint(path)
    accident(path)
    with pytest.raises(ValueError, match=r"changed while it was read|cannot be read: No such"):
        checkpoint.read("a")


@pytest.mark.skipif("RANKSCOPE_DATA" not in os.environ, reason="needs RANKSCOPE_DATA")
def test_real_files_are_read() -> None:
    from safetensors import safe_open

    for path in sorted(REAL.rglob("*.safetensors")):
        checkpoint = open_checkpoint(path)
        with safe_open(path, "pt") as expected:
            assert list(checkpoint.tensors) == list(expected.keys()) or set(
                checkpoint.tensors
            ) == set(expected.keys())
            for name in checkpoint.tensors:
                assert torch.equal(checkpoint.read(name), expected.get_tensor(name))


def test_names_and_empty_shapes_that_nobody_could_show(tmp_path: Path) -> None:
    """No byte of the file stands behind these axes, and sums over them would take all memory."""
    odd = {"long": "x" * 2000, "wide": "wide.weight", "escape": "\x1b[31m"}
    entry = {"dtype": "F32", "data_offsets": [0, 0]}
    header = {
        odd["wide"]: {**entry, "shape": [0, 2**49, 3]},
        odd["long"]: {**entry, "shape": [0, 4]},
        odd["escape"]: {**entry, "shape": [0, 4]},
        "empty.weight": {**entry, "shape": [0, 2**30]},
        "a.weight": {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]},
    }
    text = json.dumps(header).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + struct.pack("<2f", 3, 4))
    checkpoint = open_checkpoint(path)
    assert checkpoint.tensors.keys() == {"empty.weight", "a.weight"}
    assert checkpoint.read("a.weight").tolist() == [[3.0], [4.0]]
    names, shapes = checkpoint.problems
    assert names.startswith("2 tensors have names that no terminal should show, first 'xxx")
    assert shapes == (
        "1 tensors are empty and of unreasonable size, first 'wide.weight' of shape "
        f"{(0, 2**49, 3)}"
    )
    scan = rs.scan(path, include="empty")
    assert scan.table()["norm"].tolist() == [0.0]
