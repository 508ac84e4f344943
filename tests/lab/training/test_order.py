"""Order and noise follow from seed and step alone."""

import torch

from rankscope.lab.training.order import Order, generator


def test_an_epoch_sees_each_sample_once_and_drops_the_rest() -> None:
    order = Order(10, 3, seed=0)
    seen = torch.cat([order(step) for step in range(3)])
    assert order.steps_per_epoch == 3 and len(set(seen.tolist())) == 9


def test_any_step_can_be_asked_for_first() -> None:
    forward = [Order(10, 3, seed=1)(step) for step in range(9)]
    order = Order(10, 3, seed=1)
    for step in (8, 0, 5, 4):
        assert torch.equal(order(step), forward[step])


def test_seeds_epochs_and_purposes_differ() -> None:
    draws = [
        torch.rand(4, generator=generator(*key)).tolist()
        for key in [(0, "a", 0), (1, "a", 0), (0, "b", 0), (0, "a", 1)]
    ]
    assert len({tuple(draw) for draw in draws}) == 4
    assert torch.equal(Order(10, 10, seed=0)(0).sort().values, torch.arange(10))
    assert not torch.equal(Order(10, 10, seed=0)(0), Order(10, 10, seed=0)(1))
