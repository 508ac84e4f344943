"""Models, state dicts and files as sources of weights."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from rankscope.matrices import products, views
from rankscope.matrices.source import opened
from rankscope.matrices.wrappers import state_dict_tensors


def network() -> nn.Module:
    return nn.ModuleDict({"attn": nn.MultiheadAttention(8, 2), "head": nn.Linear(8, 3)})


def saved(path: Path, content: object) -> Path:
    if path.suffix == ".safetensors":
        save_file(content, path)  # type: ignore[arg-type]
    else:
        torch.save(content, path, _use_new_zipfile_serialization=path.stem != "legacy")
    return path


@pytest.mark.parametrize("name", ["x.safetensors", "x.pt", "x.bin", "legacy.pt"])
@pytest.mark.parametrize("as_text", [True, False])
def test_files_are_read_as_their_state_dict(tmp_path: Path, name: str, as_text: bool) -> None:
    model = network()
    path = saved(tmp_path / name, model.state_dict())
    source = str(path) if as_text else path
    matrices, expected = views(source), views(model.state_dict())
    assert list(matrices) == list(expected)
    for matrix, view in expected.items():
        torch.testing.assert_close(matrices[matrix].W, view.W, rtol=0, atol=0)
    assert products(source, like=model).keys() == products(model).keys()


@pytest.mark.parametrize("key", ["state_dict", "model_state_dict", "model"])
def test_weights_beside_an_optimizer(tmp_path: Path, key: str) -> None:
    content = {key: network().state_dict(), "optimizer": {"state": {}}, "epoch": 3}
    assert "head" in views(saved(tmp_path / "x.pt", content))


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("whole.pt", nn.Linear(2, 2), r"cannot be read as a checkpoint.*save model\.state_dict"),
        ("list.pt", [torch.zeros(2, 2)], "holds a list, expected a state dict"),
        ("epoch.pt", {"epoch": 3}, r"expected tensors by name, got \['epoch'\] without any"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, name: str, content: object, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        views(saved(tmp_path / name, content))


@pytest.mark.parametrize("name", ["noise.pt", "noise.safetensors"])
def test_files_of_other_bytes_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"PK\x03\x04 no archive")
    with pytest.raises(ValueError, match="cannot be read"):
        views(tmp_path / name)
    with pytest.raises(ValueError, match="does not exist; pass the path"):
        views(tmp_path / "missing.pt")


@pytest.mark.parametrize(
    ("source", "match"),
    [
        (None, "expected a model, a state dict or the path of a checkpoint, got NoneType$"),
        ([torch.zeros(2, 2)], "got list$"),
        (torch.zeros(2, 2), r"got Tensor; singular_values\(\) takes a matrix"),
    ],
)
def test_other_sources_are_refused(source: object, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        opened(source)


@pytest.mark.parametrize("key", [0, None, ("a", "b"), b"fc.weight"])
def test_keys_of_state_dicts_are_names(key: object) -> None:
    with pytest.raises(ValueError, match="expected names as keys, got"):
        state_dict_tensors({"a.weight": torch.zeros(2, 2), key: torch.zeros(2, 2)})


def test_state_dicts_may_hold_numpy_arrays() -> None:
    W = np.arange(6.0).reshape(2, 3)
    W.flags.writeable = False
    matrices = views({"fc.weight": W, "names": np.array(["a", "b"])})
    np.testing.assert_array_equal(matrices["fc"].W.numpy(), W)
