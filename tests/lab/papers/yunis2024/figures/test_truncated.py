import numpy as np

from lab.papers.yunis2024.figures.closed_form import CONSTANT, sweep, together, training
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.papers.yunis2024.figures.truncated import figure_6


def test_losses_of_the_full_network_and_its_halves() -> None:
    figure = figure_6(together(sweep("unet", 0.0), sweep("vgg", 0.0, 1.0)))
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "VGG, weight decay 0, 3 seeds",
        "VGG, weight decay 1, 3 seeds",
        "UNet, weight decay 0 (base), 3 seeds",
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
    runs = sweep("vgg", 0.0)
    (axes,) = figure_6(runs).axes  # from 5 to 2.5 exp(-4)
    assert axes.get_yscale() == "log"
    (key,) = runs
    early = {seed: ds.isel(step=[0, 1]) for seed, ds in runs.only.items()}
    (axes,) = figure_6(Runs({key: early})).axes
    assert axes.get_yscale() == "linear"


def test_decays_of_a_network_share_the_axis_and_a_run_without_halves_shows_its_loss() -> None:
    runs = sweep("vgg", 0.0, 1.0)
    plain = {
        s: ds.drop_vars(["top_loss", "bottom_loss"]) for s, ds in runs.by("decay")[1.0].items()
    }
    first, second = figure_6(
        Runs(dict(zip(runs, (runs.by("decay")[0.0], plain), strict=True)))
    ).axes
    assert first.get_ylim() == second.get_ylim()
    assert len(second.lines) == 2
