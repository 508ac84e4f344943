import math

import pytest
import torch
from torch import Tensor

from rankscope.lab.models import Transformer, TransformerConfig
from rankscope.matrices import views
from rankscope.overlaps import alignment
from rankscope.pairs import Pair, discover_pairs
from rankscope.spectra import decompose

SMALL = TransformerConfig(layers=2, width=12, heads=3, context=5, vocabulary=7, hidden=10)


def tokens(seed: int = 0) -> Tensor:
    return torch.randint(7, (2, 5), generator=torch.Generator().manual_seed(seed))


def norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight + bias


def dense_logits(weights: dict[str, Tensor], row: list[int], *, width: int, heads: int) -> Tensor:
    """The network of one sequence written out position by position and head by head."""
    x = math.sqrt(width) * weights["embedding.weight"][row]
    for t in range(len(row)):
        for i in range(0, width, 2):
            angle = t / 10000 ** (i / width)
            x[t, i] += math.sin(angle)
            x[t, i + 1] += math.cos(angle)
    for layer in range(2):
        w = {name.removeprefix(f"blocks.{layer}."): tensor for name, tensor in weights.items()}
        y = norm(x, w["norm1.weight"], w["norm1.bias"])
        Wq, Wk, Wv = w["attn.qkv.weight"].split(width)
        bq, bk, bv = w["attn.qkv.bias"].split(width)
        mixed = torch.zeros_like(x)
        for rows in torch.arange(width).reshape(heads, -1):
            q, k, v = (y @ W[rows].T + b[rows] for W, b in ((Wq, bq), (Wk, bk), (Wv, bv)))
            for t in range(len(row)):
                scores = k[: t + 1] @ q[t] / math.sqrt(width / heads)
                mixed[t, rows] = scores.softmax(0) @ v[: t + 1]
        x = x + mixed @ w["attn.out_proj.weight"].T + w["attn.out_proj.bias"]
        y = norm(x, w["norm2.weight"], w["norm2.bias"])
        y = (y @ w["w1.weight"].T + w["w1.bias"]).clamp(min=0)
        x = x + y @ w["w2.weight"].T + w["w2.bias"]
    return x @ weights["output.weight"].T + weights["output.bias"]


@torch.no_grad()
def test_forward_pass_is_the_network_written_out() -> None:
    model = SMALL.build().double()
    for parameter in model.parameters():
        parameter += 0.1 * torch.randn(
            parameter.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
        )
    logits = model(tokens())
    weights = dict(model.named_parameters())
    for row, row_logits in zip(tokens().tolist(), logits, strict=True):
        # The positions are stored in float32.
        torch.testing.assert_close(
            row_logits, dense_logits(weights, row, width=12, heads=3), rtol=1e-5, atol=1e-6
        )


def test_initial_weights_have_the_documented_bounds() -> None:
    model = TransformerConfig(layers=1, width=64, heads=4, vocabulary=100, context=5).build()
    block = model.blocks[0]
    bounds = {
        model.embedding.weight: 0.1,
        model.output.weight: 0.1,
        block.attn.qkv.weight: math.sqrt(6 / (64 + 192)),
        block.attn.out_proj.weight: 1 / 8,
        block.w1.weight: 1 / 8,
        block.w2.bias: 1 / 8,
        model.output.bias: 0.0,
        block.attn.qkv.bias: 0.0,
        block.attn.out_proj.bias: 0.0,
    }
    for tensor, bound in bounds.items():
        assert 0.9 * bound <= tensor.abs().max().item() <= bound + 1e-6
    assert (block.norm1.weight == 1).all() and (block.norm1.bias == 0).all()


def test_weights_come_from_the_seed_alone() -> None:
    before = torch.get_rng_state()
    first, same, other = (
        TransformerConfig(2, 12, 3, 5, 7).build(seed).state_dict() for seed in (3, 3, 4)
    )
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert not torch.equal(first["embedding.weight"], other["embedding.weight"])


@pytest.mark.parametrize("copied", [True, False])
def test_layers_start_as_copies_only_when_asked(copied: bool) -> None:
    model = TransformerConfig(3, 12, 3, 5, 7, copied_layers=copied).build()
    first, last = (model.blocks[i].w1.weight for i in (0, 2))
    assert torch.equal(first, last) is copied
    assert first.data_ptr() != last.data_ptr()


def test_pairs_are_the_papers() -> None:
    names = [(pair.name, pair.kind, pair.later_side) for pair in SMALL.build().alignment_pairs()]
    assert names == [
        ("embedding > blocks.0.attn.qkv", "input", "in"),
        ("blocks.0.attn.h0.q > blocks.0.attn.h0.k", "qk", "out"),
        ("blocks.0.attn.h1.q > blocks.0.attn.h1.k", "qk", "out"),
        ("blocks.0.attn.h2.q > blocks.0.attn.h2.k", "qk", "out"),
        ("blocks.0.attn.v > blocks.0.attn.out_proj", "vo", "in"),
        ("blocks.0.attn.out_proj > blocks.0.w1", "o-w1", "in"),
        ("blocks.0.w1 > blocks.0.w2", "w1-w2", "in"),
        ("blocks.0.w2 > blocks.1.attn.qkv", "w2-qkv", "in"),
        ("blocks.1.attn.h0.q > blocks.1.attn.h0.k", "qk", "out"),
        ("blocks.1.attn.h1.q > blocks.1.attn.h1.k", "qk", "out"),
        ("blocks.1.attn.h2.q > blocks.1.attn.h2.k", "qk", "out"),
        ("blocks.1.attn.v > blocks.1.attn.out_proj", "vo", "in"),
        ("blocks.1.attn.out_proj > blocks.1.w1", "o-w1", "in"),
        ("blocks.1.w1 > blocks.1.w2", "w1-w2", "in"),
        ("blocks.1.w2 > output", "output", "in"),
    ]


def key(pair: Pair) -> tuple[object, ...]:
    return pair.earlier, pair.later, pair.earlier_side, pair.later_side, pair.later_cut


def test_declared_pairs_are_those_of_the_forward_pass() -> None:
    model = SMALL.build()
    discovered = discover_pairs(model, tokens())
    assert {key(pair) for pair in model.alignment_pairs()} == {key(pair) for pair in discovered}


@pytest.mark.parametrize("layers", [1, 2, 12])
def test_shown_matrix_and_pair_are_of_a_middle_layer(layers: int) -> None:
    model = TransformerConfig(layers, 12, 3, 5).build()
    matrix, pair = model.shown()
    assert matrix == f"blocks.{layers // 2}.w1" and matrix in views(model)
    assert pair in {declared.name for declared in model.alignment_pairs()}


def stored(model: Transformer, name: str) -> Tensor:
    """The matrix of that name cut out of the stored tensors by hand."""
    if name == "embedding":
        return model.embedding.weight.T
    if ".attn." in name and not name.endswith((".qkv", ".out_proj")):
        block, _, rest = name.partition(".attn.")
        qkv = model.get_submodule(f"{block}.attn.qkv").weight
        whole = qkv.split(12)["qkv".index(rest[-1])]
        return whole.split(4)[int(rest[1])] if rest.startswith("h") else whole
    return model.get_submodule(name).weight


@pytest.mark.parametrize("pair", SMALL.build().alignment_pairs(), ids=lambda pair: pair.name)
def test_every_pair_meets_in_one_space(pair: Pair) -> None:
    """The names exist, the views are the stored matrices, and the overlap is the dense one."""
    model = SMALL.build().double()
    matrices = views(model, parts=True)
    earlier, later = stored(model, pair.earlier), stored(model, pair.later)
    assert torch.equal(matrices[pair.earlier].W, earlier) and torch.equal(
        matrices[pair.later].W, later
    )
    U = torch.linalg.svd(earlier, full_matrices=False)[0]
    later_U, _, later_Vh = torch.linalg.svd(later, full_matrices=False)
    theirs = later_U if pair.kind == "qk" else later_Vh.mT
    want = (U.mT @ theirs).diagonal().abs()
    names = (pair.earlier, pair.later)
    known = decompose({name: matrices[name] for name in names}, ranks=dict.fromkeys(names, 100))
    torch.testing.assert_close(alignment(pair, known), want.detach(), atol=1e-7, rtol=1e-5)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((2, 15, 3, 7, 5), "even and a multiple of the 3 heads, got 15"),
        ((0, 12, 3, 7, 5), "at least 1"),
    ],
)
def test_impossible_sizes_are_named(sizes: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TransformerConfig(*sizes)
