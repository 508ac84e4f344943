"""A tracker changes nothing: weights, random numbers, threads, modes, gradients, buffers."""

import threading

import pytest
import torch
from torch import nn

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


def train(path=None, steps: int = 12) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    tracker = None
    if path is not None:
        pairs = rs.discover_pairs(model, torch.zeros(2, 3, 8, 8))
        example = torch.ones(2, 3, 8, 8)
        tracker = rs.Tracker(
            model, path, schedule=1, pairs=pairs, every_step=("loss",), example=example
        )
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
def test_training_on_a_gpu_is_bit_identical(tmp_path) -> None:
    def on_gpu(path=None) -> dict[str, torch.Tensor]:
        torch.use_deterministic_algorithms(True)
        with torch.device("cuda"):
            return train(path)

    try:
        bare, tracked = on_gpu(), on_gpu(tmp_path / "run")
    finally:
        torch.use_deterministic_algorithms(False)
    for name, tensor in bare.items():
        assert torch.equal(tensor, tracked[name]), name
