import numpy as np

from lab.papers.yunis2024.figures.closed_form import CONSTANT, sweep, together, training
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.papers.yunis2024.figures.truncated import figure_6


def test_losses_of_the_full_network_and_its_halves() -> None:
    figure = figure_6(together(sweep("unet", 0.0), sweep("vgg", 0.0, 1.0)))
    first, second, third, _ = figure.axes
    assert [axes.get_title(loc="left") for axes in (first, third)] == [
        "VGG: full model, top half of each SVD",
        "UNet: full model, top half of each SVD",
    ]
    *_, full, top, constant = first.lines  # the first decay is drawn last, above the others
    middle = training(1, decay=0.0)
    np.testing.assert_allclose(full.get_ydata(), middle["training_loss"])  # no BatchNorm
    np.testing.assert_allclose(top.get_ydata(), middle["top_loss"])
    np.testing.assert_allclose(constant.get_ydata(), CONSTANT)
    *_, bottom, _ = second.lines
    np.testing.assert_allclose(bottom.get_ydata(), 5.0)
    assert first.get_ylim() == second.get_ylim()
    assert [text.get_text() for text in second.get_legend().get_texts()] == ["0", "1"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "full model",
        "top half of each SVD",
        "bottom half of each SVD",
        "constant guess",
    ]


def test_axes_are_logarithmic_where_losses_differ_by_much() -> None:
    runs = sweep("vgg", 0.0)
    assert {axes.get_yscale() for axes in figure_6(runs).axes} == {"log"}  # 5 to 2.5 exp(-4)
    (key,) = runs
    early = {seed: ds.isel(step=[0, 1]) for seed, ds in runs.only.items()}
    assert {axes.get_yscale() for axes in figure_6(Runs({key: early})).axes} == {"linear"}


def test_a_run_without_halves_shows_its_loss() -> None:
    runs = sweep("vgg", 0.0)
    (key,) = runs
    plain = {s: ds.drop_vars(["top_loss", "bottom_loss"]) for s, ds in runs.only.items()}
    left, right = figure_6(Runs({key: plain})).axes
    assert len(left.lines) == 2 and len(right.lines) == 1
