import numpy as np

from lab.papers.yunis2024.figures.closed_form import CONSTANT, training
from rankscope.figures.seeds import Setting
from rankscope.lab.papers.yunis2024.figures.truncated import losses_by_decay


def settings(count: int) -> list[Setting]:
    runs = tuple(training(seed) for seed in range(3))
    return [Setting(f"weight decay {j}", runs) for j in range(count)]


def test_losses_of_the_full_network_and_its_halves() -> None:
    figure = losses_by_decay({"VGG": settings(2), "UNet": settings(1)})
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "VGG, weight decay 0, 3 seeds",
        "VGG, weight decay 1, 3 seeds",
        "UNet, weight decay 0, 3 seeds",
    ]
    bottom, top, full, constant = (line.get_ydata() for line in figure.axes[1].lines)
    middle = training(1)
    np.testing.assert_allclose(full, middle["training_loss"])  # no BatchNorm
    np.testing.assert_allclose(top, middle["top_loss"])
    np.testing.assert_allclose(bottom, 5.0)
    np.testing.assert_allclose(constant, CONSTANT)
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts == [
        "full model",
        "top half of each SVD",
        "bottom half of each SVD",
        "constant guess",
    ]


def test_axes_are_logarithmic_where_losses_differ_by_much() -> None:
    (axes,) = losses_by_decay({"VGG": settings(1)}).axes  # from 5 to 2.5 exp(-4)
    assert axes.get_yscale() == "log"
    early = [
        each._replace(runs=tuple(ds.isel(step=[0, 1]) for ds in each.runs)) for each in settings(1)
    ]
    (axes,) = losses_by_decay({"VGG": early}).axes
    assert axes.get_yscale() == "linear"


def test_decays_of_a_network_share_the_axis_and_a_run_without_halves_shows_its_loss() -> None:
    plain = tuple(ds.drop_vars(["top_loss", "bottom_loss"]) for ds in settings(1)[0].runs)
    figure = losses_by_decay({"VGG": [*settings(1), Setting("plain", plain)]})
    first, second = figure.axes
    assert first.get_ylim() == second.get_ylim()
    assert len(second.lines) == 2
