import numpy as np
from matplotlib.axes import Axes

from lab.papers.yunis2024.figures.closed_form import training
from lab.papers.yunis2024.figures.test_networks import panels
from rankscope.figures.seeds import Setting
from rankscope.lab.papers.yunis2024.figures.memorization import labels_compared


def drawn() -> list[Axes]:
    settings = [
        Setting(title, tuple(training(seed, decay=decay).isel(pair=[0, 1]) for seed in range(3)))
        for title, decay in (("true labels", 1.0), ("random labels", 0.1))
    ]
    return panels(labels_compared(settings).axes)


def test_ranks_and_alignment_of_every_layer_by_labels() -> None:
    axes = drawn()
    assert len(axes) == 6
    assert axes[3].get_title() == "random labels, 3 seeds: singular values of layers.1.weight"
    for row, decay in ((axes[:3], 1.0), (axes[3:], 0.1)):
        ds = training(1, decay=decay)
        ranks = ds.rankscope.normalized_effective_rank().to_numpy()[:, :3]
        np.testing.assert_allclose([line.get_ydata() for line in row[1].lines], ranks.T)
        background, a = np.split(np.array([line.get_ydata() for line in row[2].lines]), 2)
        np.testing.assert_allclose(background, 0.02)
        np.testing.assert_allclose(a[0], ds["alignment"].to_numpy()[:, 0, :5].mean(-1))
        np.testing.assert_allclose(a[1], ds["alignment"].to_numpy()[:, 1, :10].mean(-1))


def test_both_rows_share_their_heights_and_name_their_lines() -> None:
    axes = drawn()
    for upper, lower in zip(axes[:3], axes[3:], strict=True):
        assert upper.get_ylim() == lower.get_ylim()
    names = [text.get_text() for text in axes[5].get_legend().get_texts()]
    assert names == ["layers.0 > layers.1", "layers.1 > layers.2", "background"]
