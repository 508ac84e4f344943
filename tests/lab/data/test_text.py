from pathlib import Path

import pytest
import torch

from rankscope.lab.data.text import StandardLibraryText


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
