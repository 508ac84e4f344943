"""Discovered pairs of well-known architectures, with their names written out by hand."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm, weight_norm
from transformers import LlamaConfig, LlamaForCausalLM

from pairs.networks import (
    IMAGE,
    ROWS,
    SEQUENCE,
    TOKENS,
    Residual,
    Tagger,
    UNet,
    Written,
    gpt2,
    names,
)
from rankscope.matrices import views
from rankscope.pairs import Cut, Pair, discover_pairs

CENTRE = (None, 1, 1)


def test_mlp() -> None:
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 2))
    pairs = discover_pairs(model, ROWS)
    assert pairs == (Pair("0", "2"), Pair("2", "4"))
    assert pairs.left_out == ()


def test_vgg_with_batch_norm_and_pooling() -> None:
    model = nn.Sequential(
        *(nn.Conv2d(4, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True)),
        nn.MaxPool2d(2),
        *(nn.Conv2d(8, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(inplace=True)),
        nn.AvgPool2d(3),
        nn.Flatten(),
        nn.Linear(6, 5),
    )
    assert discover_pairs(model, IMAGE) == (
        Pair("0", "4", kind="conv", later_cut=Cut((8, 3, 3), CENTRE)),
        Pair("4", "9"),
    )


def test_flattened_channels_meet_at_their_middle_position() -> None:
    model = nn.Sequential(nn.Conv2d(4, 6, 4), nn.Flatten(), nn.Linear(54, 5))
    cut = Cut((6, 9), (None, 4))
    assert discover_pairs(model, IMAGE) == (Pair("0", "2", kind="flatten", later_cut=cut),)


def test_residual_net_ignores_shortcuts_and_keeps_parallel_branches() -> None:
    pairs = discover_pairs(Residual(), torch.randn(2, 3, 6, 6))
    assert names(pairs) == [
        "stem > a.conv1",
        "a.conv1 > a.conv2",
        "a.conv2 > b.conv1",
        "b.conv1 > b.conv2",
        "a.conv2 > b.shortcut",
        "b.conv2 > c.conv1",
        "b.shortcut > c.conv1",
        "c.conv1 > c.conv2",
        "c.conv2 > head",
    ]
    assert pairs[5].later_cut == Cut((8, 3, 3), CENTRE)
    assert pairs[4].later_cut is None


def attention_pairs(layer: str, attention: str, output: str, *, heads: int) -> list[str]:
    queries = [f"{layer}.{attention}.h{h}.q > {layer}.{attention}.h{h}.k" for h in range(heads)]
    return [*queries, f"{layer}.{attention}.v > {layer}.{attention}.{output}"]


@pytest.mark.parametrize("norm_first", [True, False])
def test_torch_encoder_layers(norm_first: bool) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True, norm_first=norm_first)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    assert names(discover_pairs(model, torch.randn(2, 3, 8))) == [
        *attention_pairs("layers.0", "self_attn", "out_proj", heads=2),
        "layers.0.self_attn.out_proj > layers.0.linear1",
        "layers.0.linear1 > layers.0.linear2",
        "layers.0.linear2 > layers.1.self_attn.qkv",
        *attention_pairs("layers.1", "self_attn", "out_proj", heads=2),
        "layers.1.self_attn.out_proj > layers.1.linear1",
        "layers.1.linear1 > layers.1.linear2",
    ]


def test_gpt2_with_tied_embedding() -> None:
    pairs = discover_pairs(gpt2(), TOKENS)
    first, second = "transformer.h.0", "transformer.h.1"
    assert names(pairs) == [
        f"transformer.wte > {first}.attn.c_attn",
        f"transformer.wpe > {first}.attn.c_attn",
        *attention_pairs(first, "attn", "c_proj", heads=2),
        f"{first}.attn.c_proj > {first}.mlp.c_fc",
        f"{first}.mlp.c_fc > {first}.mlp.c_proj",
        f"{first}.mlp.c_proj > {second}.attn.c_attn",
        *attention_pairs(second, "attn", "c_proj", heads=2),
        f"{second}.attn.c_proj > {second}.mlp.c_fc",
        f"{second}.mlp.c_fc > {second}.mlp.c_proj",
        f"{second}.mlp.c_proj > transformer.wte",
    ]
    assert pairs.left_out == ()
    # The embedding is W = stored.T, so as the output layer it takes activations on its output side.
    assert (pairs[-1].earlier_side, pairs[-1].later_side) == ("out", "out")
    assert {(pair.earlier_side, pair.later_side) for pair in pairs[:2]} == {("out", "in")}


def test_llama_with_shared_key_heads_and_gates() -> None:
    config = LlamaConfig(
        vocab_size=9,
        hidden_size=8,
        intermediate_size=12,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    pairs = discover_pairs(LlamaForCausalLM(config), input_ids=TOKENS)
    expected = {"model.layers.1.mlp.down_proj > lm_head"}
    for layer, before in ((0, "model.embed_tokens"), (1, "model.layers.0.mlp.down_proj")):
        attention, mlp = f"model.layers.{layer}.self_attn", f"model.layers.{layer}.mlp"
        expected |= {f"{before} > {attention}.{role}_proj" for role in "qkv"}
        expected |= {f"{attention}.h{head}.q > {attention}.h{head}.k" for head in range(4)}
        expected |= {f"{attention}.h{head}.v > {attention}.o_proj" for head in range(4)}
        for gate in ("gate_proj", "up_proj"):
            expected |= {f"{attention}.o_proj > {mlp}.{gate}", f"{mlp}.{gate} > {mlp}.down_proj"}
    assert set(names(pairs)) == expected
    assert len(pairs) == len(expected)
    value = next(pair for pair in pairs if pair.earlier == "model.layers.1.self_attn.h3.v")
    assert value.later_cut == Cut((4, 2), (3, None))


def test_unet_with_concatenated_skips() -> None:
    pairs = discover_pairs(UNet(), torch.randn(2, 1, 8, 8), torch.randn(2, 5))
    cuts = {pair.name: (pair.kind, pair.earlier_cut, pair.later_cut) for pair in pairs}
    assert cuts == {
        "down1 > down2": ("conv", None, Cut((4, 3, 3), CENTRE)),
        "embed > dense": ("linear", None, None),
        "down2 > middle": ("conv", None, Cut((6, 3, 3), CENTRE)),
        "dense > middle": ("conv", None, Cut((6, 3, 3), CENTRE)),
        "middle > up2": ("conv", None, Cut((2, 6, 2, 2), (0, None, 1, 1))),
        "down2 > up2": ("conv", None, Cut((2, 6, 2, 2), (1, None, 1, 1))),
        "dense > up2": ("conv", None, Cut((2, 6, 2, 2), (1, None, 1, 1))),
        "up2 > up1": ("conv", None, Cut((9, 3, 3), ((0, 5), 1, 1))),
        "down1 > up1": ("conv", None, Cut((9, 3, 3), ((5, 9), 1, 1))),
    }
    assert pairs.left_out == ()


def squeeze_and_excite(self: nn.Module, x: Tensor) -> Tensor:
    x = self.a(x)
    gate = torch.sigmoid(self.wide(F.relu(self.narrow(x.mean((2, 3))))))
    return self.b(x + x * gate[:, :, None, None])


WAYS: dict[str, tuple[nn.Module, Tensor, set[str]]] = {
    "gate": (
        Written(
            squeeze_and_excite,
            a=nn.Conv2d(4, 6, 1),
            narrow=nn.Linear(6, 2),
            wide=nn.Linear(2, 6),
            b=nn.Conv2d(6, 3, 1),
        ),
        IMAGE,
        {"a > narrow", "narrow > wide", "a > b", "wide > b"},
    ),
    "glu": (
        nn.Sequential(nn.Linear(4, 6), nn.GLU(), nn.Linear(3, 2)),
        ROWS,
        {"0 > 2 [out 0:3]", "0 > 2 [out 3:6]"},
    ),
    "siamese": (
        Written(
            lambda self, x: self.b(torch.cat([self.a(x), self.a(-x)], -1)),
            a=nn.Linear(4, 3),
            b=nn.Linear(6, 2),
        ),
        ROWS,
        {"a > b [in 0:3]", "a > b [in 3:6]"},
    ),
    "weight_norm": (
        nn.Sequential(weight_norm(nn.Linear(4, 5)), nn.Linear(5, 2)),
        ROWS,
        {"0 > 1"},
    ),
    "spectral_norm": (
        nn.Sequential(nn.Linear(4, 5), spectral_norm(nn.Linear(5, 2))),
        ROWS,
        {"0 > 1"},
    ),
    "weight_norm_conv": (
        nn.Sequential(nn.Conv2d(4, 5, 1), weight_norm(nn.Conv2d(5, 2, 3))),
        IMAGE,
        {"0 > 1"},
    ),
    "vector": (nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 2)), ROWS[0], {"0 > 1"}),
    "reused": (
        Written(
            lambda self, x: self.b(self.a(x)) + self.a(x), a=nn.Linear(4, 4), b=nn.Linear(4, 4)
        ),
        ROWS,
        {"a > b"},
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_other_ways_to_connect(way: str) -> None:
    model, example, expected = WAYS[way]
    assert set(names(discover_pairs(model, example))) == expected


def test_bare_parameters_are_paired_on_the_sides_that_meet() -> None:
    """A has no rule, so its first axis is read as outputs, but x @ A sums over that axis."""

    def forward(self: nn.Module, x: Tensor) -> Tensor:
        return x @ self.a @ self.b.T

    model = Written(forward)
    model.a = nn.Parameter(torch.ones(4, 5))
    model.b = nn.Parameter(torch.ones(3, 5))
    (pair,) = discover_pairs(model, SEQUENCE)
    assert pair == Pair("a", "b", earlier_side="in", later_side="in")


def test_attention_that_no_rule_knows_still_pairs_values_with_the_output() -> None:
    def forward(self: nn.Module, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (2, 2)).transpose(1, 2) for part in self.mix(x).chunk(3, -1))
        return self.last(((q @ k.mT).softmax(-1) @ v).transpose(1, 2).flatten(2))

    model = Written(forward, mix=nn.Linear(4, 12), last=nn.Linear(4, 3))
    assert discover_pairs(model, SEQUENCE) == (
        Pair("mix", "last", earlier_cut=Cut((3, 4), (2, None))),
    )


@pytest.mark.parametrize("model", [gpt2(), Tagger(nn.LSTM(6, 4, 2, bidirectional=True))])
def test_pairs_name_existing_matrices_and_have_unique_names(model: nn.Module) -> None:
    pairs = discover_pairs(model, TOKENS)
    matrices = views(model, parts=True)
    assert {name for pair in pairs for name in (pair.earlier, pair.later)} <= set(matrices)
    assert len(set(names(pairs))) == len(pairs)


class Parts(nn.Module):
    """Layers of which a forward pass uses one part."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.w = nn.Parameter(torch.randn(shape))

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) @ self.w.view(2, 8, 4)[1].t()


@pytest.mark.parametrize("shape", [(16, 4), (2, 8, 4)])
def test_a_product_with_a_part_of_a_tensor_that_is_no_stack(shape: tuple[int, ...]) -> None:
    model = Parts(*shape)
    pairs = discover_pairs(model, torch.ones(3, 4))
    pair_names = [pair.name for pair in pairs]
    if shape == (16, 4):  # the inputs of the part are those of the whole
        assert pair_names == ["inner > w"]
    else:
        assert pair_names == []
        assert ("inner", "w") in {(entry.earlier, entry.later) for entry in pairs.left_out}


def test_a_slice_without_a_start() -> None:
    model = Written(
        lambda self, x: self.b(torch.ops.aten.slice(self.a(x), 1, None, 3)),
        a=nn.Linear(4, 6),
        b=nn.Linear(3, 2),
    )
    (pair,) = discover_pairs(model, torch.ones(2, 4))
    assert (pair.name, pair.earlier_cut) == ("a > b", Cut((2, 3), (0, None)))


def test_final_states_sliced_without_a_start() -> None:
    model = Written(
        lambda self, x: self.b(torch.ops.aten.slice(self.a(x)[1], 0, None, 1)[0]),
        a=nn.GRU(4, 6),
        b=nn.Linear(6, 2),
    )
    pairs = discover_pairs(model, torch.ones(2, 3, 4))
    assert {pair.name for pair in pairs if pair.later == "b"} == {
        f"a.l0.{role} > b [{gate}]" for role in ("ih", "hh") for gate in "rzn"
    }
