"""Attention, against logits and entropies computed densely beside the model."""

import math
import warnings

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _get_current_dispatch_mode

import rankscope as rs
from rankscope.measures.attention_logits import HeadSums


class Separate(nn.Module):
    """Causal self-attention by the fused kernel, with biases."""

    def __init__(self, width: int = 12, heads: int = 3) -> None:
        super().__init__()
        self.num_heads, self.head_dim = heads, width // heads
        self.q_proj, self.k_proj = nn.Linear(width, width), nn.Linear(width, width)
        self.v_proj, self.out_proj = nn.Linear(width, width), nn.Linear(width, width)

    def heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (self.heads(p(x)) for p in (self.q_proj, self.k_proj, self.v_proj))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out_proj(y.transpose(1, 2).flatten(2))

    def logits(self, x: Tensor) -> Tensor:
        q, k = self.heads(self.q_proj(x)), self.heads(self.k_proj(x))
        later = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
        return (q @ k.mT / math.sqrt(self.head_dim)).masked_fill(later, -math.inf)


class Packed(nn.MultiheadAttention):
    """torch's own attention, which takes a softmax itself when it returns weights."""

    def __init__(self) -> None:
        super().__init__(12, 3, batch_first=True)
        nn.init.normal_(self.in_proj_bias)

    def logits(self, x: Tensor) -> Tensor:
        qkv = nn.functional.linear(x, self.in_proj_weight, self.in_proj_bias)
        q, k, _ = (t.unflatten(-1, (3, -1)).transpose(1, 2) for t in qkv.chunk(3, -1))
        return q @ k.mT / 2


class Model(nn.Module):
    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.attn = attention

    def forward(self, x: Tensor) -> Tensor:
        if isinstance(self.attn, nn.MultiheadAttention):
            return self.attn(x, x, x)[0]
        return self.attn(x)


def run(path, model: Model, measure: rs.Attention, *, steps: int = 3) -> list[Tensor]:
    """Train, and return all logits of each step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    logits = []
    with rs.Tracker(model, path, schedule=1, strict=True, measure=measure) as tracker:
        for step in range(steps):
            x = 2 * torch.randn(3, 7, 12)
            with torch.no_grad():
                logits.append(model.attn.logits(x).double())
            model(x).square().mean().backward()
            tracker.observe(step)
            optimizer.step()
            optimizer.zero_grad()
    return logits


@pytest.mark.parametrize("make", [Separate, Packed])
def test_entropies_and_logits_are_those_of_the_kernel(tmp_path, make: type) -> None:
    torch.manual_seed(0)
    logits = run(tmp_path / "run", Model(make()), rs.Attention(queries=7))
    ds = rs.open(tmp_path / "run")
    assert list(ds["head"].values) == ["attn.h0", "attn.h1", "attn.h2"]
    for step, dense in enumerate(logits):
        entropy = torch.special.entr(dense.softmax(-1)).sum(-1).mean((0, 2))
        here = ds.sel(step=step)
        np.testing.assert_allclose(here.attention_entropy, entropy, rtol=1e-5)
        even = dense.isfinite().sum(-1).double().log().mean((0, 2))
        np.testing.assert_allclose(here.attention_entropy_even, even, rtol=1e-5)
        largest = dense.amax((0, 2, 3))
        np.testing.assert_allclose(here.attention_max_logit, largest, rtol=1e-5)
        size = dense.where(dense.isfinite(), 0.0).abs().amax((0, 2, 3)).numpy()
        assert (here.attention_logit_bound > 0.999 * size).all()
        assert (here.attention_logit_bound_rotary > 0.999 * size).all()


def test_the_bound_is_reached_by_inputs_along_the_leading_directions(tmp_path) -> None:
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(6, 1, batch_first=True, bias=False)
    (product,) = (p for n, p in rs.products(attention).items() if n.endswith("kq"))
    U, S, Vh = torch.linalg.svd(product.left @ product.right.mT)  # k . q = x_k U S Vh x_q
    x = torch.stack([3 * U[:, 0], 3 * Vh[0]])[None].detach()
    optimizer = torch.optim.SGD(attention.parameters(), lr=0.1)
    measure = rs.Attention(queries=2)
    with rs.Tracker(attention, tmp_path / "run", schedule=1, measure=measure) as tracker:
        attention(x, x, x)[0].sum().backward()
        tracker.observe(0)
        optimizer.step()
    ds = rs.open(tmp_path / "run").isel(step=0, head=0)
    expected = 9 * float(S[0]) / math.sqrt(6)
    assert float(ds.attention_logit_bound) == pytest.approx(expected, rel=1e-5)
    assert float(ds.attention_max_logit) == pytest.approx(expected, rel=1e-5)


def test_queries_are_sampled_evenly(tmp_path) -> None:
    torch.manual_seed(0)
    logits = run(tmp_path / "run", Model(Separate()), rs.Attention("attn", queries=3), steps=1)
    dense = logits[0][:, :, [0, 3, 6]]
    entropy = torch.special.entr(dense.softmax(-1)).sum(-1).mean((0, 2))
    np.testing.assert_allclose(rs.open(tmp_path / "run").attention_entropy[0], entropy, rtol=1e-5)


def test_gpt2_of_transformers_is_measured(tmp_path) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=50, n_positions=16, n_embd=12, n_layer=2, n_head=3, resid_pdrop=0.0
    )
    model = transformers.GPT2LMHeadModel(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    measure = [rs.Attention(), rs.Activations("transformer.h.*"), rs.Updates(), rs.Gradients()]
    with rs.Tracker(model, tmp_path / "run", schedule=2, strict=True, measure=measure) as tracker:
        for step in range(4):
            tokens = torch.randint(50, (2, 16))
            model(tokens, labels=tokens).loss.backward()
            tracker.observe(step)
            optimizer.step()
            optimizer.zero_grad()
    ds = rs.open(tmp_path / "run")
    assert ds.sizes["head"] == 6 and ds.sizes["step"] == 2
    for name in ("entropy", "max_logit", "logit_bound"):
        assert np.isfinite(ds[f"attention_{name}"]).all()
    assert (ds.attention_entropy <= ds.attention_entropy_even + 1e-6).all()
    assert (ds.attention_logit_bound >= ds.attention_max_logit).all()
    assert (ds.activation_tokens == 32).all()
    attended = ds.rankscope.measure("attention")
    assert "attention_entropy" in attended and "singular_values" not in attended


def test_an_attention_module_that_is_not_called_is_told_once(tmp_path) -> None:
    model = Model(Separate())
    model.idle = Separate()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        optimizer = torch.optim.SGD(model.attn.parameters(), lr=0.1)
        with rs.Tracker(model, tmp_path / "run", schedule=1, measure=rs.Attention()) as tracker:
            for step in range(3):
                model(torch.randn(2, 5, 12)).sum().backward()
                tracker.observe(step)
                optimizer.step()
    (message,) = [str(w.message) for w in caught]
    assert "1 of 2 attention modules, such as 'idle', ran no attention kernel" in message
    entropy = rs.open(tmp_path / "run").attention_entropy
    assert np.isfinite(entropy[:, :3]).all() and np.isnan(entropy[:, 3:]).all()


def test_queries_that_see_no_key_do_not_count() -> None:
    sums = HeadSums.zero(2, torch.device("cpu"))
    logits = torch.zeros(1, 2, 3, 4)
    logits[:, :, 1] = -math.inf  # padding
    logits[:, 1, 2, 2:] = -math.inf
    sums.add(logits)
    even = [math.log(4), (math.log(4) + math.log(2)) / 2]
    torch.testing.assert_close(sums.entropy / sums.count, torch.tensor(even).double())
    torch.testing.assert_close(sums.even / sums.count, torch.tensor(even).double())


def test_masks_of_any_size_hide_keys() -> None:
    visible, mask = torch.randn(1, 2, 3, 2), torch.full((1, 2, 3, 2), -1e4)
    sums = HeadSums.zero(2, torch.device("cpu"))
    sums.add(torch.cat([visible, mask + torch.randn(1, 2, 3, 2)], dim=-1))
    even = torch.full((2,), math.log(2), dtype=torch.float64)
    torch.testing.assert_close(sums.even / sums.count, even)
    torch.testing.assert_close(sums.largest, visible.amax((0, 2, 3)).double())


def test_a_forward_pass_that_is_interrupted_leaves_nothing_on(tmp_path) -> None:
    model = Model(Separate())
    with rs.Tracker(model, tmp_path / "run", schedule=1, measure=rs.Attention()) as tracker:
        tracker.observe(0)
        stop = model.attn.v_proj.register_forward_pre_hook(interrupt)
        with pytest.raises(KeyboardInterrupt):
            model(torch.randn(2, 5, 12))
        assert _get_current_dispatch_mode() is not None
        stop.remove()
        with pytest.warns(RuntimeWarning, match="ran no attention kernel"):
            tracker.observe(1)
    assert _get_current_dispatch_mode() is None


def interrupt(module: nn.Module, args: object) -> None:
    raise KeyboardInterrupt


def test_bad_options_are_refused(tmp_path) -> None:
    with pytest.raises(ValueError, match="no attention module that is read head by head"):
        rs.Tracker(nn.Linear(3, 3), tmp_path / "run", measure=rs.Attention())
    model = Model(Separate())
    with pytest.raises(ValueError, match="'atn' matches no attention module, close: 'attn'"):
        rs.Tracker(model, tmp_path / "run", measure=rs.Attention("atn"))
    with pytest.raises(ValueError, match="queries is at least 1"):
        rs.Tracker(model, tmp_path / "run", measure=rs.Attention(queries=0))
