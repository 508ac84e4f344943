"""Order and noise follow from seed and step alone."""

from collections.abc import Callable

import pytest
import torch

from rankscope.lab.training.order import BlockOrder, Order, SampleOrder, generator


def test_an_epoch_sees_each_sample_once_and_drops_the_rest() -> None:
    order = Order(10, 3, seed=0)
    seen = torch.cat([order(step) for step in range(3)])
    assert len(set(seen.tolist())) == 9
    assert len(set(torch.cat([order(step) for step in range(3, 6)]).tolist())) == 9


def test_seeds_purposes_and_indices_differ() -> None:
    draws = [
        torch.rand(4, generator=generator(*key)).tolist()
        for key in [(0, "a", 0), (1, "a", 0), (0, "b", 0), (0, "a", 1)]
    ]
    assert len({tuple(draw) for draw in draws}) == 4


BLOCKS = (3, 7, 0, 5, 4, 6, 5, 2)  # 32 samples


def test_blocks_are_seen_once_in_an_epoch() -> None:
    whole = BlockOrder(BLOCKS, 4, seed=0, window=3)
    for epoch in range(3):
        seen = torch.cat([whole(8 * epoch + step) for step in range(8)])
        assert torch.equal(seen.sort().values, torch.arange(32))
    dropping = BlockOrder(BLOCKS, 5, seed=0, window=3)
    seen = torch.cat([dropping(step) for step in range(6)])
    assert len(set(seen.tolist())) == 30


@pytest.mark.parametrize(
    "made",
    [lambda seed: Order(32, 5, seed=seed), lambda seed: BlockOrder(BLOCKS, 5, seed=seed, window=2)],
)
def test_order_follows_from_seed_and_step(made: Callable[[int], SampleOrder]) -> None:
    """Steps may be asked for in any order."""
    forward, order, other = [made(1)(step) for step in range(18)], made(1), made(2)
    for step in (17, 0, 11, 12, 4):
        assert torch.equal(order(step), forward[step])
    assert not torch.equal(torch.cat(forward[:6]), torch.cat(forward[6:12]))
    assert not torch.equal(torch.cat([other(step) for step in range(6)]), torch.cat(forward[:6]))


def test_batches_of_blocks_are_local() -> None:
    """Windows of 4 equal blocks: a batch that is half a window touches one window's blocks only."""
    order = BlockOrder((10,) * 20, 20, seed=0, window=4)
    blocks = [set((order(step) // 10).tolist()) for step in range(10)]
    windows = [first | second for first, second in zip(blocks[::2], blocks[1::2], strict=True)]
    assert all(len(window) == 4 for window in windows)
    assert sorted(block for window in windows for block in window) == list(range(20))
    # Rows of all four blocks are mixed: a batch is not two blocks one after the other.
    assert max(map(len, blocks)) == 4
    # Batches that lie across windows touch two of them at most.
    across = BlockOrder((10,) * 20, 30, seed=0, window=4)
    assert max(len((across(step) // 10).unique()) for step in range(6)) <= 8


def test_slices_of_a_batch_need_few_blocks() -> None:
    order = BlockOrder((25,) * 16, 100, seed=3, window=8)
    needed = [len((part // 25).unique()) for part in order(0).chunk(4)]
    assert sum(needed) <= 8 + 3  # each block once, but where a slice ends inside one


def test_block_order_needs_a_batch_and_a_window() -> None:
    with pytest.raises(ValueError, match="batch of 33 needs as many training samples, got 32"):
        BlockOrder(BLOCKS, 33, seed=0, window=2)
    with pytest.raises(ValueError, match="window has at least one block, got 0"):
        BlockOrder(BLOCKS, 4, seed=0, window=0)
