"""Plans of an extraction have its ranks and errors, and write nothing."""

from pathlib import Path

import pytest
import torch
from pandas.testing import assert_frame_equal
from safetensors.torch import save_file

from rankscope.lora import extract, plan


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """A model with a table of tokens, and its fine-tuning."""
    torch.manual_seed(0)
    shapes = {"embed_tokens.weight": (50, 12), "q.weight": (12, 12), "up.weight": (30, 12)}
    base = {name: torch.randn(shape) for name, shape in shapes.items()}
    tuned = {name: tensor + 0.1 * torch.randn(tensor.shape) for name, tensor in base.items()}
    for name, tensors in (("base", base), ("tuned", tuned)):
        save_file(tensors, tmp_path / f"{name}.safetensors")
    return tmp_path / "base.safetensors", tmp_path / "tuned.safetensors"


def test_a_budget_counts_only_what_gets_factors(pair: tuple[Path, Path], tmp_path: Path) -> None:
    before = set(tmp_path.iterdir())
    table = plan(*pair, budget=200)
    assert set(tmp_path.iterdir()) == before
    result = extract(*pair, tmp_path / "adapter", budget=200)
    assert table.loc["embed_tokens", "rank"] is None and "embed_tokens" not in result.table.index
    for name, row in result.table.iterrows():
        assert table.loc[name, "rank"] == row["rank"]
        assert table.loc[name, "error"] == pytest.approx(row["verified"], rel=1e-5)
    assert table.attrs["parameters"] == result.parameters > 0
    assert table.attrs["error"] == pytest.approx(result.error, rel=1e-5)


def test_a_small_largest_rank_leaves_the_other_columns_as_they_are(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    columns = ["norm", "r50", "r90", "r99", "noise", "signal"]
    whole, small = plan(*pair)[columns], plan(*pair, max_rank=2)[columns]
    assert_frame_equal(whole, small)
    written = extract(*pair, tmp_path / "adapter", max_rank=2)
    assert_frame_equal(written.table[columns], whole.loc[written.table.index])
    assert set(written.table["rank"]) == {2}


def test_nothing_changed(pair: tuple[Path, Path]) -> None:
    assert plan(pair[0], pair[0]).empty
