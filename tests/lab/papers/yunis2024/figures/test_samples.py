import numpy as np
import pytest

from lab.papers.yunis2024.figures.closed_form import sweep
from rankscope.lab.papers.yunis2024.figures.samples import SEPARATOR, samples, sheet


def test_images_fill_rows_with_edges_between() -> None:
    images = np.arange(5, dtype=np.uint8)[:, None, None] * np.ones((2, 3), np.uint8)
    page = sheet(images)
    assert page.shape == (2 * 3, 3 * 4)
    assert page[::3, ::4].tolist() == [[0, 1, 2], [3, 4, SEPARATOR]]
    assert (page[2::3] == SEPARATOR).all() and (page[:, 3::4] == SEPARATOR).all()


def test_one_sheet_for_each_decay_of_its_first_run() -> None:
    runs = sweep("unet", 0.1, 1.0, seeds=2, collapsed=[(0.1, 0), (1.0, 1)])
    for seeds in runs.entries.values():
        del seeds[1].attrs["samples"]
    first, second = samples(runs).axes
    assert first.get_title(loc="left").startswith("weight decay 0.1, 1 seed, collapsed:")
    assert second.get_title(loc="left") == "weight decay 1, 1 seed"
    shown = second.images[0].get_array()
    assert shown[::9, ::9].tolist() == [[0, 20, 40], [60, 80, 100], [120, 140, 160]]


def test_runs_without_samples_say_so() -> None:
    runs = sweep("unet", 0.0, seeds=1)
    del runs.only[0].attrs["samples"]
    with pytest.raises(ValueError, match="stored no samples"):
        samples(runs)
