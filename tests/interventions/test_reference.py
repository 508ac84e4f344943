"""Truncated changes: W0 plus the leading part of W - W0, of whole matrices and of heads."""

import copy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.utils import prune
from torch.nn.utils.parametrizations import weight_norm

import rankscope as rs
from interventions.models import best_of_rank, drawn
from matrices.attention_cases import attention
from rankscope.interventions import truncate
from rankscope.spectra import decompose


def moved(model: nn.Module, *, size: float = 0.1, seed: int = 9) -> nn.Module:
    """Return a copy of the model a little away, as training would leave it."""
    model = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in model.parameters():
            noise = torch.randn(tensor.shape, dtype=torch.float64, generator=generator)
            tensor += (size * noise).to(tensor.dtype)
    return model


def pair(build: Callable[[], nn.Module], *, seed: int = 0) -> tuple[nn.Module, nn.Module]:
    """Return a model in float64 at its start, and trained."""
    start = drawn(build(), seed)
    return start, moved(start)


def layers() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 5), nn.Conv2d(3, 4, 3), nn.Linear(5, 7))


def cut(W0: np.ndarray, W: np.ndarray, r: int) -> np.ndarray:
    return W0 + best_of_rank(W - W0, r)


def array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().numpy().reshape(len(tensor), -1)


@pytest.mark.parametrize("rank", [0, 1, 3, 4, 50])
def test_changes_are_cut_as_by_a_dense_svd(rank: int) -> None:
    start, trained = pair(layers)
    slim = truncate(trained, reference=start, rank=rank, skip=())
    for i in range(3):
        want = cut(array(start[i].weight), array(trained[i].weight), rank)
        np.testing.assert_allclose(array(slim[i].weight), want, atol=1e-12)
        assert torch.equal(slim[i].bias, trained[i].bias)


@given(m=st.integers(2, 9), n=st.integers(2, 9), rank=st.integers(0, 9), seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_the_error_is_the_tail_of_the_change(m: int, n: int, rank: int, seed: int) -> None:
    start, trained = pair(lambda: nn.Linear(n, m, bias=False), seed=seed)
    slim = truncate(trained, reference=start, rank=rank, skip=())
    S = np.linalg.svd(array(trained.weight) - array(start.weight), compute_uv=False)
    error = torch.linalg.matrix_norm(trained.weight - slim.weight).item()
    assert error == pytest.approx(np.sqrt((S[rank:] ** 2).sum()), abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_full_rank_is_the_trained_network_and_rank_0_the_start_to_the_last_digit(
    dtype: torch.dtype,
) -> None:
    start = drawn(layers()).to(dtype)
    trained = moved(start)
    whole, none = (truncate(trained, reference=start, rank=r, skip=()) for r in (6, 0))
    for i in (0, 2):
        assert torch.equal(whole[i].weight, trained[i].weight)
        assert torch.equal(none[i].weight, start[i].weight)
    assert torch.equal(none[1].weight, start[1].weight)


def test_shares_energies_and_bottoms_are_those_of_the_change() -> None:
    start, trained = pair(lambda: nn.Linear(6, 5, bias=False))
    W0, dW = array(start.weight), array(trained.weight) - array(start.weight)
    S = np.linalg.svd(dW, compute_uv=False)
    share = float((S[:2] ** 2).sum() / (S**2).sum()) + 1e-9
    for options, want in (
        ({"keep": 0.4}, W0 + best_of_rank(dW, 2)),
        ({"energy": share}, W0 + best_of_rank(dW, 3)),
        ({"rank": 2, "part": "bottom"}, W0 + dW - best_of_rank(dW, 3)),
    ):
        slim = truncate(trained, reference=start, skip=(), **options)
        np.testing.assert_allclose(array(slim.weight), want, atol=1e-12)


def test_the_last_linear_stays_as_trained_by_default() -> None:
    start, trained = pair(layers)
    slim = truncate(trained, reference=start, rank=1)
    assert torch.equal(slim[2].weight, trained[2].weight)
    assert not torch.equal(slim[0].weight, trained[0].weight)


WIDTH, HEADS, UNIT = 12, 3, 4


class Fused(nn.Module):
    """Attention with one projection for queries, keys and values, beside a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.attn = attention({"qkv": (WIDTH, 3 * WIDTH), "proj": (WIDTH, WIDTH)}, num_heads=HEADS)
        self.fc = nn.Linear(WIDTH, WIDTH)


def head(model: nn.Module, role: str, number: int) -> np.ndarray:
    """The rows or columns of one head, straight from the documented layout."""
    units = slice(number * UNIT, (number + 1) * UNIT)
    if role == "o":
        return array(model.attn.proj.weight)[:, units]
    block = "qkv".index(role) * WIDTH
    return array(model.attn.qkv.weight)[block : block + WIDTH][units]


@pytest.mark.parametrize("roles", ["qk", "vo", "qkvo"])
@pytest.mark.parametrize("rank", [0, 1, 3, UNIT])
def test_each_head_of_a_fused_projection_is_cut_by_itself(roles: str, rank: int) -> None:
    start, trained = pair(Fused)
    slim = truncate(trained, reference=start, rank={f"attn.h*.{role}": rank for role in roles})
    for role in "qkvo":
        for number in range(HEADS):
            W0, W, result = (head(model, role, number) for model in (start, trained, slim))
            if role in roles:
                np.testing.assert_allclose(result, cut(W0, W, rank), atol=1e-12)
            else:
                np.testing.assert_array_equal(result, W)
    assert torch.equal(slim.fc.weight, trained.fc.weight)


def test_packed_attention_of_torch_is_cut_by_heads() -> None:
    start, trained = pair(lambda: nn.MultiheadAttention(WIDTH, HEADS))
    slim = truncate(trained, reference=start, rank={"h*.q": 1})
    rows = slice(UNIT, 2 * UNIT)
    want = cut(array(start.in_proj_weight)[rows], array(trained.in_proj_weight)[rows], 1)
    np.testing.assert_allclose(array(slim.in_proj_weight)[rows], want, atol=1e-12)
    assert torch.equal(slim.in_proj_weight[WIDTH:], trained.in_proj_weight[WIDTH:])


def test_heads_can_be_cut_without_a_reference() -> None:
    _, trained = pair(Fused)
    slim = truncate(trained, rank={"attn.h1.v": 2})
    want = best_of_rank(head(trained, "v", 1), 2)
    np.testing.assert_allclose(head(slim, "v", 1), want, atol=1e-12)
    np.testing.assert_array_equal(head(slim, "v", 0), head(trained, "v", 0))


def test_whole_names_count_first_then_the_first_pattern_and_skip_leaves_out() -> None:
    start, trained = pair(Fused)
    ranks = {"attn.h*.q": 1, "attn.h0.q": 2, "attn.*": 3}
    skip = ["attn.h2.*", "attn.*.[kvo]", "attn.[qkv]", "attn.qkv", "attn.proj"]
    slim = truncate(trained, reference=start, rank=ranks, skip=skip)
    for number, rank in enumerate((2, 1, UNIT)):
        W0, W, result = (head(model, "q", number) for model in (start, trained, slim))
        np.testing.assert_allclose(result, cut(W0, W, rank), atol=1e-12)


class Shared(nn.Module):
    """Two query heads for each head of keys."""

    def __init__(self) -> None:
        super().__init__()
        sizes = {"q_proj": (8, 8), "k_proj": (8, 4), "v_proj": (8, 4), "o_proj": (8, 8)}
        self.self_attn = attention(sizes, num_heads=4, num_key_value_heads=2, head_dim=2)


def test_key_heads_that_several_queries_meet_are_cut_once_and_alike() -> None:
    start, trained = pair(Shared)
    slim = truncate(trained, reference=start, rank={"self_attn.h*.k": 1})
    for rows in (slice(0, 2), slice(2, 4)):
        W0, W, result = (array(m.self_attn.k_proj.weight)[rows] for m in (start, trained, slim))
        np.testing.assert_allclose(result, cut(W0, W, 1), atol=1e-12)
    with pytest.raises(ValueError, match=r"'self_attn.h0.k' and 'self_attn.h1.k' share entries"):
        truncate(trained, rank={"self_attn.h0.k": 1, "self_attn.h1.k": 2})


FORMS: dict[str, Callable[[nn.Module, Path], object]] = {
    "model": lambda start, folder: start,
    "state dict": lambda start, folder: start.state_dict(),
    "wrapped": lambda start, folder: {f"module.{n}": t for n, t in start.state_dict().items()},
    "safetensors": lambda start, folder: saved(start, folder / "start.safetensors"),
    "torch.save": lambda start, folder: saved(start, folder / "start.pt"),
}


def saved(model: nn.Module, path: Path) -> Path:
    if path.suffix == ".pt":
        torch.save(model.state_dict(), path)
    else:
        save_file(model.state_dict(), path)
    return path


@pytest.mark.parametrize("form", FORMS)
def test_references_in_every_form(form: str, tmp_path: Path) -> None:
    start, trained = pair(layers)
    reference = FORMS[form](start, tmp_path)
    want = truncate(trained, reference=start, rank=1).state_dict()
    for name, tensor in truncate(trained, reference=reference, rank=1).state_dict().items():
        assert torch.equal(tensor, want[name])


def test_the_reference_of_a_run_serves(tmp_path: Path) -> None:
    start, trained = pair(layers)
    model = copy.deepcopy(start)
    with rs.Tracker(model, tmp_path / "run", schedule=1) as tracker:
        tracker.observe(0)
        model.load_state_dict(trained.state_dict())
        tracker.snapshot(1)
    slim = truncate(model, reference=tmp_path / "run" / "reference.safetensors", rank=0)
    assert torch.equal(slim[0].weight, start[0].weight)


def test_a_reference_may_hold_more_and_only_what_is_cut() -> None:
    start, trained = pair(Fused)
    part = {"attn.qkv.weight": start.attn.qkv.weight, "elsewhere": torch.zeros(2, 2)}
    slim = truncate(trained, reference=part, rank={"attn.h0.k": 1})
    want = cut(head(start, "k", 0), head(trained, "k", 0), 1)
    np.testing.assert_allclose(head(slim, "k", 0), want, atol=1e-12)


def test_tied_weights_stay_tied_and_a_file_may_hold_either_name() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(9, 4)
            self.output = nn.Linear(4, 9, bias=False)
            self.output.weight = self.embedding.weight

    start, trained = pair(Tied)
    reference = {"output.weight": start.output.weight}
    slim = truncate(trained, reference=reference, rank=1, skip=())
    assert slim.output.weight is slim.embedding.weight
    want = cut(array(start.output.weight), array(trained.output.weight), 1)
    np.testing.assert_allclose(array(slim.output.weight), want, atol=1e-12)


@pytest.mark.parametrize(
    "parametrize", [weight_norm, lambda layer: prune.l1_unstructured(layer, "weight", 0.5)]
)
@pytest.mark.parametrize("before", [True, False], ids=["from before", "as it is now"])
def test_changes_are_those_of_effective_weights(parametrize, before: bool) -> None:
    """The reference may be from before the layer was parametrized."""
    start = drawn(nn.Sequential(nn.Linear(5, 6)))
    reference = copy.deepcopy(start)
    if not before:
        parametrize(reference[0])
        reference[0](torch.zeros(1, 5, dtype=torch.float64))
    trained = nn.Sequential(nn.Linear(5, 6)).double()
    trained[0].load_state_dict(moved(start)[0].state_dict())
    parametrize(trained[0])
    trained(torch.zeros(1, 5, dtype=torch.float64))
    for given_reference in (reference, reference.state_dict()):
        slim = truncate(trained, reference=given_reference, rank=2, skip=())
        W0, W = array(reference[0].weight), array(trained[0].weight)
        np.testing.assert_allclose(array(slim[0].weight), cut(W0, W, 2), atol=1e-7)


def test_decompositions_at_hand_are_those_of_the_change(monkeypatch: pytest.MonkeyPatch) -> None:
    start, trained = pair(Fused)
    changes = {
        f"attn.h{h}.q": torch.from_numpy(head(trained, "q", h) - head(start, "q", h))
        for h in range(HEADS)
    }
    own = decompose(changes, ranks=dict.fromkeys(changes, UNIT))
    want = truncate(trained, reference=start, rank={"attn.h*.q": 2})

    def never(matrices: dict[str, Tensor], **options: object) -> dict[str, object]:
        assert not matrices, "a matrix was decomposed twice"
        return {}

    monkeypatch.setattr("rankscope.interventions.truncation.decompose", never)
    slim = truncate(trained, reference=start, rank={"attn.h*.q": 2}, decompositions=own)
    torch.testing.assert_close(slim.attn.qkv.weight, want.attn.qkv.weight)


def test_nothing_given_is_changed() -> None:
    start, trained = pair(layers)
    before = [copy.deepcopy(model.state_dict()) for model in (start, trained)]
    truncate(trained, reference=start, rank=1, skip=())
    for model, state in zip((start, trained), before, strict=True):
        assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"rank": {}}, "rank names no matrix; pass a number"),
        ({"rank": {"attn.h*.q": -1}}, "0 or more, got -1"),
        ({"rank": {"attn.h*.x": 1}}, r"'attn.h\*.x' matches no matrix"),
        ({"rank": {"attn.h*.q": 1}, "keep": 0.5}, "pass one of keep, rank and energy"),
        ({"rank": {"attn.qkv": 1, "attn.h0.q": 1}}, r"'attn.qkv' and 'attn.h0.q' share entries"),
        ({"reference": {"fc.weight": torch.zeros(12, 12)}}, "the reference lacks 2 of the tensors"),
        ({"reference": Fused().attn}, "the reference lacks 2 of the tensors"),
        ({"reference": "missing.pt"}, "missing.pt"),
        (
            {"reference": {n: torch.zeros(7, 7) for n in Fused().state_dict()}},
            r"tensor 'attn.qkv.weight' has shape \(7, 7\), the model's \(36, 12\)",
        ),
    ],
)
def test_mistakes_are_named(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        truncate(Fused(), **options)


def test_an_effective_weight_without_its_module_is_refused() -> None:
    class Doubled(nn.Module):
        def forward(self, weight: Tensor) -> Tensor:
            return 2 * weight

    model = nn.Sequential(nn.Linear(3, 3))
    nn.utils.parametrize.register_parametrization(model[0], "weight", Doubled())
    with pytest.raises(ValueError, match="a state dict does not hold; pass the model itself"):
        truncate(model, reference=model.state_dict(), rank=1, skip=())
    slim = truncate(model, reference=model, rank=1, skip=())
    torch.testing.assert_close(slim[0].weight, model[0].weight)
