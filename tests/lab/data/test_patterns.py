from pathlib import Path

import numpy as np
import pytest
import torch

from rankscope.lab.data.crops import Crops
from rankscope.lab.data.patterns import Patterns, pattern


def middles(patterns: Patterns) -> tuple[torch.Tensor, torch.Tensor]:
    images, crops = patterns.open(), Crops(size=24)
    everything = torch.arange(len(images))
    return images.images(everything, lambda image, _: crops.middle(image), size=24)


def test_they_are_read_from_shards_written_once(own_cache: Path) -> None:
    few = Patterns(count=130)
    pixels, labels = middles(few)
    assert len(pixels) == 130 and labels.bincount().tolist() == [13] * 10
    written = {path: path.stat().st_mtime_ns for path in own_cache.rglob("*.parquet")}
    assert len(written) == 4
    again, _ = middles(few)
    assert torch.equal(pixels, again)
    assert {path: path.stat().st_mtime_ns for path in own_cache.rglob("*.parquet")} == written
    assert not list(own_cache.glob(".patterns*"))  # nothing half done is left


def test_the_same_everywhere_but_other_ones_in_another_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pixels, labels = middles(Patterns(count=40))
    others, _ = middles(Patterns("validation", 40))
    monkeypatch.setenv("RANKSCOPE_CACHE", str(tmp_path / "elsewhere"))
    again, same = middles(Patterns(count=40))
    assert torch.equal(pixels, again) and torch.equal(labels, same)
    assert not torch.equal(pixels, others)


@pytest.mark.parametrize("count", [0, -10, 15])
def test_classes_come_equally_often(count: int) -> None:
    with pytest.raises(ValueError, match=f"expected a multiple of 10 images, got {count}"):
        Patterns(count=count)


def test_classes_can_be_told_apart() -> None:
    """Lying stripes differ from row to row, standing ones from column to column."""
    for seed in range(20):
        draws = np.random.default_rng(seed)
        lying, standing = (pattern(label, draws).mean(2) for label in (0, 1))
        assert lying.mean(1).std() > 3 * lying.mean(0).std()
        assert standing.mean(0).std() > 3 * standing.mean(1).std()
        dots, holes = (pattern(label, draws).mean() for label in (4, 9))
        assert dots < holes  # bright on much dark, dark on much bright
