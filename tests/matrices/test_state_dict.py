"""Rules assumed for bare state dicts agree with the model's where names and shapes suffice."""

import pytest
import torch
from torch import nn

from rankscope.matrices import products, views
from rankscope.matrices.state_dict import MOST_EXPERTS


def check_assumed(model: nn.Module) -> None:
    """Check that the state dict alone gives the model's matrices, with status assumed or tied."""
    matrices, expected = views(model.state_dict()), views(model)
    assert list(matrices) == list(expected)
    assert "read" not in {line.status for line in matrices.coverage}
    for name, view in expected.items():
        torch.testing.assert_close(matrices[name].W, view.W, rtol=0, atol=0)
        assert (matrices[name].out_axes, matrices[name].in_axes) == (view.out_axes, view.in_axes)


RECURRENT = {
    "lstm": nn.LSTM(4, 3, num_layers=2, bidirectional=True),
    "projected": nn.LSTM(4, 3, num_layers=2, proj_size=2),
    "gru": nn.GRU(4, 3, num_layers=2),
    "rnn": nn.RNN(4, 3, bidirectional=True),
    "cell": nn.LSTMCell(4, 3),
}


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_modules(name: str) -> None:
    model = nn.ModuleDict({name: RECURRENT[name]})
    check_assumed(model)
    matrices = views(model.state_dict(), parts=True)
    assert list(matrices) == list(views(model, parts=True))
    assert all("since weight_hh has" in line.how for line in matrices.coverage)


def test_layers_of_a_transformer() -> None:
    layers = {
        "tok_emb": nn.Embedding(7, 8),
        "conv": nn.Conv2d(3, 4, 3),
        "layer": nn.TransformerEncoderLayer(8, 2, dim_feedforward=6),
        "cross": nn.MultiheadAttention(8, 2, kdim=4, vdim=5),
        "head": nn.Linear(8, 7),
    }
    model = nn.ModuleDict(layers)
    check_assumed(model)
    matrices = views(model.state_dict(), parts=True)
    blocks = model["layer"].self_attn.in_proj_weight.detach().chunk(3)
    for role, block in zip("qkv", blocks, strict=True):
        torch.testing.assert_close(matrices[f"layer.self_attn.{role}"].W, block)
    line = matrices.coverage["layer.self_attn.in_proj_weight"]
    assert line.status == "assumed" and "pass like=" in line.how
    assert products(model.state_dict()) == {}


EMBEDDINGS = (
    "wte",
    "wpe",
    "relative_attention_bias",
    "embed_tokens",
    "tok_emb",
    "token_embedding",
    "embeddings",
)
OTHERS = ("embed_out", "fc", "time_mlp", "member", "lm_head")


@pytest.mark.parametrize("name", [*EMBEDDINGS, "tok_embeddings", *OTHERS])
def test_names_of_embeddings_and_other_layers(name: str) -> None:
    matrices = views({f"model.{name}.weight": torch.zeros(7, 4)})
    assert matrices[f"model.{name}"].W.shape == ((7, 4) if name in OTHERS else (4, 7))


@pytest.mark.parametrize("transposed", [True, False], ids=["gpt2", "nanogpt"])
def test_gpt2_is_stored_transposed_and_nanogpt_is_not(transposed: bool) -> None:
    fused, hidden = torch.randn(24, 8), torch.randn(32, 8)
    saved = {"h.0.attn.c_attn.weight": fused, "h.0.mlp.c_fc.weight": hidden}
    matrices = views({name: W.T if transposed else W for name, W in saved.items()}, parts=True)
    torch.testing.assert_close(matrices["h.0.mlp.c_fc"].W, hidden)
    torch.testing.assert_close(matrices["h.0.attn.k"].W, fused[8:16])
    line = matrices.coverage["h.0.mlp.c_fc.weight"]
    assert ("stored transposed" in line.how) == transposed


def test_gpt2_agrees_with_its_model() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = dict(n_embd=8, n_head=2, n_layer=1, vocab_size=11, n_positions=5)
    model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
    check_assumed(model)
    matrices = views(model.state_dict())
    assert matrices.coverage["lm_head.weight"].how == "tied to transformer.wte.weight"


def test_interleaved_projections_have_no_blocks() -> None:
    matrices = views({"attn.query_key_value.weight": torch.zeros(24, 8)}, parts=True)
    assert list(matrices) == ["attn.query_key_value"]


def test_a_stack_of_too_many_experts_is_one_matrix() -> None:
    tensors = {"experts.w1": torch.zeros(MOST_EXPERTS + 1, 2, 3, device="meta")}
    matrices = views(tensors)
    assert list(matrices) == ["experts.w1"]
    assert matrices.coverage["experts.w1"].status == "flattened"


def test_experts_convolutions_and_unknown_tensors() -> None:
    matrices = views(
        {
            "experts.w1": torch.zeros(3, 5, 4),
            "conv.weight": torch.zeros(6, 2, 3),
            "position": torch.zeros(1, 9, 4),
            "pos_embed": torch.zeros(1, 9, 4),
            "cls_token": torch.zeros(1, 1, 4),
            "gate.weight": torch.zeros(1, 4),
            "deep.weight": torch.zeros(2, 2, 2, 2, 2, 2),
            "mask": torch.ones(2, 2, dtype=torch.bool),
        }
    )
    assert matrices.coverage["experts.w1"].matrices == tuple(f"experts.w1.e{i}" for i in range(3))
    assert matrices["conv"].in_axes == (("in", 2), ("tap0", 3))
    statuses = {line.tensor: line.status for line in matrices.coverage}
    assert statuses == {
        "experts.w1": "assumed",
        "conv.weight": "assumed",
        "position": "flattened",
        "pos_embed": "assumed",
        "cls_token": "vector",
        "gate.weight": "vector",
        "deep.weight": "flattened",
        "mask": "not read",
    }


@pytest.mark.parametrize("depthwise", [nn.Conv1d(4, 4, 3, groups=4), nn.Conv2d(5, 5, 3, groups=5)])
def test_depthwise_convolutions_are_known_by_their_shape(depthwise: nn.Module) -> None:
    model = nn.ModuleDict({"conv": depthwise, "point": nn.Conv2d(4, 3, 1)})
    check_assumed(model)
    matrices = views(model.state_dict())
    assert matrices["conv"].kind == "depthwise"
    line = matrices.coverage["conv.weight"]
    assert line.how.endswith("depthwise, or one input channel")


def test_parameters_named_q_k_and_v_are_read_under_their_own_names() -> None:
    weights = {f"{owner}{role}": torch.randn(4, 3) for role in "qkv" for owner in ("", "attn.")}
    matrices = views(weights)
    assert list(matrices) == list(weights)
    for name, W in weights.items():
        torch.testing.assert_close(matrices[name].W, W)


def test_sparse_and_empty_tensors() -> None:
    matrices = views(
        {
            "a.weight": torch.eye(3).to_sparse(),
            "b.weight_hh_l0": torch.zeros(3, 0),
            "c.weight": torch.zeros(0, 1, 3),
        }
    )
    line = matrices.coverage["a.weight"]
    assert (line.status, line.how) == ("not read", "stored as sparse_coo, not dense")
    assert matrices["b.weight_hh_l0"].W.shape == (3, 0)
    assert matrices["c"].W.shape == (0, 3)


def test_a_recurrent_key_of_impossible_shape_is_flattened() -> None:
    matrices = views({"x.weight_ih_l0": torch.zeros(6, 4), "x.weight_hh_l0": torch.zeros(6, 5)})
    assert {line.status for line in matrices.coverage} == {"flattened"}


def test_meta_tensors_are_not_taken_for_tied() -> None:
    weights = {name: torch.zeros(2, 2, device="meta") for name in ("a.weight", "b.weight")}
    assert list(views(weights)) == ["a", "b"]


@pytest.mark.parametrize("key", ["weight", "in_proj_weight", "weight_ih_l0"])
def test_a_tensor_of_no_module_is_flattened(key: str) -> None:
    W = torch.randn(12, 4)
    (line,) = views({f".{key}": W}).coverage
    assert line.status == "flattened"
    assert torch.equal(views({f".{key}": W})[line.matrices[0]].W, W)
