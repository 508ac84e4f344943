"""Matrices of each layer type against what the layer computes."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rankscope.matrices import Reading, Views, view_rule, views


def test_linear() -> None:
    layer = nn.Linear(3, 5, bias=False)
    x = torch.randn(3)
    view = views(nn.ModuleDict({"fc": layer}))["fc"]
    torch.testing.assert_close(view.W @ x, layer(x))
    assert (view.kind, view.parameter) == ("linear", "fc.weight")
    assert (view.out_axes, view.in_axes) == ((("out", 5),), (("in", 3),))
    assert view.W.data_ptr() == layer.weight.data_ptr()
    assert not view.W.requires_grad


def test_bare_layer_is_named_weight() -> None:
    assert list(views(nn.Linear(3, 5))) == ["weight"]


@pytest.mark.parametrize("layer", [nn.Embedding(7, 4), nn.EmbeddingBag(7, 4, mode="sum")])
def test_embedding_is_read_transposed(layer: nn.Module) -> None:
    matrices = views(nn.ModuleDict({"tok": layer}))
    one_hot = F.one_hot(torch.tensor(2), 7).float()
    expected = layer(torch.tensor([[2]])).flatten()
    torch.testing.assert_close(matrices["tok"].W @ one_hot, expected)
    assert "stored transposed" in matrices.coverage["tok.weight"].how


@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("transposed", [False, True])
def test_convolution_of_one_position(dimensions: int, groups: int, transposed: bool) -> None:
    """A convolution maps one patch to one pixel, a transposed one maps one pixel to one patch."""
    kernel = (3, 2, 2)[:dimensions]
    layer_type = getattr(nn, f"Conv{'Transpose' if transposed else ''}{dimensions}d")
    layer = layer_type(4, 6, kernel, groups=groups, bias=False)
    x = torch.randn(1, 4, *([1] * dimensions if transposed else kernel))
    matrices = views(nn.ModuleDict({"conv": layer}))
    names = ["conv"] if groups == 1 else ["conv.g0", "conv.g1"]
    assert list(matrices) == names
    pieces = []
    for name, channels in zip(names, x.reshape(4, -1).chunk(groups), strict=True):
        filters = matrices[name].W.reshape(6 // groups, 4 // groups, -1)  # (out, in, taps)
        pieces.append(torch.einsum("oit,ip->ot" if transposed else "oit,it->o", filters, channels))
    torch.testing.assert_close(torch.cat(pieces).reshape(6, -1), layer(x).reshape(6, -1))
    taps = tuple((f"tap{i}", size) for i, size in enumerate(kernel))
    assert matrices[names[0]].in_axes == (("in", 4 // groups), *taps)
    assert matrices[names[0]].part_of is None
    assert ("stored transposed" in matrices.coverage["conv.weight"].how) == transposed


@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("multiplier", [1, 2])
@pytest.mark.parametrize("transposed", [False, True])
def test_depthwise_convolution_of_one_position(
    dimensions: int, multiplier: int, transposed: bool
) -> None:
    """Row `multiplier * c + i` of the one matrix is the filter that makes output i of channel c."""
    kernel = (3, 2, 2)[:dimensions]
    layer_type = getattr(nn, f"Conv{'Transpose' if transposed else ''}{dimensions}d")
    layer = layer_type(4, 4 * multiplier, kernel, groups=4, bias=False)
    x = torch.randn(1, 4, *([1] * dimensions if transposed else kernel))
    matrices = views(nn.ModuleDict({"conv": layer}))
    assert list(matrices) == ["conv"]
    W = matrices["conv"].W
    assert W.shape == (4 * multiplier, math.prod(kernel))
    patches = x.reshape(4, -1).repeat_interleave(multiplier, dim=0)  # (output, taps or 1)
    expected = W * patches if transposed else (W * patches).sum(1, keepdim=True)
    torch.testing.assert_close(layer(x).reshape(4 * multiplier, -1), expected)
    assert matrices["conv"].kind == "depthwise"
    assert matrices.coverage["conv.weight"].matrices == ("conv",)


def test_groups_of_one_output_are_the_rows_of_one_matrix() -> None:
    layer = nn.Conv2d(6, 3, 2, groups=3)
    matrices = views(nn.ModuleDict({"conv": layer}))
    torch.testing.assert_close(matrices["conv"].W, layer.weight.detach().reshape(3, 8))


def read_alone(name: str, *shape: int) -> Views:
    model = nn.Module()
    model.register_parameter(name, nn.Parameter(torch.randn(shape)))
    return views(model)


@pytest.mark.parametrize("name", ["pos_embed", "position_embeddings", "absolute_pos_embed"])
def test_positions_are_read_as_tokens_by_width(name: str) -> None:
    matrices = read_alone(name, 1, 5, 4)
    torch.testing.assert_close(matrices[name].W, matrices.tensors[name].detach()[0])
    assert (matrices[name].kind, matrices[name].in_axes) == ("position", (("width", 4),))
    line = matrices.coverage[name]
    assert (line.status, line.how) == ("read", "Module: position x width")


def test_positions_on_a_grid() -> None:
    last = read_alone("pos_embed", 1, 3, 3, 8)
    stored = last.tensors["pos_embed"].detach()
    torch.testing.assert_close(last["pos_embed"].W, stored.reshape(9, 8))
    first = read_alone("pos_embed", 1, 8, 3, 3)
    stored = first.tensors["pos_embed"].detach()
    torch.testing.assert_close(first["pos_embed"].W, stored.reshape(8, 9).T)


def test_unknown_tensors_skip_leading_axes_of_size_one() -> None:
    matrices = read_alone("table", 1, 1, 5, 2, 3)
    stored = matrices.tensors["table"].detach()
    torch.testing.assert_close(matrices["table"].W, stored.reshape(5, 6))
    assert read_alone("table", 5, 1, 3)["table"].W.shape == (5, 3)


VECTORS = [(1, 1, 8), (8, 1, 1, 1), (1, 8), (8, 1), (1, 1), (1, 8, 1, 1)]


@pytest.mark.parametrize("shape", VECTORS)
def test_vectors_are_named_and_read_only_by_their_name(shape: tuple[int, ...]) -> None:
    matrices = read_alone("pos_embed", *shape)
    assert list(matrices) == []
    line = matrices.coverage["pos_embed"]
    assert (line.status, line.matrices) == ("vector", ())
    included = views(matrices.tensors, like=matrices.manifest, include="pos_embed")
    torch.testing.assert_close(
        included["pos_embed"].W.flatten(), matrices.tensors["pos_embed"].detach().flatten()
    )
    assert included.coverage["pos_embed"].matrices == ("pos_embed",)


def test_bilinear_is_flattened_and_listed() -> None:
    layer = nn.Bilinear(3, 4, 5, bias=False)
    matrices = views(nn.ModuleDict({"both": layer}))
    a, b = torch.randn(3), torch.randn(4)
    torch.testing.assert_close(matrices["both"].W @ torch.outer(a, b).flatten(), layer(a, b))
    line = matrices.coverage["both.weight"]
    assert (line.status, line.matrices) == ("flattened", ("both",))


def lstm_step(W: dict[str, Tensor], prefix: str, x: Tensor, h: Tensor, c: Tensor) -> Tensor:
    i, f, g, o = (W[f"{prefix}ih.{gate}"] @ x + W[f"{prefix}hh.{gate}"] @ h for gate in "ifgo")
    cell = f.sigmoid() * c + i.sigmoid() * g.tanh()
    hidden = o.sigmoid() * cell.tanh()
    return W[f"{prefix}hr"] @ hidden if f"{prefix}hr" in W else hidden


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("proj_size", [0, 2])
def test_bidirectional_lstm_by_gate_and_direction(proj_size: int) -> None:
    lstm = nn.LSTM(4, 3, num_layers=2, bidirectional=True, proj_size=proj_size, bias=False)
    matrices = views(nn.ModuleDict({"lstm": lstm}), parts=True)
    W = {name: view.W for name, view in matrices.items()}
    width = proj_size or 3
    x, h0, c0 = torch.randn(4), torch.randn(4, width), torch.randn(4, 3)
    states = x
    for layer in (0, 1):
        # A layer takes the states of both directions below, one after the other.
        directions = enumerate((f"lstm.l{layer}.", f"lstm.l{layer}.reverse."), start=2 * layer)
        states = torch.cat([lstm_step(W, name, states, h0[i], c0[i]) for i, name in directions])
    torch.testing.assert_close(states, lstm(x[None], (h0, c0))[0][0])
    assert matrices["lstm.l1.ih"].in_axes == (("direction", 2), ("in", width))
    assert matrices["lstm.l0.ih"].out_axes == (("gate", 4), ("out", 3))
    gate = matrices["lstm.l0.reverse.hh.g"]
    assert (gate.kind, gate.part_of) == ("gate", "lstm.l0.reverse.hh")


def gru_step(W: dict[str, Tensor], x: Tensor, h: Tensor) -> Tensor:
    reset, update = ((W[f"ih.{g}"] @ x + W[f"hh.{g}"] @ h).sigmoid() for g in "rz")
    new = (W["ih.n"] @ x + reset * (W["hh.n"] @ h)).tanh()
    return (1 - update) * new + update * h


def test_gru_and_cells_by_gate() -> None:
    gru, gru_cell, lstm_cell = (
        layer(4, 3, bias=False) for layer in (nn.GRU, nn.GRUCell, nn.LSTMCell)
    )
    x, h, c = torch.randn(4), torch.randn(3), torch.randn(3)
    W = {name.removeprefix("l0."): view.W for name, view in views(gru, parts=True).items()}
    torch.testing.assert_close(gru_step(W, x, h), gru(x[None], h[None])[0][0])
    W = {name: view.W for name, view in views(gru_cell, parts=True).items()}
    torch.testing.assert_close(gru_step(W, x, h), gru_cell(x, h))
    W = {name: view.W for name, view in views(lstm_cell, parts=True).items()}
    torch.testing.assert_close(lstm_step(W, "", x, h, c), lstm_cell(x, (h, c))[0])


def test_rnn_has_no_gates() -> None:
    rnn = nn.RNN(4, 3, num_layers=2, bias=False)
    matrices = views(nn.ModuleDict({"rnn": rnn}), parts=True)
    assert list(matrices) == ["rnn.l0.ih", "rnn.l0.hh", "rnn.l1.ih", "rnn.l1.hh"]
    x, h = torch.randn(4), torch.randn(2, 3)
    first = (matrices["rnn.l0.ih"].W @ x + matrices["rnn.l0.hh"].W @ h[0]).tanh()
    second = (matrices["rnn.l1.ih"].W @ first + matrices["rnn.l1.hh"].W @ h[1]).tanh()
    torch.testing.assert_close(second, rnn(x[None], h)[0][0])


def test_a_registered_rule_reads_its_layer_type() -> None:
    class Rowed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(torch.randn(3, 2, 4))

    model = nn.ModuleDict({"rowed": Rowed()})
    assert views(model).coverage["rowed.table"].status == "flattened"

    @view_rule.register(Rowed)
    def _(module: Rowed, name: str) -> tuple[Reading, ...]:
        axes = (("in", 3), ("part", 2), ("out", 4))
        return (Reading(name, f"{name}.table", "rowed", axes, ("part", "out"), ("in",)),)

    matrices = views(model)
    expected = model["rowed"].table.detach().permute(1, 2, 0).reshape(8, 3)
    torch.testing.assert_close(matrices["rowed"].W, expected)
    line = matrices.coverage["rowed.table"]
    assert (line.status, line.how) == ("read", "Rowed: part*out x in, stored transposed")


def test_a_rule_reads_only_what_its_module_owns() -> None:
    class Greedy(nn.Module):
        pass

    @view_rule.register(Greedy)
    def _(module: Greedy, name: str) -> tuple[Reading, ...]:
        return (Reading("x", "other.weight", "x", (("out", 1), ("in", 1)), ("out",), ("in",)),)

    with pytest.raises(ValueError, match=r"the rule for Greedy reads 'other\.weight'"):
        views(nn.ModuleDict({"greedy": Greedy()}))


def test_lazy_layers_need_a_forward_pass() -> None:
    with pytest.raises(ValueError, match=r"'fc\.weight' of a LazyLinear has no shape yet"):
        views(nn.ModuleDict({"fc": nn.LazyLinear(3)}))


def test_parametrized_weights_are_listed_by_their_originals_on_request() -> None:
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 5))
    coverage = views(nn.ModuleDict({"fc": layer}), raw=True).coverage
    assert coverage["fc.parametrizations.weight.original0"].status == "vector"
    assert coverage["fc.parametrizations.weight.original1"].status == "flattened"
    assert coverage["fc.parametrizations.weight.original1"].shape == (5, 3)
