import copy
from collections.abc import Callable, Collection
from functools import partial

import jaxtyping
import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils import prune
from torch.nn.utils.parametrize import register_parametrization

from interventions.models import best_of_rank, drawn
from rankscope.interventions import directions_kept, perturb, truncate
from rankscope.matrices import views
from rankscope.spectra import decompose


class Mixed(nn.Module):
    """Depthwise convolutions, positions, a class token, a gain and a single output."""

    def __init__(self) -> None:
        super().__init__()
        self.cls_token = nn.Parameter(torch.ones(1, 1, 6))
        self.pos_embed = nn.Parameter(torch.ones(1, 5, 6))
        self.gain = nn.Parameter(torch.ones(6, 1, 1, 1))
        self.conv = nn.Conv2d(6, 6, 3, groups=6)
        self.narrow = nn.Conv1d(6, 12, 4, groups=6)
        self.gate = nn.Linear(6, 1)
        self.head = nn.Linear(6, 3)


def half(W: np.ndarray) -> np.ndarray:
    return best_of_rank(W, (min(W.shape) + 1) // 2)


def by_rows(stored: np.ndarray, *, groups: int = 1) -> np.ndarray:
    parts = (half(part.reshape(len(part), -1)) for part in np.split(stored, groups))
    return np.concatenate(list(parts)).reshape(stored.shape)


def transposed_convolution(stored: np.ndarray, *, groups: int = 1) -> np.ndarray:
    parts = (by_rows(part.swapaxes(0, 1)) for part in np.split(stored, groups))
    return np.concatenate([part.swapaxes(0, 1) for part in parts])


# A layer, and for each stored matrix its top half, computed densely from the documented layout.
LAYERS: list[tuple[Callable[[], nn.Module], dict[str, Callable[[np.ndarray], np.ndarray]]]] = [
    (lambda: nn.Linear(7, 5), {"weight": half}),
    (lambda: nn.Embedding(11, 4), {"weight": lambda stored: half(stored.T).T}),
    (lambda: nn.Conv1d(3, 5, 3), {"weight": by_rows}),
    (lambda: nn.Conv2d(3, 5, (3, 2)), {"weight": by_rows}),
    (lambda: nn.ConvTranspose2d(4, 6, 3), {"weight": transposed_convolution}),
    (lambda: nn.Conv2d(4, 6, 3, groups=2), {"weight": partial(by_rows, groups=2)}),
    (
        lambda: nn.ConvTranspose2d(4, 6, 3, groups=2),
        {"weight": partial(transposed_convolution, groups=2)},
    ),
    (
        lambda: nn.LSTM(3, 4, num_layers=2, bidirectional=True),
        {
            f"weight_{kind}_l{layer}{direction}": half
            for kind in ("ih", "hh")
            for layer in (0, 1)
            for direction in ("", "_reverse")
        },
    ),
    (lambda: nn.MultiheadAttention(6, 2), {"in_proj_weight": half, "out_proj.weight": half}),
]


@pytest.mark.parametrize(("build", "expected"), LAYERS)
def test_top_half_of_each_layer_kind(
    build: Callable[[], nn.Module], expected: dict[str, Callable[[np.ndarray], np.ndarray]]
) -> None:
    model = drawn(build())
    changed = truncate(model, skip=()).state_dict()
    for name, stored in model.state_dict().items():
        array = stored.numpy()
        want = expected[name](array) if array.ndim > 1 else array
        np.testing.assert_allclose(changed[name].numpy(), want, atol=1e-10)
    # The top and the bottom make the whole.
    top = dict(truncate(model, keep=0.3, part="top", skip=()).named_parameters())
    bottom = dict(truncate(model, keep=0.7, part="bottom", skip=()).named_parameters())
    for name, whole in model.named_parameters():
        if whole.ndim > 1:
            assert not torch.equal(top[name], whole)
            torch.testing.assert_close(top[name] + bottom[name], whole)


@given(k=st.integers(0, 2000), percent=st.integers(0, 100))
@example(k=5, percent=10)  # a tie, and 1 - (1 - 0.1) is a little less than 0.1
@settings(max_examples=30, deadline=None)
def test_counts_of_top_and_bottom_add_up(k: int, percent: int) -> None:
    share = percent / 100
    assert directions_kept(k, share) == (2 * percent * k + 100) // 200
    assert directions_kept(k, 1 - (1 - share)) == directions_kept(k, share)


@given(m=st.integers(2, 9), n=st.integers(2, 9), keep=st.floats(0, 1), seed=st.integers(0, 2**31))
@settings(max_examples=30, deadline=None)
def test_error_is_the_tail_of_the_spectrum(m: int, n: int, keep: float, seed: int) -> None:
    """Eckart-Young: |W - top|_F^2 is the sum of the squares left out."""
    model = drawn(nn.Linear(n, m, bias=False), seed)
    top = truncate(model, keep=keep, skip=())
    S = np.linalg.svd(model.weight.detach().numpy(), compute_uv=False)
    error = torch.linalg.matrix_norm(model.weight - top.weight).item()
    assert error == pytest.approx(
        np.sqrt((S[directions_kept(min(m, n), keep) :] ** 2).sum()), abs=1e-9
    )


@pytest.mark.parametrize("shape", [(8, 20), (20, 8)])
def test_spectra_over_many_decades_split_cleanly(shape: tuple[int, int]) -> None:
    """Directions of tiny singular values are kept too, and must not disturb the large ones."""
    m, n = shape
    generator = torch.Generator().manual_seed(4)
    U, V = (
        torch.linalg.qr(torch.randn(size, 8, dtype=torch.float64, generator=generator))[0]
        for size in (m, n)
    )
    S = 10.0 ** -torch.arange(0, 16, 2, dtype=torch.float64)
    model = nn.Linear(n, m, bias=False).double()
    model.weight.data = (U * S) @ V.mT
    top = truncate(model, keep=0.75, skip=()).weight
    torch.testing.assert_close(top, (U[:, :6] * S[:6]) @ V[:, :6].mT, atol=1e-11, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_all_and_nothing(dtype: torch.dtype) -> None:
    model = drawn(nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 6))).to(dtype)
    everything, nothing = (truncate(model, keep=keep, skip=()) for keep in (1.0, 0.0))
    for i in range(2):
        assert everything[i].weight.dtype == dtype
        torch.testing.assert_close(everything[i].weight, model[i].weight, rtol=1e-12, atol=1e-12)
        assert torch.equal(nothing[i].weight, torch.zeros_like(model[i].weight))
        assert torch.equal(nothing[i].bias, model[i].bias)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(9, 4)
        self.inner = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.output = nn.Linear(4, 9, bias=False)
        self.output.weight = self.embedding.weight


def test_input_is_unchanged_and_ties_stay() -> None:
    model = drawn(Tied())
    before = copy.deepcopy(model.state_dict())
    changed = truncate(model, skip=())
    perturb(model, std=1.0, generator=torch.Generator())
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert changed.output.weight is changed.embedding.weight
    want = half(model.embedding.weight.detach().numpy().T).T
    np.testing.assert_allclose(changed.embedding.weight.detach().numpy(), want, atol=1e-10)
    storages = {tensor.data_ptr() for tensor in model.state_dict().values()}
    assert storages.isdisjoint(tensor.data_ptr() for tensor in changed.state_dict().values())


@pytest.mark.parametrize(
    ("skip", "expected"),
    [(None, {"2"}), ("0", {"0"}), (["0", "1"], {"0", "1"}), ({"[12]"}, {"1", "2"})],
)
def test_skipped_matrices_stay_whole(
    skip: str | Collection[str] | None, expected: set[str]
) -> None:
    """The last linear layer is skipped by default."""
    model = drawn(nn.Sequential(nn.Conv1d(3, 4, 2), nn.Linear(5, 4), nn.Linear(4, 4), nn.ReLU()))
    changed, before = truncate(model, skip=skip).state_dict(), model.state_dict()
    whole = {i for i in "012" if torch.equal(changed[f"{i}.weight"], before[f"{i}.weight"])}
    assert whole == expected


def test_tied_output_keeps_the_embedding_whole() -> None:
    model = drawn(Tied())
    changed = truncate(model)
    assert torch.equal(changed.embedding.weight, model.embedding.weight)
    assert not torch.equal(changed.inner.weight, model.inner.weight)


def test_decompositions_at_hand_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    model = drawn(nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 7)))
    own = decompose(views(model), ranks={"0": 4, "1": 2})
    want = truncate(model, skip=())

    def never(matrices: dict[str, Tensor], **options: object) -> dict[str, object]:
        assert not matrices, "a matrix was decomposed twice"
        return {}

    monkeypatch.setattr("rankscope.interventions.truncation.decompose", never)
    changed = truncate(model, skip=(), decompositions=own)
    for i in range(2):
        torch.testing.assert_close(changed[i].weight, want[i].weight)
    with pytest.raises(ValueError, match=r"'1': 3 directions are needed, .* has 2"):
        truncate(model, keep=0.75, skip=(), decompositions=own)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep": 1.5}, "between 0 and 1, got 1.5"),
        ({"keep": float("nan")}, "between 0 and 1, got nan"),
        ({"skip": "head*"}, "'head\\*' matches no matrix"),
        ({"skip": ["0", "1"]}, "'1' matches no matrix"),
    ],
)
def test_mistakes_are_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        truncate(nn.Sequential(nn.Linear(3, 3)), **options)


@pytest.mark.parametrize("part", ["top", "bottom"])
def test_depthwise_kernels_are_truncated_as_channels_by_taps_and_vectors_stay(part: str) -> None:
    model = drawn(Mixed())
    share = 0.3  # of one value, this is none
    changed = truncate(model, keep=share, part=part)
    before, after = dict(model.named_parameters()), dict(changed.named_parameters())
    for name in ("cls_token", "gain", "gate.weight"):
        torch.testing.assert_close(after[name], before[name], rtol=0, atol=0)
    for name, shape in {
        "pos_embed": (5, 6),
        "conv.weight": (6, 9),
        "narrow.weight": (12, 4),
    }.items():
        W = before[name].detach().reshape(shape).numpy()
        k = min(shape)
        top = best_of_rank(W, directions_kept(k, share if part == "top" else 1 - share))
        expected = torch.from_numpy(top if part == "top" else W - top).reshape(before[name].shape)
        torch.testing.assert_close(after[name].detach(), expected)
        assert after[name].abs().max() > 0


class Scaled(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return 3 * weight


def old_spectral_norm(layer: nn.Module) -> nn.Module:
    layer = nn.utils.spectral_norm(layer)
    layer(torch.zeros(1, 5))  # leaves a weight with a graph, which torch does not copy
    return layer


@pytest.mark.parametrize(
    "parametrize",
    [
        nn.utils.parametrizations.weight_norm,
        nn.utils.parametrizations.spectral_norm,
        old_spectral_norm,
        lambda layer: prune.l1_unstructured(layer, "weight", 0.5),
        lambda layer: register_parametrization(layer, "weight", Scaled()),
    ],
)
def test_the_weight_that_a_layer_multiplies_by_is_truncated(parametrize) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(parametrize(nn.Linear(5, 6)), nn.Linear(6, 3)).eval()
    x = torch.randn(4, 5)
    whole = truncate(model, keep=1.0)
    torch.testing.assert_close(whole(x), model(x))
    half = truncate(model, keep=0.4)
    assert type(half[0]) is nn.Linear
    U, S, Vh = torch.linalg.svd(model[0].weight.detach(), full_matrices=False)
    torch.testing.assert_close(half[0].weight.detach(), (U[:, :2] * S[:2]) @ Vh[:2])
    # The hooks are gone: a forward pass does not compute another weight.
    before = half[0].weight.detach().clone()
    half.train()(x).sum().backward()
    assert torch.equal(half[0].weight, before)


def test_a_rank_and_an_energy_choose_the_number_of_directions() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(9, 7), nn.Linear(7, 3)).double()
    W = model[0].weight.detach().numpy()
    S = np.linalg.svd(W, compute_uv=False)
    for options, r in (
        ({"rank": 2}, 2),
        ({"rank": 50}, 7),
        ({"energy": 1.0}, 7),
        ({"energy": float((S[:3] ** 2).sum() / (S**2).sum()) - 1e-9}, 3),
        ({"energy": float((S[:3] ** 2).sum() / (S**2).sum()) + 1e-9}, 4),
    ):
        changed = truncate(model, **options)[0].weight.detach().numpy()
        np.testing.assert_allclose(changed, best_of_rank(W, r), atol=1e-10)
    bottom = truncate(model, rank=2, part="bottom")[0].weight.detach().numpy()
    np.testing.assert_allclose(bottom, W - best_of_rank(W, 5), atol=1e-10)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"keep": 0.5, "rank": 3}, "pass one of keep, rank and energy, got keep and rank"),
        ({"rank": -1}, "0 or more, got -1"),
        ({"energy": 1.5}, "fraction in"),
        ({"energy": 0.5, "part": "bottom"}, "pass keep or rank for the bottom part"),
    ],
)
def test_wrong_numbers_of_directions_are_refused(options: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        truncate(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), **options)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"rank": 1.5}, "rank is a whole number, got 1.5"),
        ({"rank": True}, "rank is a whole number, got True"),
        ({"rank": {"0": "2"}}, "rank is a whole number, got '2'"),
        ({"energy": {"0": 0.5}}, "energy is a number, got {'0': 0.5}"),
        ({"keep": "half"}, "keep is a number, got 'half'"),
    ],
)
def test_what_is_no_number_is_refused_as_users_see_it(
    options: dict, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        jaxtyping.config, "jaxtyping_disable", True
    )  # types are checked in tests only
    with pytest.raises(ValueError, match=sentence):
        truncate(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), **options)


def test_a_zero_matrix_has_no_energy_to_keep() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 5))
    nn.init.zeros_(model[1].weight)
    kept = truncate(model, energy=1.0, skip=())
    assert not kept[1].weight.any()
    torch.testing.assert_close(kept[0].weight, model[0].weight)
