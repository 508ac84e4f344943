"""Files of torch.save: equal to torch's own reading, and nothing in them is executed."""

import argparse
import io
import pickle
import struct
import time
import zipfile
from collections import OrderedDict, deque
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from rankscope.checkpoints import open_checkpoint, safetensors, torch_files
from rankscope.checkpoints.files import LocalFile
from rankscope.checkpoints.torch_files import open_zip

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.bool]


class Trap:
    """An object whose unpickling creates a file."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> tuple[Callable[..., None], tuple[Path]]:
        return Path.touch, (self.proof,)


def example() -> dict[str, torch.Tensor]:
    """A state dict with strides, offsets, ties, empty and scalar tensors."""
    whole = torch.randn(6, 8)
    tensors = {str(dtype): torch.randn(3, 5).to(dtype) for dtype in DTYPES}
    return tensors | {
        "whole": whole,
        "tied": whole,
        "transposed": whole.T,
        "part": whole[2:5, 1:7],
        "step": whole[::2],
        "empty": torch.zeros(0, 4),
        "scalar": torch.tensor(2.5),
        "parameter": nn.Parameter(torch.randn(2, 2)),
    }


@pytest.mark.parametrize("legacy", [False, True])
def test_tensors_are_those_that_torch_reads(tmp_path: Path, legacy: bool) -> None:
    path = tmp_path / "x.pt"
    torch.save(example(), path, _use_new_zipfile_serialization=not legacy)
    expected = torch.load(path, weights_only=True)
    checkpoint = open_checkpoint(path)
    assert list(checkpoint.tensors) == list(expected)
    for name, tensor in expected.items():
        stored, read = checkpoint.tensors[name], checkpoint.read(name)
        assert stored.shape == tuple(tensor.shape) and stored.dtype == tensor.dtype == read.dtype
        assert torch.equal(read, tensor.detach())
    assert checkpoint.tensors["tied"].tied_to == "whole"
    assert [t.name for t in checkpoint.tensors.values() if t.tied_to] == ["tied"]
    assert torch.equal(checkpoint.read_rows("step", 1, 3), expected["step"][1:3])


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.uint16])
def test_types_without_a_storage_class_are_read(tmp_path: Path, dtype: torch.dtype) -> None:
    tensor = torch.arange(12, dtype=torch.uint8).view(dtype).reshape(-1, 3)
    torch.save({"x": tensor[1:]}, tmp_path / "x.pt")
    # Below the layer that refuses float8 without a scale.
    read = open_zip(LocalFile.at(tmp_path / "x.pt")).read("x")
    assert read.dtype == dtype and torch.equal(read.view(torch.uint8), tensor[1:].view(torch.uint8))


@pytest.mark.parametrize(
    "wrap",
    [
        lambda state: {"state_dict": state, "optimizer": {"state": {0: {"exp_avg": state["w"]}}}},
        lambda state: {"model": state, "args": argparse.Namespace(lr=0.1), "step": 3},
        lambda state: {"state": {"module": state}, "module": OrderedDict(state)},
        lambda state: {"net": state, "path": Path("x"), "size": torch.Size([3])},
        lambda state: OrderedDict(state),
        lambda state: {"model": state, "rng": torch.get_rng_state()},
        lambda state: {"model": {"net": state}, "rng": torch.get_rng_state()},
        lambda state: {"state": {"count": torch.zeros(2)}, "net": state},
        lambda state: {"model": {"width": 3}, **state},
        lambda state: {"net": state, "loss": np.float64(0.5), "steps": np.int64(3)},
        lambda state: {"net": state, "rng": np.random.RandomState(0).get_state()},
        lambda state: {"net": state, "when": datetime(2026, 1, 1, tzinfo=UTC), "raw": b"x"},
        lambda state: {"net": state, "a": deque([1]), "b": range(3), "c": 1j, "d": slice(2)},
        lambda state: {"net": state, "e": frozenset({1}), "f": bytearray(b"x"), "g": {1, 2}},
    ],
)
@pytest.mark.parametrize("legacy", [False, True])
def test_weights_are_found_beside_other_things(tmp_path: Path, wrap: Any, legacy: bool) -> None:
    state = {"w": torch.randn(3, 2)}
    path = tmp_path / "x.pt"
    torch.save(wrap(state), path, _use_new_zipfile_serialization=not legacy)
    checkpoint = open_checkpoint(tmp_path / "x.pt")
    assert list(checkpoint.tensors) == ["w"]
    assert torch.equal(checkpoint.read("w"), state["w"])


def test_several_state_dicts_are_all_read(tmp_path: Path) -> None:
    nets = {name: {"w": torch.randn(3, 2)} for name in ("generator", "critic")}
    torch.save({**nets, "optimizer": {"state": {0: {"step": torch.zeros(2, 2)}}}}, tmp_path / "x")
    checkpoint = open_checkpoint(tmp_path / "x")
    assert list(checkpoint.tensors) == ["generator.w", "critic.w"]
    assert torch.equal(checkpoint.read("critic.w"), nets["critic"]["w"])


@pytest.mark.parametrize("outer", ["a", "model"])
def test_a_dict_that_is_named_very_often_is_looked_at_once(tmp_path: Path, outer: str) -> None:
    inner = dict.fromkeys(map(str, range(50_000)), 0)
    many = dict.fromkeys(map(str, range(50_000)), inner)
    torch.save({outer: many, "b": many}, tmp_path / "x.pt")
    began = time.process_time()
    with pytest.raises(ValueError, match="expected tensors by name"):
        open_checkpoint(tmp_path / "x.pt")
    assert time.process_time() - began < 20


def test_the_buffers_of_modules_come_along(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.LSTM(4, 5))
    torch.save(model.state_dict(), tmp_path / "x.pt")
    checkpoint = open_checkpoint(tmp_path / "x.pt")
    for name, tensor in model.state_dict().items():
        assert torch.equal(checkpoint.read(name), tensor)


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("key", ["weights", "extra"])
def test_nothing_is_executed(tmp_path: Path, legacy: bool, key: str) -> None:
    content = {"w": torch.zeros(2, 2), key: Trap(tmp_path / "proof")}
    path = tmp_path / "x.pt"
    torch.save(content, path, _use_new_zipfile_serialization=not legacy)
    with pytest.raises(ValueError, match=r"wants to call pathlib\.Path\.touch|cannot be read"):
        open_checkpoint(path)
    assert not (tmp_path / "proof").exists()
    torch.load(path, weights_only=False)
    assert (tmp_path / "proof").exists()


def archive(path: Path, data: bytes, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("x/data.pkl", data)
        for name, content in members.items():
            file.writestr(f"x/{name}", content)
    return path


@pytest.mark.parametrize(
    "data",
    [
        b"cos\nsystem\n(X\x04\x00\x00\x00trueetR.",
        b"cbuiltins\neval\n(X\x01\x00\x00\x001tR.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93)\x81.",
        b"(S'true'\nios\nsystem\n.",
        b"\x80\x02\x82\x01.",
        b"\x80\x02}q\x00(h\x00h\x00u.",
        b"\x80\x02r\xff\xff\xff\xff.",
        b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.",
        b"\x80\x04\x8b\xff\xff\xff\x7f" + b"1" * 100 + b".",
        b")" + b"2\x86" * 100 + b"}r\x00\x00\x00\x000(h\x00t.",
        b"}" + b")" + b"2\x86" * 64 + b"Ns.",
        b"]" * 100_000 + b".",
        b"}(" + b"K\x01" * 100 + b"tNs.",  # a long key, which is hashed each time anew
        # A list of 1000 pairs that becomes a dict 100,000 times.
        b"]("
        + b"X\x02\x00\x00\x00ab" * 1000
        + b"e\x85q\x010ccollections\nOrderedDict\nq\x020"
        + b"h\x02h\x01R" * 100_000
        + b"N.",
        b"",
        b".",
        b"1",
    ],
)
def test_crafted_pickles_cost_a_sentence(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(ValueError, match=r"cannot be read as a checkpoint") as refusal:
        open_checkpoint(archive(tmp_path / "x.pt", data))
    assert "\n" not in str(refusal.value) and len(str(refusal.value)) < 500


def test_more_tensors_than_a_file_can_mean_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = {f"{number}.weight": torch.zeros(2, 2) for number in range(5)}
    torch.save(state, tmp_path / "x.pt")
    save_file(state, tmp_path / "x.safetensors")
    for module in (torch_files, safetensors):
        monkeypatch.setattr(module, "MOST_TENSORS", 4)
    with pytest.raises(ValueError, match="it has 5 entries"):
        open_checkpoint(tmp_path / "x.pt")
    with pytest.raises(ValueError, match="its header lists 5 tensors"):
        open_checkpoint(tmp_path / "x.safetensors")


def tensor_pickle(offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> bytes:
    """The pickle of a state dict with one tensor of 6 numbers, with another shape."""
    buffer = io.BytesIO()
    torch.save({"w": torch.zeros(1, 2, 3)}, buffer)
    with zipfile.ZipFile(buffer) as file:
        data = file.read("archive/data.pkl")
    before, _, rest = data.partition(b"QK\x00")
    rest = rest[rest.index(b"\x89") :]

    def tuple_of(sizes: tuple[int, ...]) -> bytes:
        numbers = b"".join(b"\x8a\x09" + struct.pack("<qb", n, -1 if n < 0 else 0) for n in sizes)
        return b"(" + numbers + b"t"

    return (
        before
        + b"Q\x8a\x09"
        + struct.pack("<qb", offset, -1 if offset < 0 else 0)
        + (tuple_of(shape) + tuple_of(strides) + rest)
    )


@pytest.mark.parametrize(
    ("offset", "shape", "strides", "match"),
    [
        (0, (1, 2, 3), (6, 3, 1), None),
        (1, (1, 2, 3), (6, 3, 1), "reaches beyond its numbers"),
        (0, (7,), (1,), "reaches beyond its numbers"),
        (0, (2, 2), (5, 1), "reaches beyond its numbers"),
        (-1, (2,), (1,), "unreasonable size"),
        (0, (2,), (-1,), "unreasonable size"),
        (0, (2**49, 2**49), (0, 0), "repeats its numbers"),
        (0, (2**60,), (0,), "unreasonable size"),
        (0, (2, 2), (1,), "shape and strides disagree"),
        (0, (1,) * 17, (1,) * 17, "no list of sizes"),
    ],
)
def test_shapes_stay_within_the_numbers(
    tmp_path: Path, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], match: str | None
) -> None:
    data = tensor_pickle(offset, shape, strides)
    path = archive(tmp_path / "x.pt", data, **{"data/0": bytes(24)})
    if match is None:
        assert open_checkpoint(path).read("w").shape == (1, 2, 3)
        return
    with pytest.raises(ValueError, match=match):
        open_checkpoint(path)


@pytest.mark.parametrize(
    ("members", "match"),
    [
        ({}, "its archive lacks the numbers '0'"),
        ({"data/0": bytes(20)}, "its archive lacks the numbers '0'"),
        ({"data/0": bytes(24), "byteorder": b"big"}, "big-endian"),
        ({"data/0": bytes(24), "constants.pkl": b""}, "a TorchScript program"),
    ],
)
def test_archives_of_another_kind_are_refused(
    tmp_path: Path, members: dict[str, bytes], match: str
) -> None:
    path = archive(tmp_path / "x.pt", tensor_pickle(0, (6,), (1,)), **members)
    with pytest.raises(ValueError, match=match):
        open_checkpoint(path)


def flipped(path: Path, number: float) -> None:
    """Change one bit of a float32 number that a file holds once."""
    data = path.read_bytes()
    old = struct.pack("<f", number)
    assert data.count(old) == 1
    path.write_bytes(data.replace(old, struct.pack("<f", -number)))


def test_numbers_that_differ_from_their_checksum_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save({"good": torch.ones(2, 2), "bad": torch.tensor([[0.5, 123.75]])}, path)
    flipped(path, 123.75)
    checkpoint = open_checkpoint(path)
    assert checkpoint.read("good").tolist() == [[1, 1], [1, 1]]
    with pytest.raises(ValueError, match=r"x\.pt is damaged: some of its bytes differ"):
        checkpoint.read("bad")


def test_names_that_differ_from_their_checksum_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save({"layer.weight": torch.ones(2, 2)}, path)
    path.write_bytes(path.read_bytes().replace(b"layer.weight", b"laxer.weight"))
    with pytest.raises(ValueError, match=r"x\.pt is damaged: some of its bytes differ"):
        open_checkpoint(path)


def test_an_archive_without_checksums_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    try:
        torch.serialization.set_crc32_options(False)
        torch.save({"w": torch.tensor([[0.5, 123.75]])}, path)
    finally:
        torch.serialization.set_crc32_options(True)
    assert open_checkpoint(path).read("w").tolist() == [[0.5, 123.75]]


def test_a_compressed_archive_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.pt", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("x/data.pkl", tensor_pickle(0, (6,), (1,)))
        file.writestr("x/data/0", bytes(24))
    with pytest.raises(ValueError, match="its archive is none of torch"):
        open_checkpoint(tmp_path / "x.pt")


def test_a_large_archive_is_read(tmp_path: Path) -> None:
    """More members than 16 bits count, so that the archive's end is of the 64-bit kind."""
    count = 70_000
    with zipfile.ZipFile(tmp_path / "x.pt", "w") as file:
        file.writestr("x/data.pkl", tensor_pickle(0, (6,), (1,)))
        file.writestr("x/data/0", struct.pack("<6f", *range(6)))
        for number in range(count):
            file.writestr(f"x/data/{number + 1}", b"")
    assert open_checkpoint(tmp_path / "x.pt").read("w").tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_quantised_tensors_are_refused_by_name(tmp_path: Path) -> None:
    quantised = torch.quantize_per_tensor(torch.randn(3, 3), 0.1, 0, torch.qint8)
    torch.save({"q": quantised, "w": torch.ones(2, 2)}, tmp_path / "x.pt")
    checkpoint = open_checkpoint(tmp_path / "x.pt")
    assert checkpoint.read("w").eq(1).all()
    with pytest.raises(ValueError, match=r"tensor 'q' of .* is not read: quantised by torch"):
        checkpoint.read("q")


def test_a_pickle_that_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "x.pt").write_bytes(pickle.dumps({"a": [1, 2]}))
    with pytest.raises(ValueError, match="it is a pickle, and none of torch"):
        open_checkpoint(tmp_path / "x.pt")


WEIGHTS = {"a.weight": torch.ones(5, 4), "a.bias": torch.zeros(5)}
MOMENTS = {"a.weight.exp_avg": torch.ones(5, 4)}
NESTED = {
    "the state of an application": {"app": {"model": WEIGHTS, "optim": MOMENTS}},
    "two levels": {"state": {"model": WEIGHTS, "optimizer": MOMENTS}, "epoch": 1},
    "moments by name": {"net": WEIGHTS, "optimizer": MOMENTS},
    "random numbers beside": {"net": WEIGHTS, "rng_state": torch.zeros(9, dtype=torch.uint8)},
    "an optimizer of another name": {
        "net": WEIGHTS,
        "opt_a": {"state": {"w": MOMENTS}, "param_groups": []},
    },
}


@pytest.mark.parametrize("content", NESTED.values(), ids=NESTED)
def test_weights_are_found_in_nested_dicts(tmp_path: Path, content: dict[str, object]) -> None:
    torch.save(content, tmp_path / "x.pt")
    assert open_checkpoint(tmp_path / "x.pt").tensors.keys() == WEIGHTS.keys()


def test_models_in_nested_dicts_keep_their_names(tmp_path: Path) -> None:
    models = {name: {"model": dict(WEIGHTS), "optim": MOMENTS} for name in ("first", "second")}
    torch.save(models, tmp_path / "x.pt")
    names = [f"{model}.model.{name}" for model in models for name in WEIGHTS]
    assert list(open_checkpoint(tmp_path / "x.pt").tensors) == names


def test_weights_beside_those_that_are_read_are_named(tmp_path: Path) -> None:
    average = {name: tensor / 2 for name, tensor in WEIGHTS.items()}
    torch.save({"model": WEIGHTS, "ema": average, "optimizer": MOMENTS}, tmp_path / "x.pt")
    checkpoint = open_checkpoint(tmp_path / "x.pt")
    assert checkpoint.read("a.weight").eq(1).all()
    (note,) = checkpoint.notes
    assert "other weights in 'ema', which are left out" in note
    torch.save({"net": WEIGHTS, "ema": average, "optimizer": MOMENTS}, tmp_path / "x.pt")
    assert not open_checkpoint(tmp_path / "x.pt").notes  # both are read


def test_the_state_of_an_optimizer_is_no_checkpoint(tmp_path: Path) -> None:
    weight = nn.Parameter(torch.ones(3, 4))
    optimizer = torch.optim.Adam([weight])
    weight.sum().backward()
    optimizer.step()
    torch.save(optimizer.state_dict(), tmp_path / "optimizer.pt")
    with pytest.raises(ValueError, match="holds the state of an optimizer"):
        open_checkpoint(tmp_path / "optimizer.pt")


def test_a_whole_module_is_refused_in_the_older_format_too(tmp_path: Path) -> None:
    torch.save(nn.Linear(2, 2), tmp_path / "x.pt", _use_new_zipfile_serialization=False)
    with pytest.raises(ValueError, match="holds a whole module"):
        open_checkpoint(tmp_path / "x.pt")


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_sparse_tensors_are_refused_with_their_shapes(tmp_path: Path) -> None:
    eye = torch.eye(3, 4)
    content = {"coo": eye.to_sparse(), "csr": eye.to_sparse_csr(), "meta": eye.to("meta")}
    torch.save(content, tmp_path / "x.pt")
    tensors = open_checkpoint(tmp_path / "x.pt").tensors
    assert {tensor.shape for tensor in tensors.values()} == {(3, 4)}
    assert all(tensor.refusal for tensor in tensors.values())
