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


def runs() -> dict[float | int, xr.Dataset]:
    return {-1000: flow_run(GOAL, -1000.0), -1: flow_run(GOAL, -1.0), -8: flow_run(GOAL, -8.0)}


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
    np.testing.assert_array_equal(axes[2].lines[0].get_ydata(), diagonal["loss"])
    np.testing.assert_array_equal(axes[5].lines[0].get_ydata(), full["loss"])
    assert [here.get_title(loc="left") for here in axes] == [f"({c})" for c in "abcdef"]
    alphas = [here.get_title().partition(", ")[2] for here in axes]
    assert alphas == [r"$\alpha$ = $10^{-8}$"] * 3 + [r"$\alpha$ = $10^{-4}$"] * 3
    assert "W_V W_O" in axes[0].get_ylabel() and "entries" in axes[0].get_ylabel()
    assert "W_K W_Q" in axes[4].get_ylabel() and "singular values" in axes[4].get_ylabel()
    assert all(r"t \,/\, \log(1/\alpha)" in here.get_xlabel() for here in axes)


def test_either_half_of_fig_3_stands_alone() -> None:
    first = panels_of(toy_attention(flow_run(GOAL, -8.0)))
    assert len(first) == 3 and "entries" in first[0].get_ylabel()
    second = panels_of(toy_attention(full=full_run(SIZES)))
    assert len(second) == 3 and "singular values" in second[0].get_ylabel()
    with pytest.raises(ValueError, match="got neither"):
        toy_attention()


def test_values_too_small_to_be_seen_are_grey() -> None:
    vo = panels_of(toy_attention(full=full_run(SIZES)))[0]
    assert sorted(values[-1] for values in coloured(vo)) == pytest.approx([0.5, 2.0], rel=1e-3)


def test_fig_6_has_a_panel_for_each_alpha_from_the_largest() -> None:
    given = runs()
    figure = loss_by_alpha(given)
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == [rf"$\alpha$ = $10^{{{power}}}$" for power in (-1, -8, -1000)]
    for axes, power in zip(figure.axes, (-1, -8, -1000), strict=True):
        limit, own = axes.lines
        np.testing.assert_array_equal(
            own.get_xydata().T, [given[power]["time"], given[power]["loss"]]
        )
        np.testing.assert_array_equal(limit.get_ydata(), given[-1000]["loss"])
        assert limit.get_color() != own.get_color()
        assert axes.get_ylim() == figure.axes[0].get_ylim()
    assert "10^{-1000}" in figure.legends[0].get_texts()[0].get_text()


@pytest.mark.parametrize(("kind", "symbol"), [("kq", "W_K W_Q"), ("vo", "W_V W_O")])
def test_figs_7_and_8_draw_the_entries_of_one_product(kind: str, symbol: str) -> None:
    given = runs()
    figure = entries_by_alpha(given, kind)
    axes = panels_of(figure)
    assert len(axes) == 3
    for here, power in zip(axes, (-1, -8, -1000), strict=True):
        z = given[power]["z"].to_numpy()[:, given[power]["kind"].to_numpy() == kind]
        assert drawn(here) == sorted(z.T.tolist())
        assert here.get_ylim() == axes[0].get_ylim()
    assert symbol in figure.get_supylabel()


def test_a_coordinate_has_one_colour_in_all_panels_and_none_if_it_stays_negligible() -> None:
    given = runs()
    large = {round(goal, 3) for goal in GOAL if abs(goal) > 0.1}
    found = {}
    for kind in ("kq", "vo"):
        for axes in panels_of(entries_by_alpha(given, kind))[1:]:
            for line in axes.lines:
                if line.get_color() != IDLE:
                    found.setdefault(round(line.get_ydata()[-1], 3), set()).add(line.get_color())
    assert set(found) == large
    assert {len(colours) for colours in found.values()} == {1}
    assert len(set.union(*found.values())) == len(large)


def test_earlier_activations_are_darker() -> None:
    lightness = {}
    for kind in ("kq", "vo"):
        for axes in panels_of(entries_by_alpha(runs(), kind)):
            for line in axes.lines:
                if line.get_color() != IDLE:
                    shade = float(np.dot(line.get_color()[:3], (0.3, 0.6, 0.1)))
                    lightness[round(abs(line.get_ydata()[-1]), 1)] = shade
    by_size = [lightness[size] for size in sorted(lightness, reverse=True)]
    assert by_size == sorted(by_size)


def test_a_coordinate_that_leaves_and_returns_counts_once() -> None:
    ds = flow_run(GOAL, -8.0)
    again = ds.isel(crossing=[0, 0, 1, 0, 2])
    again["crossing_entered"][1] = 0
    for once, twice in zip(
        panels_of(toy_attention(ds)), panels_of(toy_attention(again)), strict=True
    ):
        assert [x.get_color() for x in once.lines] == [x.get_color() for x in twice.lines]


def test_a_run_in_which_nothing_becomes_active_is_all_grey() -> None:
    ds = flow_run(GOAL, -8.0, end=0.1)
    figure = entries_by_alpha({-8: ds}, "vo")
    assert len(figure.axes) == 1  # no colour bar
    assert not coloured(figure.axes[0]) and len(figure.axes[0].lines) == P


def test_seven_panels_have_time_labels_at_the_foot_of_each_column() -> None:
    ds = flow_run(GOAL, -8.0)
    figure = loss_by_alpha({-float(power): ds for power in range(1, 8)})
    figure.draw_without_rendering()
    shown = [axes.xaxis.get_tick_params()["labelbottom"] for axes in figure.axes]
    assert shown == [False] * 4 + [True] * 3


def test_alpha_in_place_of_its_logarithm_is_refused() -> None:
    with pytest.raises(ValueError, match=r"log10\(alpha\), a negative number, got \[1e-08\]"):
        loss_by_alpha({1e-8: flow_run(GOAL, -8.0)})
    with pytest.raises(ValueError, match="got no run"):
        entries_by_alpha({}, "kq")


def test_a_kind_the_run_lacks_is_named() -> None:
    with pytest.raises(ValueError, match="no coordinate of kind 'z'; it has kq, vo"):
        entries_by_alpha(runs(), "z")
