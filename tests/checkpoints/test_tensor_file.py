"""Safetensors files written from several sources."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from rankscope.checkpoints import tensor_file
from rankscope.tracker.reference import InitialWeights

SHAPES = st.lists(st.integers(0, 4), max_size=3)
DTYPES = st.sampled_from(sorted(tensor_file.NAMES, key=str))


@settings(max_examples=50, deadline=None)
@given(kinds=st.lists(st.tuples(SHAPES, DTYPES), max_size=8), cut=st.integers(0, 8))
def test_a_file_of_two_sources_is_read_as_one(tmp_path_factory, kinds, cut: int) -> None:
    path = tmp_path_factory.mktemp("file") / "weights.safetensors"
    names = [f"layer.{i}" for i in range(len(kinds))]
    tensors = {
        name: (10 * torch.randn(shape)).to(dtype)
        for name, (shape, dtype) in zip(names, kinds, strict=True)
    }
    parts = [
        {name: tensors[name] for name in names[:cut]},
        {name: tensors[name] for name in names[cut:]},
    ]
    tensor_file.write(path, map(tensor_file.source_of, parts), metadata={"a": "b"})
    stored = load_file(path)
    assert stored.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert stored[name].dtype == tensor.dtype and stored[name].shape == tensor.shape
        assert bytes(tensor_file.bytes_of(stored[name])) == bytes(tensor_file.bytes_of(tensor))


def test_a_reference_from_two_places_has_a_checksum(tmp_path) -> None:
    here, there = {"b": torch.randn(3, 4), "0": torch.ones(2)}, {"a": torch.randn(5).bfloat16()}
    initial = InitialWeights(tmp_path)
    initial.save(here, durable=False, elsewhere=[tensor_file.source_of(there)])
    stored = initial.load()
    assert stored is not None and stored.keys() == {"a", "b", "0"}
    part = initial.load(only={"a", "gone"})
    assert part is not None and part.keys() == {"a"}
    torch.testing.assert_close(part["a"], there["a"], rtol=0, atol=0)
    path = tmp_path / "reference.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    for only in (None, {"a"}, {"b"}):
        try:
            initial.load(only=only)
        except ValueError as damage:
            assert "checksum differs" in str(damage)
        else:
            raise AssertionError("the damage was not noticed")
