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
    titles = [panel.get_title(loc="left") for panel in axes[::3]]
    assert [title.partition(":")[0] for title in titles] == [
        f"{labels} labels, 3 seeds" for labels in ("true", "random")
    ]
    for row, decay in ((axes[:3], 1.0), (axes[3:], 0.1)):
        ds = training(1, decay=decay)
        np.testing.assert_allclose([line.get_ydata() for line in row[1].lines], ranks(ds).T)
        background, a = np.split(np.array([line.get_ydata() for line in row[2].lines]), 2)
        np.testing.assert_allclose(background, 0.02)
        np.testing.assert_allclose(a, mean_alignment(ds).T)
    for upper, lower in zip(axes[:3], axes[3:], strict=True):
        assert upper.get_ylim() == lower.get_ylim()
    names = [text.get_text() for text in axes[2].get_legend().get_texts()]
    assert len(names) == len(PAIRS) + 1 and names[-1] == "background"
