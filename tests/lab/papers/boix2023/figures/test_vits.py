"""Figures of vision transformers on runs whose stable ranks are chosen."""

from functools import partial

import numpy as np
import pytest
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lab.papers.boix2023.vit_runs import RATES, STEPS_PER_EPOCH, courses, vit_run
from rankscope.lab.experiment import FigureRule, TooFewRuns
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.papers.boix2023.figures.products import (
    END,
    START,
    figure_1,
    figure_2,
    figure_5,
    greens,
    spectra_in_training,
)
from rankscope.lab.papers.boix2023.figures.stable_ranks import (
    figure_4,
    ranks_by_scale,
    ranks_by_variant,
    ranks_in_training,
)
from rankscope.lab.papers.boix2023.figures.vits import VIT_FIGURES
from rankscope.lab.running.run_key import RunKey


def growing(end: int, *, blocks: int = 6, **options) -> xr.Dataset:
    """From 1 to `end` at epochs 1 to 4; block b is b - 1 above, V-O twice that."""
    kq = courses(*[(0, *np.linspace(1, end, 4).round() + b) for b in range(blocks)])
    return vit_run(kq, 2 * kq, **options)


def by_scale(seeds_of_scale: dict[float, dict[int, xr.Dataset]], network: str = "vit") -> Runs:
    return Runs({RunKey(network, {"scale": s}): seeds for s, seeds in seeds_of_scale.items()})


def growing_with(*init_scales: float, **options) -> dict[float, dict[int, xr.Dataset]]:
    """The larger the scale the higher the rank at the end: 10 times the scale."""
    return {float(scale): {0: growing(int(10 * scale), **options)} for scale in init_scales}


def results(*init_scales: float, **options) -> Runs:
    return by_scale(growing_with(*init_scales, **options))


def unequal() -> Runs:
    """Two heads whose ranks have the means 2, 2, 6 and the deviations 1, 0, 2."""
    kq = np.array([[0, 0], [1, 3], [2, 2], [4, 8]])[:, None]
    return by_scale({1.0: {0: vit_run(kq)}})


def titles(figure: Figure) -> list[str]:
    return [title for title in left_titles(figure) if title]


def left_titles(figure: Figure) -> list[str]:
    return [axes.get_title(loc="left") for axes in figure.axes]


def curves(axes: Axes) -> list[list[float]]:
    return [line.get_ydata().tolist() for line in axes.lines if len(line.get_ydata()) > 2]


def names(figure: Figure) -> list[str]:
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]


def band(axes: Axes, position: int = 0) -> set[tuple[float, float]]:
    return set(map(tuple, axes.collections[position].get_paths()[0].vertices))


def test_figure_1_shows_both_products_of_a_middle_block() -> None:
    figure = figure_1(results(0.1, 1))
    assert titles(figure) == ["K-Q, block 3, head 1", "V-O, block 3, head 1"]
    # ranks 3, 6, 9, 12 of block 3 at epochs 1 to 4, as many ones; the start has 16
    sums = [[sum(curve) for curve in curves(axes)] for axes in figure.axes]
    assert sums == [[3, 6, 9, 12, 16], [6, 12, 18, 24, 16]]
    changes = [f"its change, epoch {epoch}" for epoch in (1, 2, 3, 4)]
    assert names(figure) == ["product at the start", *changes]
    colours = [line.get_color() for line in figure.legends[0].get_lines()]
    assert colours == [START, *greens(4)]
    lines = figure.axes[0].lines
    assert [line.get_color() for line in lines] == [*greens(4), START]
    # The start is told from changes, and these from each other, without colour too.
    assert [line.get_linestyle() for line in lines] == [*"----", "--"]
    lightness = [sum(colour[:3]) for colour in greens(5)]
    assert max(np.diff(lightness)) < -0.1


def test_spectra_are_divided_by_their_largest_value() -> None:
    ds = growing(10, blocks=1)
    for name in ("product_singular_values", "product_change_singular_values"):
        ds[name] = ds[name] * xr.DataArray(8 * 0.5 ** np.arange(ds.sizes["k"]), dims="k")
    axes = figure_1(by_scale({1.0: {0: ds}})).axes[0]
    for curve, rank in zip(curves(axes), (1, 4, 7, 10, 16), strict=True):
        np.testing.assert_allclose(curve, [*0.5 ** np.arange(rank), *[0] * (32 - rank)])
    assert axes.lines[0].get_xdata().tolist() == list(range(1, 33))


def test_a_change_of_zero_is_not_drawn() -> None:
    axes = figure_1(by_scale({1.0: {0: vit_run(courses((0, 0, 1)))}})).axes[0]
    assert [sum(curve) for curve in curves(axes)] == [1, 16]


def test_figures_of_one_seed_show_the_first_that_did_not_collapse() -> None:
    ill, well = growing(1, blocks=1, loss=[1.0] * 5), growing(10, blocks=1)
    runs = by_scale({1.0: {0: ill, 1: well}, 0.1: {0: ill}})
    for figure in (figure_1(runs), spectra_in_training(runs)):
        assert [sum(curve) for curve in curves(figure.axes[0])] == [1, 4, 7, 10, 16]
    assert [sum(curve) for curve in curves(figure_5(runs, kind="kq").axes[0])] == [16, 10]
    figure = figure_2(runs)
    assert titles(figure)[:2] == [
        "scale 1\nK-Q, block 1, head 1",
        "scale 0.1 (collapsed)\nK-Q, block 1, head 1",
    ]
    assert np.sum(curves(figure.axes[0]), axis=0).tolist() == [0, 1, 4, 7, 10]
    assert np.sum(curves(figure.axes[1]), axis=0).tolist() == [0, 1, 1, 1, 1]


def test_headings_say_which_runs_are_shown_and_which_collapsed() -> None:
    collapsed, trained = growing(1, blocks=1, loss=[1.0] * 5), growing(10, blocks=1, seed=1)
    one_left, none_left = (
        by_scale({0.3: {0: collapsed, 1: other}}) for other in (trained, collapsed)
    )
    for draw in (figure_1, partial(figure_5, kind="kq"), spectra_in_training):
        share = "1 of 2 seeds left out: collapsed"
        assert draw(one_left).get_suptitle() == f"initial scale 0.3 ({share}), seed 1"
        assert draw(none_left).get_suptitle() == "initial scale 0.3 (collapsed), seed 0"
    assert ranks_in_training(one_left).get_suptitle().endswith("collapsed), heads of 1 seed")
    assert ranks_in_training(none_left).get_suptitle().endswith("(collapsed), heads of 2 seeds")


def test_figure_2_has_three_scales_from_the_default_down() -> None:
    sweep = results(1, 0.6, 0.4, 0.2, 0.1)
    figure = figure_2(sweep)
    kq = [f"scale {scale}\nK-Q, block 2, head 1" for scale in (1, 0.4, 0.1)]
    assert titles(figure) == [*kq, *(name.replace("K-Q", "V-O") for name in kq)]
    first = curves(figure.axes[0])
    assert len(first) == 20
    # of block 2 at scale 1: 2, 5, 8 and 11 values are 1, from the smallest drawn to the largest
    assert np.sum(first, axis=0).tolist() == [0, 2, 5, 8, 11]
    assert first[-1] == [0, 1, 1, 1, 1]
    largest, *_, smallest = figure.axes[0].lines[::-1]
    assert largest.get_xdata().tolist() == [0, 1, 2, 3, 4]
    assert largest.get_color() != smallest.get_color()
    assert figure.axes[0].get_xlabel() == "epoch"


@pytest.mark.parametrize(("kind", "factor"), [("kq", 1), ("vo", 2)])
def test_figures_4_and_5_have_a_panel_for_each_block(kind, factor: int) -> None:
    """Figure 4 has the last rank of each scale, figure 5 start and end of the default scale."""
    runs = results(1, 0.3, 0.5, blocks=4)
    for block, axes in enumerate(figure_4(runs, kind=kind).axes):
        line = axes.lines[0]
        assert line.get_xdata().tolist() == [0.3, 0.5, 1.0]
        assert line.get_ydata().tolist() == [factor * (end + block) for end in (3, 5, 10)]
    figure = figure_5(runs, kind=kind)
    sums = [[sum(curve) for curve in curves(axes)] for axes in figure.axes]
    assert sums == [[16, factor * end] for end in (10, 11, 12, 13)]
    assert [axes.get_subplotspec().rowspan.start for axes in figure.axes] == [0, 0, 0, 1]


def test_figure_4_pools_the_heads_of_seeds_that_did_not_collapse() -> None:
    sweep = growing_with(1.0, 0.3, blocks=1)
    sweep[1.0] |= {
        1: growing(6, blocks=1),
        2: growing(1, blocks=1, loss=[1.0] * 5),
    }
    sweep[0.1] = {0: growing(8, blocks=1, loss=[1.0] * 5)}
    (axes,) = figure_4(by_scale(sweep), kind="kq").axes
    assert axes.lines[0].get_ydata().tolist() == [3, 8]
    hollow = [bar[0] for bar in axes.containers if bar[0].get_markerfacecolor() == "white"]
    assert [(mark.get_xdata()[0], mark.get_ydata()[0]) for mark in hollow] == [(0.1, 8)]
    assert axes.containers[-1][2][0].get_segments()[0][:, 1].tolist() == [6, 10]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0.1", "0.3", "1"]
    assert "hollow: collapsed, in no line" in names(axes.figure)
    assert len(names(figure_4(results(1, 0.3), kind="kq"))) == 1


def test_one_scale_is_too_few_for_figure_4() -> None:
    with pytest.raises(TooFewRuns, match="needs runs of 2 initial scales; the results have 1"):
        figure_4(results(1), kind="kq")


def test_figure_5_shows_means_of_heads_with_their_deviation() -> None:
    (axes,) = figure_5(unequal(), kind="kq").axes
    start, change = axes.lines
    assert (start.get_color(), change.get_color()) == (START, END)
    assert change.get_ydata()[:9].tolist() == [1, 1, 1, 1, 0.5, 0.5, 0.5, 0.5, 0]
    assert {(1, 1), (5, 0), (5, 1), (9, 0)} <= band(axes, 1)


def test_spectra_of_three_blocks() -> None:
    figure = spectra_in_training(results(1, blocks=12))
    assert titles(figure) == [
        f"{kind}, block {block}, head 1" for kind in ("K-Q", "V-O") for block in (1, 7, 12)
    ]
    assert [sum(curve) for curve in curves(figure.axes[1])] == [7, 10, 13, 16, 16]


def test_ranks_of_both_products_over_epochs() -> None:
    figure = ranks_in_training(results(0.1, 1, loss=[1, 0.5, 0.1, 1e-4, 1e-5]))
    assert left_titles(figure) == [
        f"{kind}, block {block}" for kind in ("K-Q", "V-O") for block in range(1, 7)
    ]
    for position, axes in enumerate(figure.axes):
        factor, block = 1 + position // 6, position % 6
        ranks = [factor * (block + rank) for rank in (1.0, 4.0, 7.0, 10.0)]
        assert curves(axes) == [ranks]
        assert axes.lines[0].get_xdata().tolist() == [1, 2, 3, 4]
        dots = [line.get_xydata()[0] for line in axes.lines if len(line.get_ydata()) == 1]
        np.testing.assert_array_equal(dots, [(3, ranks[2])])
    assert names(figure) == ["claim B7 begins", "training loss < 0.001", "band: std over heads"]
    assert [line.get_xdata() for line in axes.lines if line.get_linestyle() == ":"] == [[1, 1]]
    assert (axes.get_xscale(), axes.get_xlabel()) == ("log", "epoch (log scale)")
    kq, vo = ({axes.get_ylim() for axes in half} for half in (figure.axes[:6], figure.axes[6:]))
    assert len(kq) == len(vo) == 1 and kq != vo


def test_ranks_have_bands_of_heads_and_those_of_1_or_more_can_be_seen() -> None:
    for axes in ranks_in_training(unequal()).axes:
        assert curves(axes) == [[2, 2, 6]]
        assert {(1, 1), (1, 3), (2, 2), (3, 4), (3, 8)} <= band(axes)
        low, high = axes.get_ylim()
        assert 0 < low < 1 and high >= 8


@pytest.mark.parametrize("count", [3, 6, 12])
def test_every_block_has_its_panel(count: int) -> None:
    figure = ranks_in_training(results(1, blocks=count))
    assert left_titles(figure)[:count] == [f"K-Q, block {block + 1}" for block in range(count)]
    assert len(figure.axes) == 2 * count
    assert figure.get_figwidth() < 10


def test_ranks_by_scale_name_what_collapsed() -> None:
    sweep = growing_with(1.0, 0.3, blocks=1)
    sweep[0.1] = {0: growing(8, blocks=1, loss=[1.0] * 5)}
    sweep[1.0][1] = growing(1, blocks=1, loss=[1.0] * 5)
    figure = ranks_by_scale(by_scale(sweep), kind="kq")
    assert names(figure) == [
        "scale 0.1 (collapsed)",
        "scale 0.3",
        "scale 1 (1 of 2 seeds left out: collapsed)",
        "claim B7 begins",
        "band: std over heads",
    ]
    assert curves(figure.axes[0]) == [[1, 3, 6, 8], [1, 2, 2, 3], [1, 4, 7, 10]]
    assert [line.get_linestyle() for line in figure.axes[0].lines[:3]] == [":", "-", "-"]


def test_seeds_that_stopped_at_different_steps_are_shown_while_all_run() -> None:
    long, short = growing(10, blocks=1), growing(4, blocks=1).isel(step=slice(4))
    axes, _ = ranks_in_training(by_scale({1.0: {0: long, 1: short}})).axes
    assert curves(axes)[0] == [1, 3, 5]  # of 1, 4, 7 and 1, 2, 3
    late = long.assign(training_loss=("step", [1, 0.5, 0.1, 0.1, 1e-4]))
    settled = short.assign(training_loss=("step", [1, 0.5, 1e-4, 1e-5]))
    axes, _ = ranks_in_training(by_scale({1.0: {0: late, 1: settled}})).axes
    assert all(len(line.get_ydata()) != 1 for line in axes.lines)


def test_variants_have_columns_and_lines_for_their_blocks() -> None:
    depths = {"depth-3": growing(10, blocks=3), "depth-6": growing(4)}
    runs = {RunKey(name, {"scale": 1.0}): {0: ds} for name, ds in depths.items()}
    figure = ranks_by_variant(Runs(runs))
    assert titles(figure)[::2] == ["ViT, depth 3, K-Q", "ViT, depth 3, V-O"]
    assert titles(figure)[1::2] == ["depth-6, K-Q", "depth-6, V-O"]  # a name that has no title
    assert [len(axes.lines) for axes in figure.axes] == [3, 6, 3, 6]
    assert curves(figure.axes[0]) == [[1 + b, 4 + b, 7 + b, 10 + b] for b in range(3)]
    lightness = [sum(line.get_color()[:3]) for line in figure.axes[1].lines]
    assert lightness == sorted(lightness)
    assert len({axes.get_ylim() for axes in figure.axes}) == 1


def test_time_is_the_step_where_epochs_are_not_declared() -> None:
    declaration = {"snapshots": {"class": "Every", "steps": STEPS_PER_EPOCH}, **RATES}
    figure = ranks_in_training(results(1, blocks=1, declaration=declaration))
    assert figure.axes[0].get_xlabel() == "step (log scale)"
    assert figure.axes[0].lines[0].get_xdata().tolist() == [10, 20, 30, 40]
    assert names(figure) == ["claim B7 begins", "band: std over heads"]


@pytest.mark.parametrize("figure", VIT_FIGURES, ids=lambda figure: figure.name)
def test_captions_have_a_first_sentence_and_more(figure: FigureRule) -> None:
    first, blank, *rest = figure.caption.splitlines()
    assert first.endswith(".")
    assert blank == "" and " ".join(rest).endswith(".")


def test_figures_of_our_own_say_so_in_their_title() -> None:
    ours = {
        figure.name
        for figure in VIT_FIGURES
        if figure.caption.partition("\n")[0].endswith("(not in the paper).")
    }
    assert ours == {figure.name for figure in VIT_FIGURES if not figure.name.startswith("figure-")}
