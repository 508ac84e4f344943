"""Shares of blocks and heads."""

import numpy as np
import pytest

from lab.papers.boix2023.vit_runs import courses, vit_run
from rankscope.lab.judging.tally import Tally
from rankscope.lab.papers.boix2023.claims.heads import (
    at_scale_one,
    blocks_that_meet,
    head_means,
    share_of_all,
)
from rankscope.lab.running.run_key import RunKey


@pytest.mark.parametrize(
    ("met", "unmet", "unknown", "share", "expected"),
    [
        (5, 1, 0, 5 / 6, True),
        (4, 2, 0, 4 / 6, False),
        (5, 0, 1, 5 / 6, True),  # whatever the sixth is
        (4, 1, 1, 4 / 6, None),
        (1, 0, 5, 1 / 6, None),
        (3, 2, 1, 3 / 6, False),  # whatever the sixth is
        (0, 0, 6, None, None),
    ],
)
def test_shares_are_of_all(
    met: int, unmet: int, unknown: int, share: float | None, expected: bool | None
) -> None:
    counted = ("met",) * met + ("unmet",) * unmet
    tally = Tally(counted, counted[met:], ("unknown",) * unknown)
    assert share_of_all(tally, 5 / 6) == (share, expected)


def test_blocks_are_counted_by_name_and_rows_numbered() -> None:
    values = np.array([1.0, np.nan, 3.0])
    measured = blocks_that_meet(values > 2, [{"x": 1}, {"x": 2}, {"x": 3}], "large", values=values)
    assert measured.tallies["large"] == Tally(("block 1", "block 3"), ("block 1",), ("block 2",))
    assert [row["block"] for row in measured.rows] == [1, 2, 3] and measured.rows[2]["x"] == 3
    assert (measured.value, measured.met) == (1 / 3, False)


def test_heads_are_averaged_and_one_without_a_rank_leaves_none() -> None:
    one, other = courses((0, 5, 4), heads=1), courses((0, 1, 4), heads=1)
    ranks = np.concatenate([one, other], axis=2).astype(float)
    ranks[2, 0, 1] = np.nan
    assert head_means(vit_run(ranks), "kq")[1:].values.ravel().tolist() == pytest.approx(
        [3, np.nan], nan_ok=True
    )


def test_runs_at_scale_one_are_chosen() -> None:
    keys = [RunKey("vit", {"scale": 1.0}), RunKey("vit", {"scale": 0.3}), RunKey("vit")]
    assert at_scale_one(keys) == keys[:1]
