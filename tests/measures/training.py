"""A small training with known weights before and after each step, and what it leaves behind."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

import rankscope as rs

Weights = dict[str, Tensor]


class Net(nn.Module):
    """Uses what a measure could disturb: dropout (global RNG), BatchNorm (buffers), attention."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.norm = nn.BatchNorm1d(8)
        self.attention = nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True, bias=False)
        self.out = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.first(x).mT).mT)
        x = nn.functional.dropout(self.attention(x, x, x)[0], 0.2, self.training)
        return self.out(x.mean(1))


def adam(model: nn.Module) -> Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


def train(
    path: Path | None,
    measure: Sequence[rs.measures.Measure] = (),
    *,
    steps: int = 5,
    order: str = "before step",
    make: Callable[[nn.Module], Optimizer] = adam,
    double: bool = True,
    **options: object,
) -> tuple[dict[str, object], list[Weights]]:
    """Return all that training leaves behind, and the weights before each step and at the end.

    order: observe "before step", "first" in the loop, or at its end, "after step".
    """
    torch.manual_seed(0)
    model = Net().double() if double else Net()
    optimizer = make(model)
    tracker = None
    if path is not None:
        options = {"schedule": 1, "strict": True, **options}
        tracker = rs.Tracker(model, path, measure=measure, **options)
    history = []

    def observe(step: int, when: str) -> None:
        if tracker is not None and order == when:
            tracker.observe(step)

    for step in range(steps):
        history.append({n: t.detach().clone() for n, t in model.named_parameters()})
        observe(step, "first")
        x = torch.randn(16, 4, 6, dtype=next(model.parameters()).dtype)
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        observe(step, "before step")
        optimizer.step()
        observe(step + 1, "after step")
    history.append({n: t.detach().clone() for n, t in model.named_parameters()})
    if tracker is not None:
        tracker.close()
        assert tracker.failed is None
    left: dict[str, object] = dict(model.state_dict())
    left |= {f"{n}.grad": p.grad for n, p in model.named_parameters()}
    left |= {f"{n}.training": m.training for n, m in model.named_modules()}
    left |= {f"{n}.hooks": hooks(m) for n, m in model.named_modules()}
    accumulated = {n: p._post_accumulate_grad_hooks for n, p in model.named_parameters()}
    left |= {f"{n}.backward": len(h or ()) for n, h in accumulated.items()}
    left |= {"optimizers": len(_global_optimizer_pre_hooks) + len(_global_optimizer_post_hooks)}
    left |= {"torch": torch.get_rng_state(), "threads": torch.get_num_threads()}
    return left, history


def hooks(module: nn.Module) -> int:
    return len(module._forward_hooks) + len(module._forward_pre_hooks) + len(module._backward_hooks)


def assert_same(one: dict[str, object], other: dict[str, object]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        same = torch.equal(value, other[name]) if isinstance(value, Tensor) else None
        assert value == other[name] if same is None else same, name
