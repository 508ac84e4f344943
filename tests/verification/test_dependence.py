"""Dependence on heads is read off exactly, whatever their number."""

import pytest
import torch
from torch import Tensor

from rankscope.verification.dependence import dependences


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 12])
def test_digits_spell_the_head(count: int) -> None:
    """Entry h depends on head h, the next on none, the last on the first and last head."""
    depends = torch.eye(count + 2, count, dtype=torch.bool)
    depends[-1, [0, count - 1]] = True
    heads = [{"W": torch.tensor([head])} for head in range(count)]
    calls = 0

    def changed(rows: dict[str, Tensor]) -> list[Tensor]:
        nonlocal calls
        calls += 1
        return [depends[:, rows["W"]].any(1)]

    (result,) = dependences(heads, changed)
    assert result.any.tolist() == depends.any(1).tolist()
    assert result.several.tolist() == (depends.sum(1) > 1).tolist()
    assert result.head[:count].tolist() == list(range(count))
    assert calls <= 2 * max(1, (count - 1).bit_length())
