"""Quantized weights are dequantized, or named as not read with the reason."""

import warnings

import pytest
import torch
from torch import Tensor, nn

import rankscope as rs
from rankscope.matrices import products, views

FLOAT8 = torch.float8_e4m3fn


def float8(layer: nn.Linear) -> nn.Linear:
    layer.weight = nn.Parameter(layer.weight.detach().to(FLOAT8), requires_grad=False)
    return layer


def test_float8_is_read_in_float32() -> None:
    layer = float8(nn.Linear(6, 5))
    matrices = views(nn.ModuleDict({"fc": layer}))
    assert torch.equal(matrices["fc"].W, layer.weight.float())
    assert (
        matrices.coverage["fc.weight"].how == "Linear: out x in, effective: dequantized of weight"
    )
    assert "fc" not in views(nn.ModuleDict({"fc": layer}), raw=True)


@pytest.mark.parametrize("shape", [(1, 1), (5, 1), (3, 2)])
def test_float8_with_scales_of_rows_or_blocks(shape: tuple[int, int]) -> None:
    layer = float8(nn.Linear(6, 5))
    layer.weight_scale_inv = nn.Parameter(torch.rand(shape))
    matrices = views(nn.ModuleDict({"fc": layer}))
    rows, columns = (-(-size // count) for size, count in zip((5, 6), shape, strict=True))
    expected = torch.empty(5, 6)
    for i in range(5):
        for j in range(6):
            scale = layer.weight_scale_inv[i // rows, j // columns]
            expected[i, j] = layer.weight[i, j].float() * scale
    assert torch.equal(matrices["fc"].W, expected.detach())
    assert list(matrices) == ["fc"]


@pytest.mark.parametrize(("size", "stated"), [(300, None), (20, 8)])
def test_float8_with_a_smaller_last_block(size: int, stated: int | None) -> None:
    layer = float8(nn.Linear(4, size))
    block = stated or 128
    if stated is not None:
        layer.block_size = (stated, 4)
    layer.weight_scale_inv = nn.Parameter(torch.arange(1.0, 4.0)[:, None])
    expected = layer.weight.float() * (1 + torch.arange(size) // block)[:, None]
    assert torch.equal(views(nn.ModuleDict({"fc": layer}))["fc"].W, expected.detach())


def test_attributes_that_compute_are_not_touched() -> None:
    class Computing(nn.Linear):
        @property
        def get_weight(self) -> None:
            raise AssertionError("computed")

    assert list(views(nn.Sequential(Computing(3, 2)))) == ["0"]


def test_dynamic_layers_are_unpacked() -> None:
    plain = nn.Sequential(nn.Linear(4, 3), nn.LSTM(3, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.ao is on its way out
        packed = torch.ao.quantization.quantize_dynamic(plain, {nn.Linear, nn.LSTM})
        matrices = views(packed)
        expected = packed[0].weight().dequantize()
    assert torch.equal(matrices["0"].W, expected)
    assert matrices["0"].kind == "linear"
    statuses = {line.tensor: line.status for line in matrices.coverage}
    assert statuses["0.weight"] == "read"
    assert statuses["1.weight_ih_l0"] == statuses["1.weight_hh_l0"] == "not read"


class Packed(torch.Tensor):
    """A tensor that can dequantize itself, or fails to."""

    works: bool

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return super().__torch_function__(function, types, args, kwargs or {})

    def dequantize(self) -> Tensor:
        if not self.works:
            raise NotImplementedError("no kernel for this layout")
        return 2 * self.detach().as_subclass(Tensor)


@pytest.mark.parametrize("works", [True, False])
def test_tensors_that_dequantize_themselves(works: bool) -> None:
    kind = type("PackedHere", (Packed,), {"works": works})
    layer = nn.Linear(4, 3)
    stored = layer.weight.detach().clone()
    layer.weight = nn.Parameter(stored.as_subclass(kind), requires_grad=False)
    matrices = views(nn.ModuleDict({"fc": layer}))
    if works:
        assert torch.equal(matrices["fc"].W, 2 * stored)
    else:
        assert "fc" not in matrices
        assert matrices.coverage["fc.weight"].status == "not read"
        assert "no kernel for this layout" in matrices.coverage["fc.weight"].how


def test_torchao() -> None:
    quantization = pytest.importorskip("torchao.quantization")
    model = nn.Sequential(nn.Linear(64, 32), nn.Linear(32, 16))
    plain = [layer.weight.detach().clone() for layer in model]
    quantization.quantize_(model, quantization.Int8WeightOnlyConfig())
    matrices = views(model)
    for name, weight in zip("01", plain, strict=True):
        assert torch.equal(matrices[name].W, model[int(name)].weight.dequantize())
        torch.testing.assert_close(matrices[name].W, weight, atol=2e-3, rtol=0)


def other(kind: str) -> Tensor:
    if kind == "sparse":
        return torch.eye(4).to_sparse()
    return torch.ones(4, 4, device="meta") if kind == "meta" else torch.ones(4, 4, dtype=torch.int8)


@pytest.mark.parametrize(
    ("kind", "reason"), [("sparse", "sparse_coo"), ("meta", "meta device"), ("int8", "int8 values")]
)
def test_tensors_without_numbers_to_read_do_not_stop_tracking(kind, reason, tmp_path) -> None:
    model = nn.ModuleDict({"fc": nn.Linear(4, 4), "float8": float8(nn.Linear(4, 4))})
    model["other"] = nn.Linear(4, 4)
    model["other"].weight = nn.Parameter(other(kind), requires_grad=False)
    with rs.Tracker(model, tmp_path / "run", schedule=1, strict=True) as tracker:
        tracker.observe(0)
        line = tracker.coverage["other.weight"]
    assert line.status == "not read" and reason in line.how
    assert list(rs.open(tmp_path / "run").matrix.values) == ["fc", "float8"]
    assert products(model) == {}
