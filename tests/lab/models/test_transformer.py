import math
from collections import Counter

import pytest
import torch
from torch import Tensor

from rankscope.lab.models.transformer import Transformer, TransformerConfig
from rankscope.matrices import views
from rankscope.overlaps import alignment
from rankscope.pairs import Pair
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


@pytest.mark.parametrize("copied", [True, False])
def test_layers_start_as_copies_only_when_asked(copied: bool) -> None:
    model = TransformerConfig(3, 12, 3, 5, 7, copied_layers=copied).build()
    first, last = (model.blocks[i].w1.weight for i in (0, 2))
    assert torch.equal(first, last) is copied
    assert first.data_ptr() != last.data_ptr()


def test_kinds_of_pairs_are_the_papers() -> None:
    inside = {"qk": 2 * 3, "vo": 2, "o-w1": 2, "w1-w2": 2}
    kinds = Counter(pair.kind for pair in SMALL.build().alignment_pairs())
    assert kinds == {"input": 1, **inside, "w2-qkv": 1, "output": 1}


def stored(model: Transformer, name: str) -> Tensor:
    """The matrix of that name cut out of the stored tensors by hand."""
    if name == "embedding":
        return model.embedding.weight.T
    if ".attn." in name and not name.endswith((".qkv", ".out_proj")):
        block, _, rest = name.partition(".attn.")
        whole = model.get_parameter(f"{block}.attn.qkv.weight").split(12)["qkv".index(rest[-1])]
        return whole.split(4)[int(rest[1])] if rest.startswith("h") else whole
    return model.get_parameter(f"{name}.weight")


@torch.no_grad()
@pytest.mark.parametrize("pair", SMALL.build().alignment_pairs(), ids=lambda pair: pair.name)
def test_every_pair_meets_in_one_space(pair: Pair) -> None:
    """The views are the stored matrices, and the overlap is the dense one."""
    model, names = SMALL.build().double(), (pair.earlier, pair.later)
    matrices = {name: views(model, parts=True)[name] for name in names}
    earlier, later = (stored(model, name) for name in names)
    assert torch.equal(matrices[pair.earlier].W, earlier)
    assert torch.equal(matrices[pair.later].W, later)
    U = torch.linalg.svd(earlier, full_matrices=False)[0]
    later_U, _, later_Vh = torch.linalg.svd(later, full_matrices=False)
    want = (U.mT @ (later_U if pair.kind == "qk" else later_Vh.mT)).diagonal().abs()
    known = decompose(matrices, ranks=dict.fromkeys(names, 100))
    torch.testing.assert_close(alignment(pair, known), want, atol=1e-7, rtol=1e-5)
