import numpy as np
import pytest

from figures.training_runs import training
from rankscope.figures import Setting, sample_sheets
from rankscope.figures.samples import SEPARATOR, sheet


def test_images_fill_rows_with_edges_between() -> None:
    images = np.arange(5, dtype=np.uint8)[:, None, None] * np.ones((2, 3), np.uint8)
    page = sheet(images)
    assert page.shape == (2 * 3, 3 * 4)
    assert page[::3, ::4].tolist() == [[0, 1, 2], [3, 4, SEPARATOR]]
    assert (page[2::3] == SEPARATOR).all() and (page[:, 3::4] == SEPARATOR).all()


def test_one_sheet_for_each_setting_of_its_first_run() -> None:
    settings = [Setting(f"weight decay {j}", (training(0), training(1))) for j in range(2)]
    axes = sample_sheets(settings).axes
    assert [each.get_title(loc="left") for each in axes] == ["weight decay 0", "weight decay 1"]
    shown = axes[1].images[0].get_array()
    assert shown[::9, ::9].tolist() == [[0, 20, 40], [60, 80, 100], [120, 140, 160]]


def test_runs_without_samples_say_so() -> None:
    ds = training(0)
    del ds.attrs["samples"]
    with pytest.raises(ValueError, match="stored no samples"):
        sample_sheets([Setting("weight decay 0", (ds,))])
