"""Views and products of models and state dicts, chosen by pattern."""

import pytest
import torch
from torch import nn

from rankscope.matrices import Manifest, manifest, products, views


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tok = nn.Embedding(5, 8)
        self.attn = nn.MultiheadAttention(8, 2)
        self.lstm = nn.LSTM(8, 3, num_layers=2, bidirectional=True)
        self.conv = nn.Conv2d(4, 6, 3, groups=2)
        self.up = nn.ConvTranspose2d(4, 6, 3, groups=2)
        self.head = nn.Linear(8, 5, bias=False)
        self.head.weight = self.tok.weight
        self.register_buffer("mask", torch.ones(3, 3), persistent=False)


def test_views_are_a_mapping() -> None:
    matrices = views(Model())
    assert "tok" in matrices and "head" not in matrices
    assert len(matrices) == len(list(matrices)) == len(dict(matrices))
    assert matrices["tok"].name == "tok"
    with pytest.raises(KeyError, match=r"no matrix 'atn\.qkv', close: 'attn\.qkv'"):
        matrices["atn.qkv"]


@pytest.mark.parametrize("meta", [True, False])
@pytest.mark.parametrize("as_json", [True, False])
def test_a_state_dict_with_like_is_read_as_its_model(meta: bool, as_json: bool) -> None:
    model = Model()
    like: nn.Module | Manifest = model
    if meta:
        with torch.device("meta"):
            like = Model()
    if as_json:
        like = Manifest.from_json(manifest(like).to_json())
    matrices = views(model.state_dict(), like=like, parts=True)
    expected = views(model, parts=True)
    assert list(matrices) == list(expected)
    for name, view in expected.items():
        torch.testing.assert_close(matrices[name].W, view.W, rtol=0, atol=0)
        assert (matrices[name].kind, matrices[name].out_axes) == (view.kind, view.out_axes)
    assert matrices.coverage == expected.coverage
    for name, product in products(model.state_dict(), like=like).items():
        torch.testing.assert_close(product.right, products(model)[name].right, rtol=0, atol=0)


def test_either_name_of_a_tied_tensor_is_enough() -> None:
    model = Model()
    for dropped in ("tok.weight", "head.weight"):
        weights = {name: t for name, t in model.state_dict().items() if name != dropped}
        torch.testing.assert_close(views(weights, like=model)["tok"].W, views(model)["tok"].W)


def test_missing_extra_and_misshapen_tensors() -> None:
    model = Model()
    weights = model.state_dict()
    lacking = {name: t for name, t in weights.items() if name != "attn.in_proj_weight"}
    with pytest.raises(ValueError, match=r"1 of 13 .* missing, first 'attn\.in_proj_weight'"):
        views(lacking, like=model)
    more = {**weights, "extra.weight": torch.zeros(2, 2)}
    line = views(more, like=model).coverage["extra.weight"]
    assert (line.status, line.how) == ("not read", "not in the model given as like=")
    misshapen = {**weights, "attn.out_proj.weight": torch.zeros(4, 16)}
    with pytest.raises(ValueError, match=r"expected shape \(8, 8\) as in the model, got \(4, 16\)"):
        views(misshapen, like=model)


def test_include_and_exclude() -> None:
    model = Model()
    assert list(views(model, include="attn.*")) == ["attn.qkv", "attn.out_proj"]
    assert list(views(model, include=["attn.*", "tok"], exclude="*.qkv")) == [
        "tok",
        "attn.out_proj",
    ]
    matrices = views(model, exclude=["lstm.*", "conv.g1"])
    assert not any(name.startswith("lstm") for name in matrices)
    line = matrices.coverage["lstm.weight_ih_l0"]
    assert (line.status, line.matrices) == ("excluded", ())
    assert "excluded" in matrices.coverage.summary and "not read" in matrices.coverage.summary
    assert matrices.coverage["conv.weight"].matrices == ("conv.g0",)
    assert "1 of 2 excluded" in matrices.coverage["conv.weight"].how
    assert len(matrices.coverage) == len(views(model).coverage)


def test_parts_can_be_included_alone() -> None:
    matrices = views(Model(), include="attn.h*.q", parts=True)
    assert list(matrices) == ["attn.h0.q", "attn.h1.q"]
    assert matrices.coverage["attn.in_proj_weight"].status == "read"
    assert matrices.coverage["attn.out_proj.weight"].status == "excluded"


def test_patterns_include_no_vectors_but_exclude_them() -> None:
    model = nn.ModuleDict({"gate": nn.Linear(4, 1), "body": nn.Linear(4, 4)})
    assert list(views(model, include="*")) == ["body"]
    assert list(views(model, include=["*", "gate"])) == ["gate", "body"]
    assert list(views(model, exclude="gate")) == ["body"]
    assert list(views(model, include="gate")) == ["gate"]
    assert views(model, include="gate").coverage["gate.weight"].status == "vector"
    with pytest.raises(ValueError, match="'gat' matches no matrix"):
        views(model, include="gat")
    recurrent = nn.ModuleDict({"lstm": nn.LSTM(4, 1)})
    assert list(views(recurrent, parts=True)) == ["lstm.l0.ih"] + [
        f"lstm.l0.ih.{gate}" for gate in "ifgo"
    ]


@pytest.mark.parametrize("option", ["include", "exclude"])
def test_a_pattern_that_matches_nothing(option: str) -> None:
    with pytest.raises(ValueError, match=r"'attn\.kqv' matches no matrix, close: 'attn\.qkv'"):
        views(Model(), **{option: "attn.kqv"})
    few, one = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)), nn.Linear(4, 4)
    with pytest.raises(ValueError, match=r"'lyr\*' matches no matrix; there are '0' and '2'$"):
        views(few, **{option: "lyr*"})
    with pytest.raises(ValueError, match=r"there is only 'weight'$"):
        views(one, **{option: "0"})
    many = nn.ModuleList(nn.Linear(4, 4) for _ in range(5))
    with pytest.raises(ValueError, match=r"there are '0', '1', '2', '3' \.\.\.$"):
        views(many, **{option: "lyr*"})
    with pytest.raises(ValueError, match=r"only parts, such as 'lstm\.l0\.ih\.f'; name whole"):
        views(Model(), **{option: "lstm.l0.ih.f"})


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (1, 4)])
def test_any_floating_type_and_small_shapes(dtype: torch.dtype, shape: tuple[int, int]) -> None:
    layer = nn.Linear(1, 1)
    layer.weight = nn.Parameter(torch.zeros(shape, dtype=dtype))
    view = views(layer, include="weight")["weight"]
    assert (view.W.shape, view.W.dtype) == (shape, dtype)


def test_views_follow_the_live_model() -> None:
    model = nn.Linear(2, 2)
    matrices = views(model)
    with torch.no_grad():
        model.weight.fill_(3)
    torch.testing.assert_close(matrices["weight"].W, torch.full((2, 2), 3.0))
    model.weight = nn.Parameter(torch.zeros(5, 2))
    with pytest.raises(ValueError, match="expected shape"):
        views(model, like=matrices.manifest)
