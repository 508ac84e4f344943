import pytest
import torch

from rankscope.lab.data.splits import split


def test_every_sample_is_on_one_side() -> None:
    train, validation = split(1797, seed=3)
    assert len(validation) == 179
    assert torch.equal(torch.cat([train, validation]).sort().values, torch.arange(1797))
    # Not the first or the last tenth: half of the held-out samples on either side of the middle.
    assert 60 < int((validation < 898).sum()) < 120


def test_the_seed_alone_decides() -> None:
    before = torch.get_rng_state()
    first, again, other = (split(100, seed=seed)[1] for seed in (0, 0, 1))
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert torch.equal(before, torch.get_rng_state())
    assert len(split(100, validation_share=0.25, seed=0)[1]) == 25


@pytest.mark.parametrize(("count", "share"), [(9, 0.1), (10, 1.0), (0, 0.5)])
def test_empty_parts_are_refused(count: int, share: float) -> None:
    with pytest.raises(ValueError, match="cannot be split"):
        split(count, validation_share=share, seed=0)
