import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from lab.papers.yunis2024.figures.closed_form import training
from rankscope.figures.seeds import Setting
from rankscope.lab.papers.yunis2024.figures.decay import ends_by_decay, ranks_by_decay

DECAYS = (0.0, 10.0)


def setting(decay: float, *collapsed: str) -> Setting:
    runs = (training(seed, decay=decay).isel(pair=[0, 1]) for seed in range(3))
    return Setting(f"weight decay {decay:g}", tuple(runs), collapsed)


def lines(axes: Axes) -> list[Line2D]:
    return [line for line in axes.lines if line.get_linestyle() in {"-", "--"}]


def points(axes: Axes, mark: str) -> list[Line2D]:
    return [line for line in axes.lines if line.get_marker() == mark]


def test_ends_of_training_against_decay() -> None:
    figure = ends_by_decay({"VGG": [setting(decay) for decay in DECAYS]})
    ranked, aligned, relative = figure.axes
    ends = [training(1, decay=decay).isel(step=-1) for decay in DECAYS]
    ranks = [np.median(ds.rankscope.normalized_effective_rank().to_numpy()[:3]) for ds in ends]
    np.testing.assert_allclose(lines(ranked)[0].get_ydata(), ranks)
    a = [ds["alignment"].to_numpy() for ds in ends]
    want = np.array([np.median([each[0, :5].mean(), each[1, :10].mean()]) for each in a])
    drawn = [line.get_ydata() for line in lines(aligned)]
    np.testing.assert_allclose(drawn, [[0.06, 0.06], 2 * want, [0.02, 0.02], want])
    np.testing.assert_allclose(lines(relative)[0].get_ydata(), want / 0.02)
    assert [label.get_text() for label in relative.get_xticklabels()] == ["0", "10"]


def test_backgrounds_have_lines_and_marks_of_their_own_and_all_are_explained() -> None:
    figure = ends_by_decay({"VGG": [setting(0.0)]})
    looks = {(line.get_color(), line.get_linestyle()) for line in lines(figure.axes[1])}
    (legend,) = figure.legends
    assert looks <= {(line.get_color(), line.get_linestyle()) for line in legend.get_lines()}
    assert len(looks) == 4
    assert {line.get_ydata()[0] for line in points(figure.axes[1], "s")} == {0.02, 0.06}
    assert len(points(figure.axes[1], "o")) == 6


def test_a_collapsed_seed_is_hollow_and_in_no_mean() -> None:
    settings = [setting(0.0, "", "", "why"), setting(10.0, "why", "why", "why")]
    _, aligned, _ = ends_by_decay({"VGG": settings}).axes
    faces = [point.get_markerfacecolor() == "white" for point in points(aligned, "o")[-6:]]
    assert faces == [False, False, True, True, True, True]
    first, second = lines(aligned)[-1].get_ydata()
    seeds = [point.get_ydata()[0] for point in points(aligned, "o")[-6:]]
    assert first == pytest.approx((seeds[0] + seeds[1]) / 2)
    assert np.isnan(second)


def test_a_seed_without_a_number_does_not_erase_the_others() -> None:
    broken = setting(0.0)
    broken.runs[2]["alignment"] = broken.runs[2]["alignment"] * np.nan
    _, aligned, _ = ends_by_decay({"VGG": [broken]}).axes
    seeds = [point.get_ydata()[0] for point in points(aligned, "o")[-3:]]
    assert np.isnan(seeds[2])
    assert lines(aligned)[-1].get_ydata()[0] == pytest.approx((seeds[0] + seeds[1]) / 2)


def test_ticks_are_the_papers_decays() -> None:
    *_, relative = ends_by_decay({"VGG": [setting(0.0), setting(0.001)]}).axes
    assert [label.get_text() for label in relative.get_xticklabels()] == ["0", "0.001"]


def test_ranks_of_all_networks_share_one_axis() -> None:
    networks = {"VGG": [setting(0.0), setting(1.0)], "UNet": [setting(0.1)]}
    vgg, unet = ranks_by_decay(networks).axes
    assert vgg.get_ylim() == unet.get_ylim() == (0, 1) and unet.get_title() == "UNet"
    assert vgg.lines[0].get_ydata()[0] > vgg.lines[0].get_ydata()[1]
