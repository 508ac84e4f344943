import numpy as np
import pytest
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lab.papers.boix2023.toy_runs import flow_run, full_run, target
from rankscope.figures.style import IDLE
from rankscope.lab.papers.boix2023.figures.toy import entries_by_alpha, loss_by_alpha, toy_attention

P = 4
GOAL = target(3, P)  # active from 0.5, 1.6 and 5 on; runs end at 6
SIZES = np.array([[1.0, 0.6, 1e-4], [2.0, 0.5, 1e-4]])  # K-Q, V-O


def runs() -> dict[float, xr.Dataset]:
    return {power: flow_run(GOAL, power) for power in (-1.0, -8.0, -1000.0)}


def panels_of(figure: Figure) -> list[Axes]:
    return [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]


def drawn(axes: Axes) -> list[list[float]]:
    return sorted(line.get_ydata().tolist() for line in axes.lines)


def coloured(axes: Axes) -> list[np.ndarray]:
    return [line.get_ydata() for line in axes.lines if line.get_color() != IDLE]


def test_fig_3_has_diagonal_weights_above_full_ones() -> None:
    diagonal, full = flow_run(GOAL, -8.0), full_run(SIZES)
    axes = panels_of(toy_attention(diagonal, full))
    assert len(axes) == 6
    for here, kind in ((axes[0], "vo"), (axes[1], "kq")):
        z = diagonal["z"].to_numpy()[:, diagonal["kind"].to_numpy() == kind]
        assert drawn(here) == sorted(z.T.tolist())
    for here, product in ((axes[3], "vo"), (axes[4], "kq")):
        assert drawn(here) == sorted(full["singular_values"].sel(product=product).T.values.tolist())
    seen = sorted(values[-1] for values in coloured(axes[3]))
    assert seen == pytest.approx([0.5, 2.0], rel=1e-3)  # the third is too small
    np.testing.assert_array_equal(axes[2].lines[0].get_ydata(), diagonal["loss"])
    np.testing.assert_array_equal(axes[5].lines[0].get_ydata(), full["loss"])
    titles = [here.get_title(loc="left") for here in axes]
    assert [title[:3] for title in titles] == [f"({c})" for c in "abcdef"]
    alphas = [title.rpartition(", ")[2] for title in titles]
    assert alphas == [r"$\alpha$ = $10^{-8}$"] * 3 + [r"$\alpha$ = $10^{-4}$"] * 3
    assert all("aligned teacher" in title for title in titles[3:])
    assert "W_V W_O" in axes[0].get_ylabel() and "entries" in axes[0].get_ylabel()
    assert "W_K W_Q" in axes[4].get_ylabel() and "singular values" in axes[4].get_ylabel()
    assert all(r"t \,/\, \log(1/\alpha)" in here.get_xlabel() for here in axes)


def test_fig_6_has_a_panel_for_each_alpha_from_the_largest() -> None:
    flows = runs()
    figure = loss_by_alpha(flows)
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == [rf"$\alpha$ = $10^{{{power}}}$" for power in (-1, -8, -1000)]
    for axes, ds in zip(figure.axes, flows.values(), strict=True):
        limit, own = axes.lines
        np.testing.assert_array_equal(own.get_xydata().T, [ds["time"], ds["loss"]])
        np.testing.assert_array_equal(limit.get_ydata(), flows[-1000.0]["loss"])
        assert limit.get_color() != own.get_color()
        assert axes.get_ylim() == figure.axes[0].get_ylim()
    assert "10^{-1000}" in figure.legends[0].get_texts()[0].get_text()


@pytest.mark.parametrize(("kind", "symbol"), [("kq", "W_K W_Q"), ("vo", "W_V W_O")])
def test_figs_7_and_8_draw_the_entries_of_one_product(kind: str, symbol: str) -> None:
    flows = runs()
    figure = entries_by_alpha(flows, kind)
    axes = panels_of(figure)
    for here, ds in zip(axes, flows.values(), strict=True):
        z = ds["z"].to_numpy()[:, ds["kind"].to_numpy() == kind]
        assert drawn(here) == sorted(z.T.tolist())
        assert here.get_ylim() == axes[0].get_ylim()
    assert symbol in figure.get_supylabel()


def test_a_coordinate_has_one_colour_in_all_panels_darker_if_it_becomes_active_earlier() -> None:
    """Larger ones become active earlier; those that stay negligible are grey."""
    colours: dict[float, set[tuple[float, ...]]] = {}
    for kind in ("kq", "vo"):
        for axes in panels_of(entries_by_alpha(runs(), kind))[1:]:
            for line in axes.lines:
                if line.get_color() != IDLE:
                    size = round(abs(line.get_ydata()[-1]), 3)
                    colours.setdefault(size, set()).add(line.get_color())
    assert set(colours) == {round(abs(goal), 3) for goal in GOAL if abs(goal) > 0.1}
    assert {len(shades) for shades in colours.values()} == {1}
    by_size = [colours[size].pop() for size in sorted(colours, reverse=True)]
    lightness = [float(np.dot(shade[:3], (0.3, 0.6, 0.1))) for shade in by_size]
    assert lightness == sorted(lightness) and len(set(by_size)) == len(by_size)


def test_a_coordinate_that_leaves_and_returns_counts_once() -> None:
    ds = flow_run(GOAL, -8.0)
    again = ds.isel(crossing=[0, 0, 1, 0, 2])
    again["crossing_entered"][1] = 0
    (once, _), (twice, _) = (entries_by_alpha({-8.0: run}, "vo").axes for run in (ds, again))
    assert [x.get_color() for x in once.lines] == [x.get_color() for x in twice.lines]


def test_a_run_in_which_nothing_becomes_active_is_all_grey() -> None:
    ds = flow_run(GOAL, -8.0, end=0.1)
    figure = entries_by_alpha({-8.0: ds}, "vo")
    assert len(figure.axes) == 1  # no colour bar
    assert not coloured(figure.axes[0]) and len(figure.axes[0].lines) == P


def test_seven_panels_have_time_labels_at_the_foot_of_each_column() -> None:
    ds = flow_run(GOAL, -8.0)
    figure = loss_by_alpha({-float(power): ds for power in range(1, 8)})
    figure.draw_without_rendering()
    shown = [axes.xaxis.get_tick_params()["labelbottom"] for axes in figure.axes]
    assert shown == [False] * 4 + [True] * 3
