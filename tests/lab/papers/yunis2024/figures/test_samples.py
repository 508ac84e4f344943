import numpy as np
import pytest

from lab.papers.yunis2024.figures.closed_form import training
from rankscope.figures.seeds import Setting
from rankscope.lab.papers.yunis2024.figures.samples import SEPARATOR, sample_sheets, sheet


def test_images_fill_rows_with_edges_between() -> None:
    images = np.arange(5, dtype=np.uint8)[:, None, None] * np.ones((2, 3), np.uint8)
    page = sheet(images)
    assert page.shape == (2 * 3, 3 * 4)
    assert page[::3, ::4].tolist() == [[0, 1, 2], [3, 4, SEPARATOR]]
    assert (page[2::3] == SEPARATOR).all() and (page[:, 3::4] == SEPARATOR).all()


def test_one_sheet_for_each_setting_of_its_first_run() -> None:
    runs, well = (training(0), training(1)), Setting("weight decay 1", ())
    settings = [well._replace(runs=runs, collapsed=("why", "")), well._replace(runs=runs)]
    axes = sample_sheets(settings).axes
    headings = [each.get_title(loc="left") for each in axes]
    assert headings == ["weight decay 1, 1 seed, collapsed: why", "weight decay 1, 1 seed"]
    shown = axes[1].images[0].get_array()
    assert shown[::9, ::9].tolist() == [[0, 20, 40], [60, 80, 100], [120, 140, 160]]


def test_runs_without_samples_say_so() -> None:
    ds = training(0)
    del ds.attrs["samples"]
    with pytest.raises(ValueError, match="stored no samples"):
        sample_sheets([Setting("weight decay 0", (ds,))])
