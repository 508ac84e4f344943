import numpy as np
import pytest
import xarray as xr

from lab.papers.boix2023.toy_runs import full_run, rises
from rankscope.lab.papers.boix2023.figures.full_head import singular_value_rises

SIZES = np.array([[1.0, 0.6, 0.3], [2.0, 1.0, 0.5]])  # K-Q, V-O


def test_dots_stand_at_half_rises_and_bars_reach_from_10_to_90_percent_in_the_same_colours() -> (
    None
):
    axes = singular_value_rises(full_run(SIZES), rises(SIZES)).axes
    for upper, strip, product in ((axes[0], axes[2], "vo"), (axes[1], axes[3], "kq")):
        expected = rises(SIZES).sel(product=product)
        dots = np.array([line.get_xydata()[0] for line in upper.lines if line.get_marker() == "o"])
        np.testing.assert_allclose(dots[:, 0], expected["half_rise"])
        np.testing.assert_allclose(dots[:, 1], SIZES[int(product == "vo")] / 2, rtol=0.02)
        bars = [line for line in strip.lines if line.get_linewidth() == 5]
        ends = np.array([expected["rise_10"], expected["rise_90"]])
        np.testing.assert_allclose([bar.get_xdata() for bar in bars], ends.T)
        assert [list(bar.get_ydata()) for bar in bars] == [[k, k] for k in (1, 2, 3)]
        assert strip.yaxis_inverted()
        curves = [line for line in upper.lines if line.get_marker() == "None"]
        curves.sort(key=lambda line: -line.get_ydata()[-1])
        colours = [bar.get_color() for bar in bars]
        assert colours == [curve.get_color() for curve in curves] and len(set(colours)) == 3


def test_only_the_first_values_may_have_been_measured_and_some_may_not_have_risen() -> None:
    found = rises(SIZES[:, :2])
    found["half_rise"][0, 1] = np.nan
    axes = singular_value_rises(full_run(SIZES), found).axes
    heights = [line.get_ydata()[0] for line in axes[1].lines if line.get_marker() == "o"]
    assert heights[0] == pytest.approx(0.5, rel=0.02) and np.isnan(heights[1])
    assert axes[2].get_yticks().tolist() == [1, 2]


def test_values_after_the_last_that_rose_have_no_row() -> None:
    found = rises(SIZES)
    for name in found:
        found[name][:, 2] = np.nan
        found[name][1, 1] = np.nan
    strips = singular_value_rises(full_run(SIZES), found).axes[2:4]
    assert [strip.get_yticks().tolist() for strip in strips] == [[1, 2], [1, 2]]
    assert not any(strip.texts for strip in strips)


def test_a_product_of_which_nothing_rose_says_so() -> None:
    found = rises(SIZES)
    for name in found:
        found[name].loc["kq"] = np.nan
    vo, kq = singular_value_rises(full_run(SIZES), found).axes[2:4]
    assert not vo.texts
    assert [text.get_text() for text in kq.texts] == ["none has risen by the end"]
    both = singular_value_rises(full_run(SIZES), found.where(False)).axes[2:4]
    assert all(strip.texts and not strip.lines for strip in both)


def test_values_too_small_to_be_seen_lie_flat_beside_the_other_product() -> None:
    tiny = full_run(SIZES)
    tiny["singular_values"] *= xr.where(tiny["product"] == "kq", 1e-60, 1.0)
    vo, kq = singular_value_rises(tiny, rises(SIZES)).axes[:2]
    assert kq.get_ylim() == vo.get_ylim()
