import math
from pathlib import Path

import pytest
import torch

from rankscope.lab.data.text import StandardLibraryText, draw_batch, unigram_entropy


def as_text(data: torch.Tensor) -> str:
    return bytes(data.tolist()).decode()


def test_text_is_the_modules_in_order_of_name(tmp_path: Path) -> None:
    for name, content in {"b": "bbbbb", "a": "aaaaa", "_sysconfigdata_x": "paths"}.items():
        (tmp_path / f"{name}.py").write_text(content)
    (tmp_path / "other.txt").write_text("other")
    text = StandardLibraryText(folder=tmp_path, validation_share=0.2).build()
    assert (as_text(text.train), as_text(text.validation)) == ("aaaaabbb", "bb")
    bounded = StandardLibraryText(folder=tmp_path, size=6, validation_share=0.2).build()
    assert (as_text(bounded.train), as_text(bounded.validation)) == ("aaaaa", "b")


def test_this_python_carries_its_library() -> None:
    text = StandardLibraryText(size=1_000_000).build()
    assert (len(text.train), len(text.validation)) == (900_000, 100_000)
    assert "import sys" in as_text(text.train)


def test_missing_sources_are_explained(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"no Python source files in .* zipped, frozen or stripped"
    ):
        StandardLibraryText(folder=tmp_path).build()
    with pytest.raises(ValueError, match="validation_share"):
        StandardLibraryText(validation_share=1.0)


def test_targets_are_the_next_bytes_and_every_window_can_come() -> None:
    text = torch.arange(10, dtype=torch.uint8)
    before = torch.get_rng_state()
    generator = torch.Generator().manual_seed(0)
    inputs, targets = draw_batch(text, batch=200, context=4, generator=generator)
    assert torch.equal(before, torch.get_rng_state())
    assert inputs.shape == targets.shape == (200, 4)
    assert torch.equal(inputs, inputs[:, :1] + torch.arange(4))
    assert torch.equal(targets, inputs + 1)
    assert set(inputs[:, 0].tolist()) == set(range(6))
    with pytest.raises(ValueError, match="window of 10 bytes needs a longer text"):
        draw_batch(text, batch=1, context=10, generator=generator)


def test_unigram_entropy_of_equal_and_single_bytes() -> None:
    assert unigram_entropy(torch.tensor([3, 5, 9, 200] * 6, dtype=torch.uint8)) == pytest.approx(
        math.log(4)
    )
    assert unigram_entropy(torch.full((8,), 7, dtype=torch.uint8)) == 0
