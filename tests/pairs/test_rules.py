"""Alignment rules against a dense computation with numpy from the stored weights."""

from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import DeepseekV3Config, DiffLlamaConfig, LlamaConfig
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention
from transformers.models.diffllama.modeling_diffllama import DiffLlamaAttention
from transformers.models.llama.modeling_llama import LlamaAttention

from pairs.networks import ROWS, TOKENS, Tagger, UNet
from rankscope.matrices import views
from rankscope.overlaps import measure
from rankscope.pairs import Pair, discover_pairs, inside_pairs, pair_rule
from rankscope.spectra import decompose

Matrix = NDArray[np.float64]


def array(tensor: Tensor) -> Matrix:
    return tensor.detach().double().numpy()


def left(W: Matrix) -> Matrix:
    """Return left singular vectors as columns."""
    return np.linalg.svd(W, full_matrices=False)[0]


def right(W: Matrix) -> Matrix:
    """Return right singular vectors as columns."""
    return np.linalg.svd(W, full_matrices=False)[2].T


def check(model: nn.Module, pairs: Iterable[Pair], name: str, x: Matrix, y: Matrix) -> None:
    """Compare our four numbers for a pair with those of two sets of column vectors, cut already."""
    (pair,) = (candidate for candidate in pairs if candidate.name == name)
    matrices = views(model, parts=True)
    both = {matrix: matrices[matrix] for matrix in (pair.earlier, pair.later)}
    measured = measure(pair, decompose(both, ranks=dict.fromkeys(both, 100)))
    A = np.abs(x.T @ y)
    B = A / np.linalg.norm(x, axis=0)[:, None] / np.linalg.norm(y, axis=0)[None, :]
    off = ~np.eye(*A.shape, dtype=bool)
    close = {"rtol": 1e-5, "atol": 1e-7}
    np.testing.assert_allclose(measured.diagonal.numpy(), np.diagonal(A), **close)
    np.testing.assert_allclose(measured.normalized_diagonal.numpy(), np.diagonal(B), **close)
    np.testing.assert_allclose(measured.background.item(), A[off].mean(), **close)
    np.testing.assert_allclose(measured.normalized_background.item(), B[off].mean(), **close)


@pytest.fixture(autouse=True)
def _seed() -> Iterable[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def test_linear_after_linear() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5))
    W, after = array(model[0].weight), array(model[2].weight)
    check(model, discover_pairs(model, ROWS), "0 > 2", left(W), right(after))


def test_embedding_is_stored_transposed_and_may_be_the_output_layer() -> None:
    model = nn.Sequential(nn.Embedding(11, 6), nn.Linear(6, 6), nn.Linear(6, 11, bias=False))
    model[2].weight = model[0].weight
    shared, W = array(model[0].weight), array(model[1].weight)
    pairs = discover_pairs(model, TOKENS)
    check(model, pairs, "0 > 1", right(shared), right(W))
    check(model, pairs, "1 > 0", left(W), right(shared))


def test_concatenated_skip_and_transposed_convolution() -> None:
    model = UNet()
    pairs = discover_pairs(model, torch.randn(1, 1, 8, 8), torch.randn(1, 5))
    # Stored (in, out, taps): 9 inputs of which 5 come up and 4 skip; one output, so one vector.
    up1 = array(model.up1.weight).transpose(1, 0, 2, 3).reshape(1, 81)
    tap = right(up1).reshape(9, 3, 3, -1)[:, 1, 1]
    up2 = array(model.up2.weight).transpose(1, 0, 2, 3).reshape(5, 48)
    skip = array(model.down1.weight).reshape(4, 9)
    check(model, pairs, "up2 > up1", left(up2), tap[:5])
    check(model, pairs, "down1 > up1", left(skip), tap[5:])
    halves = right(up2).reshape(12, 2, 2, -1)[:, 1, 1]
    check(model, pairs, "middle > up2", left(array(model.middle.weight).reshape(6, 54)), halves[:6])
    check(model, pairs, "dense > up2", left(array(model.dense.weight)), halves[6:])


def gate(W: Tensor, position: int) -> Matrix:
    """Return a gate's four rows of an LSTM's left vectors."""
    return left(array(W))[4 * position : 4 * position + 4]


def test_gates_and_direction_halves() -> None:
    model = Tagger(nn.LSTM(6, 4, 2, bidirectional=True))
    lstm, pairs = model.lstm, discover_pairs(model, TOKENS)
    hh, out = right(array(lstm.weight_hh_l0_reverse)), right(array(model.out.weight))
    for position, label in enumerate("ifgo"):
        name = f"lstm.l0.reverse.ih > lstm.l0.reverse.hh [{label}]"
        check(model, pairs, name, gate(lstm.weight_ih_l0_reverse, position), hh)
    forward = right(array(lstm.weight_ih_l1))[:4]
    backward = right(array(lstm.weight_ih_l1_reverse))[4:]
    check(model, pairs, "lstm.l0.ih > lstm.l1.ih [f]", gate(lstm.weight_ih_l0, 1), forward)
    check(model, pairs, "lstm.l0.hh > lstm.l1.ih [o]", gate(lstm.weight_hh_l0, 3), forward)
    name = "lstm.l0.reverse.hh > lstm.l1.reverse.ih [g]"
    check(model, pairs, name, gate(lstm.weight_hh_l0_reverse, 2), backward)
    crossing = right(array(lstm.weight_ih_l1_reverse))[:4]
    name = "lstm.l0.ih > lstm.l1.reverse.ih [i]"
    check(model, pairs, name, gate(lstm.weight_ih_l0, 0), crossing)
    crossing = right(array(lstm.weight_ih_l1))[4:]
    name = "lstm.l0.reverse.hh > lstm.l1.ih [o]"
    check(model, pairs, name, gate(lstm.weight_hh_l0_reverse, 3), crossing)
    check(model, pairs, "lstm.l1.hh > out [i]", gate(lstm.weight_hh_l1, 0), out[:4])
    name = "lstm.l1.reverse.ih > out [o]"
    check(model, pairs, name, gate(lstm.weight_ih_l1_reverse, 3), out[4:])


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
def test_projected_states() -> None:
    model = Tagger(nn.LSTM(6, 4, 2, bidirectional=True, proj_size=3))
    lstm, pairs = model.lstm, discover_pairs(model, TOKENS)
    hr, hr_back = array(lstm.weight_hr_l0), array(lstm.weight_hr_l0_reverse)
    name = "lstm.l0.hh > lstm.l0.hr [g]"
    check(model, pairs, name, gate(lstm.weight_hh_l0, 2), right(hr))
    hh = right(array(lstm.weight_hh_l0))
    check(model, pairs, "lstm.l0.hr > lstm.l0.hh", left(hr), hh)
    above = right(array(lstm.weight_ih_l1_reverse))[3:]
    check(model, pairs, "lstm.l0.reverse.hr > lstm.l1.reverse.ih", left(hr_back), above)
    above = right(array(lstm.weight_ih_l1_reverse))[:3]
    check(model, pairs, "lstm.l0.hr > lstm.l1.reverse.ih", left(hr), above)
    last, out = array(lstm.weight_hr_l1_reverse), right(array(model.out.weight))[3:]
    check(model, pairs, "lstm.l1.reverse.hr > out", left(last), out)
    assert not any(pair.earlier.endswith(".ih") and pair.later == "out" for pair in pairs)


@pytest.mark.parametrize(("kind", "gates"), [(nn.GRU, "rzn"), (nn.RNN, "")])
def test_other_recurrent_modules(kind: type[nn.RNNBase], gates: str) -> None:
    model = nn.ModuleDict({"r": kind(4, 3, 2)})
    labels = [f" [{gate}]" for gate in gates] or [""]
    two = ("r.l0.ih > r.l0.hh", "r.l0.ih > r.l1.ih", "r.l0.hh > r.l1.ih", "r.l1.ih > r.l1.hh")
    pairs = inside_pairs(model)
    assert {pair.name for pair in pairs} == {pair + label for pair in two for label in labels}
    W, hh = array(model["r"].weight_ih_l1), array(model["r"].weight_hh_l1)
    check(model, pairs, f"r.l1.ih > r.l1.hh{labels[-1]}", left(W)[-3:], right(hh))


@pytest.mark.parametrize("packed", [True, False])
def test_heads_of_multihead_attention(packed: bool) -> None:
    widths = {} if packed else {"kdim": 5, "vdim": 7}
    model = nn.ModuleDict({"m": nn.MultiheadAttention(6, 2, **widths)})
    m = model["m"]
    separate = (m.q_proj_weight, m.k_proj_weight, m.v_proj_weight)
    q, k, v = map(array, m.in_proj_weight.chunk(3) if packed else separate)
    pairs = inside_pairs(model)
    assert [pair.name for pair in pairs] == [
        "m.h0.q > m.h0.k",
        "m.h1.q > m.h1.k",
        "m.v > m.out_proj",
    ]
    # Each head is decomposed on its own: rows 3, 4, 5 are the second.
    check(model, pairs, "m.h1.q > m.h1.k", left(q[3:]), left(k[3:]))
    check(model, pairs, "m.v > m.out_proj", left(v), right(array(m.out_proj.weight)))


def test_heads_that_share_keys_and_values() -> None:
    config = LlamaConfig(hidden_size=8, num_attention_heads=4, num_key_value_heads=2)
    model = nn.ModuleDict({"a": LlamaAttention(config, 0)})
    a, pairs = model["a"], inside_pairs(model)
    projections = (a.q_proj, a.k_proj, a.v_proj, a.o_proj)
    q, k, v, o = (array(projection.weight) for projection in projections)
    # Heads of width 2; query heads 2 and 3 meet the second key and value head.
    check(model, pairs, "a.h2.q > a.h2.k", left(q[4:6]), left(k[2:4]))
    check(model, pairs, "a.h1.q > a.h1.k", left(q[2:4]), left(k[:2]))
    check(model, pairs, "a.h3.v > a.o_proj", left(v[2:4]), right(o)[6:8])
    assert len(pairs) == 8


class TwoInOne(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(F.relu(self.first(x)))


def test_a_registered_rule_is_asked() -> None:
    @pair_rule.register(TwoInOne)
    def _(module: TwoInOne, name: str) -> tuple[Pair, ...]:
        return (Pair(f"{name}.first", f"{name}.second", kind="mine"),)

    model = nn.Sequential(nn.Linear(2, 3), TwoInOne())
    inner = Pair("1.first", "1.second", kind="mine")
    assert inside_pairs(model) == (inner,)
    assert discover_pairs(model, torch.randn(5, 2)) == (Pair("0", "1.first"), inner)


def test_a_module_used_under_two_names_has_its_pairs_once() -> None:
    lstm = nn.RNN(3, 3)
    assert inside_pairs(nn.ModuleDict({"a": lstm, "b": lstm})) == (
        Pair("a.l0.ih", "a.l0.hh", kind="recurrent"),
    )


def test_differential_heads_pair_with_values_side_by_side() -> None:
    """Values of heads i and i + 2 lie side by side under the columns of one head of outputs."""
    config = DiffLlamaConfig(
        hidden_size=12, num_attention_heads=4, num_key_value_heads=4, head_dim=3
    )
    model = nn.ModuleDict({"attn": DiffLlamaAttention(config, layer_idx=0)})
    pairs = inside_pairs(model)
    assert len([pair for pair in pairs if pair.kind == "qk"]) == 4
    values = array(model["attn"].v_proj.weight).reshape(4, 3, 12)[[0, 2, 1, 3]].reshape(12, 12)
    output = array(model["attn"].o_proj.weight)
    check(model, pairs, "attn.v > attn.o_proj", left(values), right(output))


def test_pairs_of_latent_and_shared_heads_can_be_measured() -> None:
    """Every pair names two matrices whose directions meet."""
    differential = DiffLlamaConfig(
        hidden_size=12, num_attention_heads=4, num_key_value_heads=2, head_dim=3
    )
    latent = DeepseekV3Config(
        **dict(hidden_size=12, num_attention_heads=3, num_key_value_heads=3, kv_lora_rank=8),
        **dict(q_lora_rank=6, qk_nope_head_dim=4, qk_rope_head_dim=2, v_head_dim=5),
    )
    model = nn.ModuleDict(
        {
            "differential": DiffLlamaAttention(differential, layer_idx=0),
            "latent": DeepseekV3Attention(latent, layer_idx=0),
        }
    )
    matrices = views(model, parts=True)
    kinds: Counter[tuple[str, str]] = Counter()
    for pair in inside_pairs(model):
        both = {name: matrices[name] for name in (pair.earlier, pair.later)}
        overlap = measure(pair, decompose(both, ranks=dict.fromkeys(both, 100)))
        assert overlap.normalized_diagonal.isfinite().all()
        kinds[pair.kind, pair.earlier.partition(".")[0]] += 1
    assert kinds == {
        ("qk", "differential"): 4,
        ("vo", "differential"): 2,
        ("qk", "latent"): 3,
        ("vo", "latent"): 1,
    }
