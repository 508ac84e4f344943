import numpy as np

from lab.papers.yunis2024.figures.closed_form import (
    PAIRS,
    label_runs,
    mean_alignment,
    panels,
    ranks,
    training,
)
from rankscope.lab.papers.yunis2024.figures.memorization import figure_7


def test_ranks_and_alignment_of_every_layer_by_labels() -> None:
    axes = panels(figure_7(label_runs()))
    assert len(axes) == 6
    assert [panel.get_title() for panel in axes[::3]] == [
        f"{labels} labels, 3 seeds: singular values of layers.1.weight"
        for labels in ("true", "random")
    ]
    for row, decay in ((axes[:3], 1.0), (axes[3:], 0.1)):
        ds = training(1, decay=decay)
        np.testing.assert_allclose([line.get_ydata() for line in row[1].lines], ranks(ds).T)
        background, a = np.split(np.array([line.get_ydata() for line in row[2].lines]), 2)
        np.testing.assert_allclose(background, 0.02)
        np.testing.assert_allclose(a, mean_alignment(ds).T)
    for upper, lower in zip(axes[:3], axes[3:], strict=True):
        assert upper.get_ylim() == lower.get_ylim()
    assert [text.get_text() for text in axes[5].get_legend().get_texts()] == [*PAIRS, "background"]
