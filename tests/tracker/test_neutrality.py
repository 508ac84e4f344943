"""A tracker changes nothing: weights, random numbers, threads, modes, gradients, buffers."""

import threading
import warnings

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize, prune

import rankscope as rs


class Net(nn.Module):
    """Uses what a tracker could disturb: dropout (global RNG), BatchNorm (buffers), attention."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.attention = nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True)
        self.out = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.conv(x))).flatten(2).mT
        x = nn.functional.dropout(self.attention(x, x, x)[0], 0.2, self.training)
        return self.out(x.mean(1))


def train(path=None, steps: int = 12, **options: object) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    tracker = None
    if path is not None:
        pairs = rs.discover_pairs(model, torch.zeros(2, 3, 8, 8))
        example = torch.ones(2, 3, 8, 8)
        options = {"schedule": 1, "pairs": pairs, "every_step": ("loss",), **options}
        tracker = rs.Tracker(model, path, example=example, **options)
    for step in range(steps):
        x, y = torch.randn(16, 3, 8, 8), torch.randint(0, 5, (16,))
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        if tracker is not None:
            tracker.observe(step, loss=loss)
        optimizer.step()
    if tracker is not None:
        tracker.close()
        assert tracker.failed is None
    state = model.state_dict()
    state["rng"] = torch.get_rng_state()
    state |= {f"{n}.grad": p.grad for n, p in model.named_parameters()}
    return state


def test_training_is_bit_identical(tmp_path) -> None:
    bare, tracked = train(), train(tmp_path / "run")
    assert bare.keys() == tracked.keys()
    for name, tensor in bare.items():
        assert torch.equal(tensor, tracked[name]), name
    assert rs.open(tmp_path / "run").sizes["step"] == 12


class Noisy(nn.Module):
    """A parametrization that counts its calls and draws random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, weight: Tensor) -> Tensor:
        self.calls += 1
        return weight + 1e-3 * torch.randn_like(weight)


def plain(layer: nn.Module) -> nn.Module:
    return layer


def old_style(apply):
    def applied(layer: nn.Module) -> nn.Module:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            return apply(layer)

    return applied


PARAMETRIZATIONS = {
    "none": plain,
    "weight_norm": parametrizations.weight_norm,
    "spectral_norm": parametrizations.spectral_norm,
    "orthogonal": parametrizations.orthogonal,
    "own": lambda layer: parametrize.register_parametrization(layer, "weight", Noisy()),
    "old_weight_norm": old_style(nn.utils.weight_norm),
    "old_spectral_norm": old_style(nn.utils.spectral_norm),
    "pruned": lambda layer: prune.l1_unstructured(layer, "weight", 0.3),
}


class Parametrized(nn.Module):
    """Hidden layers with a parametrization, one of them in eval mode and one frozen; a hook."""

    def __init__(self, parametrization) -> None:
        super().__init__()
        self.first = parametrization(nn.Linear(6, 8))
        self.rest = parametrization(nn.Linear(8, 8)).eval()
        self.frozen = parametrization(nn.Linear(8, 8)).requires_grad_(False)
        self.norm = nn.BatchNorm1d(8)
        self.attention = nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True)
        self.out = parametrization(nn.Linear(8, 3))
        self.calls = 0
        self.register_forward_hook(lambda module, args, output: self.count())

    def count(self) -> None:
        self.calls += self.training  # discover_pairs runs the model once, in eval mode

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(torch.relu(self.frozen(self.rest(torch.relu(self.first(x))))))
        x = nn.functional.dropout(x, 0.2, self.training)[:, None]
        return self.out(self.attention(x, x, x)[0][:, 0])


def trained(parametrization, path) -> dict[str, object]:
    """Everything that training leaves behind: tensors, gradients, modes, random states."""
    torch.manual_seed(0)
    np.random.seed(0)
    model = Parametrized(parametrization)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    tracker = None
    if path is not None:
        matrices = rs.views(model, parts=True)
        assert all(view.W.isfinite().all() for view in matrices.values())
        rs.products(model)
        pairs = rs.discover_pairs(model, torch.zeros(2, 6))
        tracker = rs.Tracker(model, path, schedule=1, pairs=pairs, strict=True)
    for step in range(5):
        loss = model(torch.randn(16, 6)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        if tracker is not None:
            tracker.observe(step, loss=loss)
        optimizer.step()
    if tracker is not None:
        tracker.close()
    left: dict[str, object] = dict(model.state_dict())
    left |= {f"{n}.grad": p.grad for n, p in model.named_parameters()}
    left |= {f"{n}.requires_grad": p.requires_grad for n, p in model.named_parameters()}
    left |= {f"{n}.training": module.training for n, module in model.named_modules()}
    left |= {f"{n}.hooks": len(m._forward_pre_hooks) for n, m in model.named_modules()}
    left |= {"calls": model.calls, "grad": torch.is_grad_enabled()}
    left |= {"threads": torch.get_num_threads(), "torch": torch.get_rng_state()}
    # Python's own random numbers are left out: the tests' type checks draw from them.
    return left | {"numpy": np.random.get_state()[1].tolist()}


@pytest.mark.parametrize("case", PARAMETRIZATIONS)
def test_training_with_parametrizations_is_bit_identical(case: str, tmp_path) -> None:
    bare = trained(PARAMETRIZATIONS[case], None)
    tracked = trained(PARAMETRIZATIONS[case], tmp_path / "run")
    assert bare.keys() == tracked.keys()
    for name, value in bare.items():
        same = torch.equal(value, tracked[name]) if isinstance(value, Tensor) else None
        assert value == tracked[name] if same is None else same, name
    run = rs.open(tmp_path / "run")
    assert {"first", "rest", "frozen", "out"} <= set(run.matrix.values)


def test_training_within_a_budget_is_bit_identical(tmp_path) -> None:
    bare, tracked = train(), train(tmp_path / "run", schedule=None)
    for name, tensor in bare.items():
        assert torch.equal(tensor, tracked[name]), name
    assert rs.open(tmp_path / "run").attrs["budget"] == 0.05


def test_modes_gradients_and_threads_stay(tmp_path) -> None:
    model = Net()
    model.norm.eval()
    modes = [module.training for module in model.modules()]
    threads = torch.get_num_threads()
    with rs.Tracker(model, tmp_path / "run", schedule=1) as tracker:
        tracker.observe(0)
        tracker.flush()
        fresh: list[int] = []
        thread = threading.Thread(target=lambda: fresh.append(torch.get_num_threads()))
        thread.start()
        thread.join()
    assert fresh == [threads] and torch.get_num_threads() == threads
    assert [module.training for module in model.modules()] == modes
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    assert torch.is_grad_enabled()


def test_a_step_that_is_not_due_touches_no_tensor(tmp_path) -> None:
    class Untouchable(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            raise AssertionError(f"{function} was called")

    loss = torch.zeros(()).as_subclass(Untouchable)
    with rs.Tracker(Net(), tmp_path / "run", schedule=10) as tracker:
        tracker.observe(3, loss=loss)
        assert tracker.failed is None


@pytest.mark.gpu
@pytest.mark.parametrize("options", [{}, {"device": "cuda"}, {"device": "cuda", "spectrum": 2}])
def test_training_on_a_gpu_is_bit_identical(tmp_path, monkeypatch, options) -> None:
    # Some versions of torch multiply deterministically only with this.
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

    def on_gpu(path=None) -> dict[str, torch.Tensor]:
        torch.use_deterministic_algorithms(True)
        with torch.device("cuda"):
            return train(path, **options)

    try:
        bare, tracked = on_gpu(), on_gpu(tmp_path / "run")
    finally:
        torch.use_deterministic_algorithms(False)
    for name, tensor in bare.items():
        assert torch.equal(tensor, tracked[name]), name
