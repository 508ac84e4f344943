"""GGUF files written by the `gguf` package: equal to its own reading, damaged ones refused."""

import struct
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize, quantize

import rankscope as rs
from rankscope.checkpoints import open_checkpoint
from rankscope.checkpoints.gguf import PLAIN
from rankscope.checkpoints.gguf_blocks import has_reader

QUANTISED = sorted(set(GGML_QUANT_SIZES) - set(PLAIN))


def test_sizes_of_blocks_are_those_of_the_format() -> None:
    sizes = {kind.name: size for kind, size in GGML_QUANT_SIZES.items()}
    for number, (name, dtype) in PLAIN.items():
        assert GGMLQuantizationType(number).name == name and sizes[name] == (1, dtype.itemsize)


def written(path: Path, tensors: dict[str, tuple[np.ndarray, GGMLQuantizationType]]) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(2)
    writer.add_token_list([f"token {number}" for number in range(300)])
    writer.add_token_scores([0.5] * 300)
    for name, (data, kind) in tensors.items():
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("quantised", [k for k in QUANTISED if has_reader(k)], ids=lambda k: k.name)
def test_each_quantised_type_is_what_the_package_reads(
    tmp_path: Path, quantised: GGMLQuantizationType
) -> None:
    """Random bytes, with scales that are finite, as the formats put float16 in places of theirs."""
    name, (numbers, size) = quantised.name, GGML_QUANT_SIZES[quantised]
    W = np.random.default_rng(0).normal(size=(6, 2 * numbers)).astype(np.float32)
    try:
        data = quantize(W, quantised)
    except NotImplementedError:
        data = np.random.default_rng(0).integers(0, 60, (6, 2 * size), dtype=np.uint8)
    path = written(tmp_path / "x.gguf", {"blk.0.attn_q.weight": (data, quantised)})
    checkpoint = open_checkpoint(path)
    stored = checkpoint.tensors["blk.0.attn_q.weight"]
    assert stored.shape == (6, 2 * numbers) and stored.format == name
    assert stored.note == f"dequantised from {name}" and stored.bytes == data.nbytes
    expected = torch.from_numpy(dequantize(data, quantised))
    assert torch.equal(checkpoint.read(stored.name), expected)
    assert torch.equal(checkpoint.read_rows(stored.name, 2, 5), expected[2:5])


def test_plain_types_and_experts(tmp_path: Path) -> None:
    W, E = np.random.randn(5, 8).astype(np.float32), np.random.randn(3, 4, 8).astype(np.float16)
    path = written(
        tmp_path / "x.gguf",
        {
            "token_embd.weight": (W, GGMLQuantizationType.F32),
            "blk.0.ffn_gate_exps.weight": (E, GGMLQuantizationType.F16),
        },
    )
    checkpoint = open_checkpoint(path)
    assert checkpoint.metadata["gguf"]["general.architecture"] == "llama"
    np.testing.assert_array_equal(checkpoint.read("token_embd.weight").numpy(), W)
    table = rs.scan(path).table()
    assert table.index.tolist() == ["token_embd", *(f"blk.0.ffn_gate_exps.e{i}" for i in range(3))]
    for number in range(3):
        expected = np.linalg.norm(E[number].astype(np.float64))
        assert table.loc[f"blk.0.ffn_gate_exps.e{number}", "norm"] == pytest.approx(expected)


def test_dequantisation_is_said(tmp_path: Path) -> None:
    data = quantize(np.random.randn(4, 32).astype(np.float32), GGMLQuantizationType.Q8_0)
    path = written(tmp_path / "x.gguf", {"output.weight": (data, GGMLQuantizationType.Q8_0)})
    assert "dequantised from Q8_0" in rs.scan(path).coverage["output.weight"].how


def replaced(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    return lambda data: data.replace(old, new, 1)


COUNT = struct.pack("<Q", 2**40)


@pytest.mark.parametrize(
    ("damage", "match"),
    [
        (lambda data: data[:-1], "reaches beyond the end"),
        (lambda data: data[:40], "it is cut short"),
        (lambda data: data[:4] + struct.pack("<I", 1) + data[8:], "version 1 of the format"),
        (lambda data: data[:8] + COUNT + data[16:], "should have 1099511627776 tensors"),
        (lambda data: data[:16] + COUNT + data[24:], "and 1099511627776 settings"),
        (lambda data: data[:24] + COUNT + data[32:], "a text of 1099511627776 bytes"),
        (replaced(struct.pack("<IQ", 8, 300), struct.pack("<IQ", 8, 2**40)), "too many items"),
        (replaced(struct.pack("<IQ", 6, 300), struct.pack("<IQ", 6, 2**40)), "it is cut short"),
        (replaced(b"b.weight", b"a.weight"), "'a.weight' is listed twice"),
        (replaced(struct.pack("<2Q", 8, 4), struct.pack("<2Q", 8, 2**49)), "beyond the end"),
    ],
)
def test_damaged_files_are_refused(
    tmp_path: Path, damage: Callable[[bytes], bytes], match: str
) -> None:
    W = np.ones((4, 8), np.float32)
    tensors = {name: (W, GGMLQuantizationType.F32) for name in ("a.weight", "b.weight")}
    path = written(tmp_path / "x.gguf", tensors)
    data = path.read_bytes()
    path.write_bytes(damage(data))
    assert path.read_bytes() != data
    with pytest.raises(ValueError, match=match) as refusal:
        open_checkpoint(path)
    assert "\n" not in str(refusal.value)


def test_a_scale_beside_a_weight_is_applied_or_refused(tmp_path: Path) -> None:
    """llama.cpp multiplies what a layer makes by its scale, of BitNet and others."""
    rng = np.random.default_rng(0)
    kind, F32 = GGMLQuantizationType.TQ2_0, GGMLQuantizationType.F32
    data = quantize(rng.normal(size=(4, 256)).astype(np.float32), kind)
    experts = rng.normal(size=(3, 4, 5)).astype(np.float32)
    tensors = {
        "blk.0.attn_q.weight": (data, kind),
        "blk.0.attn_q.scale": (np.array([0.25], np.float32), F32),
        "blk.0.ffn_up_exps.weight": (experts, F32),
        "blk.0.ffn_up_exps.scale": (np.array([1, 2, 3], np.float32), F32),
        "blk.0.attn_k.weight": (experts[0], F32),
        "blk.0.attn_k.scale": (np.ones(7, np.float32), F32),
        "blk.0.attn_v.weight": (experts[1], F32),
    }
    checkpoint = open_checkpoint(written(tmp_path / "x.gguf", tensors))
    expected = 0.25 * torch.from_numpy(dequantize(data, kind))
    assert torch.equal(checkpoint.read("blk.0.attn_q.weight"), expected)
    note = "dequantised from TQ2_0 times scale of the whole tensor"
    assert checkpoint.tensors["blk.0.attn_q.weight"].note == note
    scaled = torch.from_numpy(experts) * torch.tensor([1.0, 2, 3])[:, None, None]
    assert torch.equal(checkpoint.read("blk.0.ffn_up_exps.weight"), scaled)
    assert torch.equal(checkpoint.read_rows("blk.0.ffn_up_exps.weight", 1, 3), scaled[1:])
    assert torch.equal(checkpoint.read("blk.0.attn_v.weight"), torch.from_numpy(experts[1]))
    with pytest.raises(ValueError, match="float32 values without a scale that is known"):
        checkpoint.read("blk.0.attn_k.weight")


def test_types_without_a_reader_are_refused_by_name(tmp_path: Path) -> None:
    unread = [kind for kind in QUANTISED if not has_reader(kind)]
    assert GGMLQuantizationType.Q8_K in unread
    for kind in unread:
        numbers, size = GGML_QUANT_SIZES[kind]
        path = written(
            tmp_path / f"{kind.name}.gguf", {"x.weight": (np.zeros((2, size), np.uint8), kind)}
        )
        stored = open_checkpoint(path).tensors["x.weight"]
        assert stored.shape == (2, numbers)
        assert stored.refusal == f"{kind.name} has no reader in the package gguf"


def test_a_type_of_tomorrow_is_not_called_damage(tmp_path: Path) -> None:
    kind = GGMLQuantizationType.Q8_0
    path = written(tmp_path / "x.gguf", {"x.weight": (np.zeros((2, 34), np.uint8), kind)})
    place = path.read_bytes().index(b"x.weight") + len("x.weight") + 4 + 2 * 8
    with path.open("r+b") as file:
        file.seek(place)
        file.write(struct.pack("<I", 1000))
    with pytest.raises(ValueError, match=r"of type 1000.* update it with pip install -U gguf"):
        open_checkpoint(path)


def test_a_scale_without_a_reader_refuses_its_weight(tmp_path: Path) -> None:
    ones = (np.ones((4, 4), np.float32), GGMLQuantizationType.F32)
    scale = (np.zeros((1, GGML_QUANT_SIZES[GGMLQuantizationType.Q8_K][1]), np.uint8),
             GGMLQuantizationType.Q8_K)  # fmt: skip
    path = written(tmp_path / "x.gguf", {"x.weight": ones, "x.scale": scale, "y.weight": ones})
    tensors = open_checkpoint(path).tensors
    assert "values without a scale that is known" in tensors["x.weight"].refusal
    assert tensors["x.scale"].refusal == "Q8_K has no reader in the package gguf"
    assert not tensors["y.weight"].refusal
    assert list(rs.scan(path).table().index) == ["y"]
