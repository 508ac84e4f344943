import numpy as np
import pytest

from lab.papers.yunis2024.figures.closed_form import (
    STEPS,
    base_trainings,
    cells,
    panels,
    ranks,
    sweep,
    training,
)
from rankscope.lab.papers.yunis2024.figures.alignment import figure_3
from rankscope.lab.papers.yunis2024.figures.networks import figure_1, figure_2

MIDDLE = training(1, decay=1e-4)  # the mean over seeds of the VGG
HEADING = "weight decay 0.0001 (base), 3 seeds"


def title(axes) -> list[str]:
    return axes.get_title(loc="left").split("\n")


def test_spectra_of_the_shown_matrices_averaged() -> None:
    first, second = panels(figure_1(base_trainings("vgg", "lstm")))
    assert title(first)[0].startswith("VGG, ") and title(first)[1] == HEADING
    assert title(second)[0].startswith("LSTM, ")
    shown = MIDDLE["singular_values"].sel(matrix="layers.1.weight").to_numpy()
    np.testing.assert_allclose([line.get_ydata() for line in first.lines], shown.T[::-1])
    np.testing.assert_array_equal(first.lines[0].get_xdata(), STEPS)
    assert "log scale" in first.get_xlabel()


def test_ranks_of_whole_matrices_on_one_scale_and_their_fall() -> None:
    first, second, falls = panels(figure_2(base_trainings("vgg", "lm")))
    np.testing.assert_allclose(cells(first), ranks(MIDDLE).T)
    limits = {tuple(axes.collections[0].get_clim()) for axes in (first, second)}
    assert limits == {(cells(second).min(), 1.0)}
    assert title(first) == ["VGG", HEADING]
    change = ranks(MIDDLE) - ranks(MIDDLE)[0]
    np.testing.assert_allclose(falls.lines[0].get_ydata(), np.median(change, axis=1))
    words = [text.get_text() for text in falls.get_legend().get_texts()]
    assert words == ["VGG", "Transformer", "middle half"]


@pytest.mark.parametrize("draw", [figure_1, figure_2])
def test_networks_that_collapsed_are_named(draw) -> None:
    runs = sweep("vgg", 1e-4, collapsed=[(1e-4, seed) for seed in range(3)])
    assert "3 seeds, collapsed: training loss 2.5" in " ".join(title(panels(draw(runs))[0]))


def test_archived_runs_are_drawn_where_they_have_spectra() -> None:
    runs = base_trainings("vgg")
    for ds in runs.only.values():
        ds["singular_values"][3] = np.nan
    assert cells(panels(figure_2(runs))[0]).shape == (3, len(STEPS) - 1)


@pytest.mark.parametrize("draw", [figure_1, figure_3])
def test_what_is_shown_but_not_there_is_named(draw) -> None:
    runs = base_trainings("vgg")
    runs.only[0].attrs.update(shown_matrix="conv9", shown_pair="conv9")
    with pytest.raises(ValueError, match="'conv9'"):
        draw(runs)
