from pathlib import Path

import numpy as np
import pytest

from lab.papers.yunis2024.official.made_evaluation import ours
from rankscope.lab.papers.yunis2024.official.evaluation import (
    LAYERS,
    Official,
    nearest_snapshot,
    read_official,
)


def test_our_snapshot_is_the_nearest_that_has_spectra() -> None:
    ds = ours(4)
    ds["singular_values"][2] = np.nan
    assert int(nearest_snapshot(ds, 20)["step"][0]) == 30


def test_overlaps_of_a_linear_layer_have_no_taps() -> None:
    key = f"{LAYERS['conv13']}_{LAYERS['head']}_align"
    flat_pair = {f"{key}_diagonal": np.full((2, 10), 0.4), f"{key}_background": np.full(2, 0.2)}
    official = Official(flat_pair)
    assert official.pairs == [("conv13", "head")]
    np.testing.assert_allclose(official.alignment(("conv13", "head")), 0.4)
    np.testing.assert_allclose(official.background(("conv13", "head")), 0.2)


def test_an_archive_without_their_evaluation_says_so(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="take it from a checkout"):
        read_official(tmp_path)
