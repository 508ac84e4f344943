"""Effective weights of parametrized modules against the weights these modules multiply by."""

import copy
import threading
import warnings

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize, prune

from rankscope.matrices import Manifest, effective_model, products, views


class Doubled(nn.Module):
    """A parametrization of the user's own, with a tensor of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.gain = nn.Parameter(torch.tensor(2.0))

    def forward(self, weight: Tensor) -> Tensor:
        self.calls += 1
        return self.gain * weight + torch.rand(()) * 0


class Unwilling(Doubled):
    def forward(self, weight: Tensor) -> Tensor:
        raise RuntimeError("not today")

    def right_inverse(self, weight: Tensor) -> Tensor:
        return weight


def hooked(apply) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch prefers its parametrizations
        return apply(nn.Conv2d(4, 6, 3))


def pruned_direction() -> nn.Module:
    layer = hooked(nn.utils.weight_norm)
    prune.random_unstructured(layer, "weight_v", 0.3)
    layer(torch.zeros(1, 4, 5, 5))  # the hooks run in the order of registration
    return layer


CASES = {
    "weight_norm": lambda: parametrizations.weight_norm(nn.Conv2d(4, 6, 3)),
    "weight_norm_dim": lambda: parametrizations.weight_norm(nn.Linear(4, 6), dim=1),
    "weight_norm_whole": lambda: parametrizations.weight_norm(nn.Linear(4, 6), dim=None),
    "spectral_norm": lambda: parametrizations.spectral_norm(nn.Conv2d(4, 6, 3)),
    "spectral_norm_transposed": lambda: parametrizations.spectral_norm(nn.ConvTranspose2d(4, 6, 3)),
    "orthogonal": lambda: parametrizations.orthogonal(nn.Linear(4, 6)),
    "own": lambda: parametrize.register_parametrization(nn.Linear(4, 6), "weight", Doubled()),
    "chain": lambda: parametrizations.spectral_norm(
        parametrize.register_parametrization(nn.Linear(4, 6), "weight", Doubled())
    ),
    "old_weight_norm": lambda: hooked(nn.utils.weight_norm),
    "old_spectral_norm": lambda: hooked(nn.utils.spectral_norm),
    "old_spectral_norm_dim": lambda: hooked(lambda m: nn.utils.spectral_norm(m, dim=1)),
    "pruned": lambda: prune.l1_unstructured(nn.Linear(4, 6), "weight", 0.5),
    "pruned_twice": lambda: prune.random_unstructured(
        prune.l1_unstructured(nn.Linear(4, 6), "weight", 0.5), "weight", 0.5
    ),
    "pruned_direction": pruned_direction,
}


def multiplied_by(layer: nn.Module) -> Tensor:
    """Weight of a copy of the layer after a forward pass in eval mode."""
    layer = copy.deepcopy(detached(layer)).eval()
    images = not isinstance(layer, nn.Linear)
    with torch.no_grad():
        for _ in range(2):
            layer(torch.zeros(1, 4, 5, 5) if images else torch.zeros(1, 4))
    return layer.weight.detach()


def detached(layer: nn.Module) -> nn.Module:
    """Make a layer with hooks one that can be copied."""
    for key, value in tuple(layer.__dict__.items()):
        if isinstance(value, Tensor):
            layer.__dict__[key] = value.detach()
    return layer


def unchanged(model: nn.Module, before: dict[str, Tensor]) -> bool:
    return all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("case", CASES)
def test_the_matrix_is_what_the_layer_multiplies_by(case: str) -> None:
    torch.manual_seed(0)
    layer = CASES[case]()
    model = nn.ModuleDict({"layer": layer}).train()
    before = copy.deepcopy(model.state_dict())
    random = torch.get_rng_state()
    matrices = views(model)
    read = matrices["layer"]
    assert unchanged(model, before) and torch.equal(torch.get_rng_state(), random)
    assert list(matrices) == ["layer"]
    expected = multiplied_by(layer)
    if isinstance(layer, nn.ConvTranspose2d):
        expected = expected.transpose(0, 1)
    assert torch.equal(read.W, expected.flatten(1))
    assert "effective: " in matrices.coverage["layer.weight"].how


@pytest.mark.parametrize("case", CASES)
def test_a_state_dict_like_the_model_is_read_as_the_model(case: str) -> None:
    model = nn.ModuleDict({"layer": CASES[case]()})
    saved = views(model.state_dict(), like=model)
    assert torch.equal(saved["layer"].W, views(model)["layer"].W)
    stored = Manifest.from_json(saved.manifest.to_json())
    assert stored == saved.manifest
    if case in ("own", "chain", "orthogonal"):
        with pytest.raises(ValueError, match="pass the model itself"):
            views(model.state_dict(), like=stored)["layer"]
    else:
        assert torch.equal(views(model.state_dict(), like=stored)["layer"].W, saved["layer"].W)


@pytest.mark.parametrize("case", CASES)
def test_a_model_on_the_meta_device_says_how_to_read_a_state_dict(case: str) -> None:
    model = nn.ModuleDict({"layer": detached(CASES[case]())})
    meta = copy.deepcopy(model).to("meta")
    read = views(model.state_dict(), like=meta)
    assert torch.equal(read["layer"].W, views(model)["layer"].W)


def test_raw_parts_on_request_and_in_the_coverage() -> None:
    layer = parametrizations.weight_norm(nn.Linear(3, 5))
    model = nn.ModuleDict({"fc": layer})
    originals = [f"fc.parametrizations.weight.original{i}" for i in (0, 1)]
    raw = views(model, raw=True)
    assert list(raw) == originals[1:]  # the gains are a vector
    assert torch.equal(raw[originals[1]].W, layer.parametrizations.weight.original1)
    lines = {line.tensor: (line.status, line.how) for line in views(model).coverage}
    assert lines["fc.weight"] == (
        "read",
        "Linear: out x in, effective: weight norm of original1, original0",
    )
    assert lines[originals[0]] == ("read", "in fc.weight")


def test_a_parametrization_that_fails_leaves_the_raw_part_and_says_so() -> None:
    layer = nn.Linear(3, 5)
    parametrize.register_parametrization(layer, "weight", Unwilling(), unsafe=True)
    matrices = views(nn.ModuleDict({"fc": layer}))
    assert list(matrices) == ["fc.parametrizations.weight.original"]
    line = matrices.coverage["fc.parametrizations.weight.original"]
    assert "parametrization Unwilling" in line.how and "not today" in line.how
    assert matrices["fc.parametrizations.weight.original"].W.shape == (5, 3)


def test_half_precision_is_computed_in_float32() -> None:
    layer = parametrizations.weight_norm(nn.Linear(3, 5)).bfloat16()
    W = views(layer)["weight"].W
    assert W.dtype == torch.float32
    g, v = (p.float() for p in layer.parametrizations.weight.parameters())
    torch.testing.assert_close(W, (v * g / v.norm(dim=1, keepdim=True)).detach())


def test_autocast_does_not_round() -> None:
    layer = parametrizations.spectral_norm(nn.Linear(3, 5))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        W = views(layer)["weight"].W
    assert torch.equal(W, views(layer)["weight"].W)


def test_recurrent_and_tied_layers() -> None:
    lstm = parametrizations.spectral_norm(nn.LSTM(3, 4), "weight_hh_l0")
    shared = parametrizations.weight_norm(nn.Linear(4, 4))
    model = nn.ModuleDict({"lstm": lstm, "a": shared, "b": shared})
    matrices = views(model, parts=True)
    assert torch.equal(matrices["lstm.l0.hh.g"].W, lstm.eval().weight_hh_l0[8:12].detach())
    assert matrices.coverage["b.weight"].tied_to == "a.weight"
    assert "b" not in matrices
    assert products(model) == {}


def test_hooks_on_a_parametrization_are_not_copied() -> None:
    class Logger:
        def __init__(self) -> None:
            self.lock = threading.Lock()  # which cannot be copied

        def __call__(self, *call: object) -> None:
            raise AssertionError("called")

    model = nn.Sequential(nn.Linear(3, 2))
    parametrize.register_parametrization(model[0], "weight", Doubled())
    transforms = model[0].parametrizations.weight
    transforms[0].register_forward_hook(Logger())
    assert torch.equal(views(model)["0"].W, 2 * transforms.original.detach())


def test_shapes_are_computed_once() -> None:
    class Counting(nn.Module):
        calls = 0

        def forward(self, weight: Tensor) -> Tensor:
            Counting.calls += 1
            return weight.repeat(2, 1)

    model = nn.Sequential(nn.Linear(3, 2))
    parametrize.register_parametrization(model[0], "weight", Counting(), unsafe=True)
    Counting.calls, shapes = 0, {}
    for _ in range(2):
        (weight,) = effective_model(model, shapes=shapes).weights
        assert (weight.shape, Counting.calls) == ((4, 3), 1)
