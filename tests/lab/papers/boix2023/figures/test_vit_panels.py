"""What panels show of runs whose stable ranks are chosen."""

import numpy as np
import pytest
import xarray as xr

from lab.papers.boix2023.vit_runs import HEAD_WIDTH, courses, vit_run
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.papers.boix2023.figures.vit_panels import (
    default_setting,
    final_ranks,
    moments,
    settings_by_scale,
    settled_time,
    unpadded,
)
from rankscope.lab.running.run_key import RunKey


def run(end: int = 3, **options) -> xr.Dataset:
    """Two blocks, the second one rank above; V-O has twice the ranks."""
    kq = courses((0, 1, end), (0, 2, end + 1))
    return vit_run(kq, 2 * kq, **options)


def results(**init_scales: dict[int, xr.Dataset]) -> Runs:
    return Runs({RunKey("vit", {"scale": float(s)}): seeds for s, seeds in init_scales.items()})


def test_settings_are_sorted_by_scale_and_their_runs_by_seed() -> None:
    settings = settings_by_scale(results(**{"1": {2: run(4), 0: run(3)}, "0.1": {0: run()}}))
    assert list(settings) == [0.1, 1.0] and settings[1.0].title == "scale 1"
    assert final_ranks(settings[1.0], "kq").tolist() == [[3, 3, 4, 4], [4, 4, 5, 5]]


@pytest.mark.parametrize(
    ("scales", "nearest"), [(("0.1", "1", "3"), "1"), (("0.2", "3"), "3"), (("0.5", "3"), "0.5")]
)
def test_the_default_is_the_scale_nearest_to_one(scales: tuple[str, ...], nearest: str) -> None:
    setting = default_setting(results(**{scale: {0: run()} for scale in scales}))
    assert setting.title == f"scale {nearest}"


def test_moments_are_at_equal_distances_in_log_time() -> None:
    steps = [0, 5, *range(10, 170, 10)]
    ds = vit_run(courses(range(len(steps))), steps=steps)
    assert [steps[i] for i in moments(ds)] == [10, 20, 40, 80, 160]
    # of a run that did not reach epoch 1, and of one that did not begin: the last snapshot
    assert moments(ds.isel(step=slice(2))) == [1] and moments(ds.isel(step=[0])) == [0]


def test_padding_is_cut_and_zeros_are_not() -> None:
    S = xr.DataArray([[2.0, 0, np.nan, np.nan], [1.0, 1.0, 0.0, np.nan]], dims=("row", "k"))
    np.testing.assert_array_equal(unpadded(S), [[2, 0, np.nan], [1, 1, 0]])
    assert unpadded(run()["product_singular_values"][0]).shape[1] == HEAD_WIDTH


def test_all_have_settled_when_the_last_one_has() -> None:
    early, late = run(loss=[1, 1e-4, 1e-4]), run(loss=[1, 0.1, 1e-4])
    assert settled_time([early, late], np.array([1.0, 2.0])) == 2
    assert settled_time([early, late], np.array([1.0])) is None
    assert settled_time([early, run()], np.array([1.0, 2.0])) is None
