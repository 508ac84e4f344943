"""A run that is resumed with other options names the option."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import rankscope as rs

torch.manual_seed(0)
LAYER = nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, dropout=0.0)
MODEL = nn.Sequential(nn.Linear(8, 8), LAYER)
FIRST = rs.discover_pairs(MODEL, torch.randn(3, 1, 8))[:1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"spectrum": 4}, r"another spectrum=: the run has all singular values of each matrix, n"),
        ({"products": False}, r"another products=: product '1\.self_attn\.h0\.kq' is in the run"),
        ({"pairs": FIRST}, r"another pairs=: pair '.*' is in the run only"),
        ({"pairs": []}, r"another pairs="),
        ({"top": 3}, r"another top=: the run has 100 directions, not 3"),
        ({"reference": None}, r"another reference=: variable 'change_singular_values' is in the"),
        ({"measure": rs.Updates()}, r"another measure=: variable 'update_\w+' is not in the run"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_the_option_is_named(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    path = tmp_path / "run"
    with rs.Tracker(MODEL, path, schedule=1) as tracker:
        tracker.observe(0)
    with pytest.raises(ValueError, match=message):
        rs.Tracker(MODEL, path, schedule=1, resume=True, **options)
    with rs.Tracker(copy.deepcopy(MODEL), path, schedule=1, resume=True) as tracker:
        tracker.observe(1)
    assert list(rs.open(path).step.values) == [0, 1]


@pytest.mark.parametrize("other", [{}, {"spectrum": 2}])
def test_values_that_are_kept_are_named_both_ways(tmp_path: Path, other: dict[str, Any]) -> None:
    with rs.Tracker(MODEL, tmp_path / "run", schedule=1, spectrum=4) as tracker:
        tracker.observe(0)
    with pytest.raises(ValueError, match="the run has the leading 4 values of each matrix, not"):
        rs.Tracker(MODEL, tmp_path / "run", schedule=1, resume=True, **other)
