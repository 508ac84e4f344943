import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lab.papers.boix2023.toy_runs import perturbation_run, target
from rankscope.lab.papers.boix2023.figures.perturbation import distances_over_size, perturbations

GOAL = target(5, 4)


def trajectories(axes: Axes, style: str) -> list[list[float]]:
    chosen = (line for line in axes.lines if line.get_linestyle() == style)
    return sorted(line.get_ydata().tolist() for line in chosen)


def by_title(figure: Figure) -> dict[str, Axes]:
    return {axes.get_title(loc="left"): axes for axes in figure.axes if axes.get_title(loc="left")}


def test_trials_of_a_kind_have_a_panel_each_with_noise_and_time() -> None:
    nine = by_title(perturbations(perturbation_run(GOAL), "plateau"))
    times = ("0.8", "2.2", "4.5")  # the first, the middle and the last of five
    assert list(nine) == [f"{n} noise, time {t}" for n in ("independent", "tied") for t in times]
    ten = by_title(perturbations(perturbation_run(GOAL), "newly active"))
    assert list(ten) == [f"independent noise, time {t}" for t in times]


def test_perturbed_lines_are_solid_and_unperturbed_dashed() -> None:
    ds = perturbation_run(GOAL)
    panel = by_title(perturbations(ds, "plateau"))["tied noise, time 2.2"]
    active = np.flatnonzero(1 / abs(GOAL) < 2.2)
    assert 0 < len(active) < len(GOAL)
    for name, style in (("perturbed_z", "-"), ("unperturbed_z", "--")):
        want = ds[name].isel(trial=7).to_numpy()[:, active].T.tolist()
        assert trajectories(panel, style) == sorted(want)


def test_a_coordinate_has_one_colour_in_all_trials() -> None:
    colours: dict[float, set[object]] = {}
    for axes in by_title(perturbations(perturbation_run(GOAL), "plateau")).values():
        for line in (line for line in axes.lines if line.get_linestyle() == "-"):
            colours.setdefault(round(line.get_ydata()[-1], 1), set()).add(line.get_color())
    assert {len(shades) for shades in colours.values()} == {1}
    assert len(set.union(*colours.values())) == len(colours) > 2


def test_distances_are_relative_to_the_size_at_the_end_with_the_bound() -> None:
    ds = perturbation_run(GOAL)
    lower = perturbations(ds, "newly active").axes[3:]
    assert len(lower) == 3
    for axes, trial in zip(lower, (10, 12, 14), strict=True):
        distance, bound = (line.get_ydata() for line in axes.lines)
        size = np.sqrt(np.nansum(ds["unperturbed_z"][trial, -1] ** 2))
        np.testing.assert_allclose(distance, ds["distance"][trial] / size)
        assert set(bound) == {0.05} and axes.get_yscale() == "log"


def test_a_coordinate_that_starts_near_zero_does_not_blow_up_the_distance() -> None:
    ds = perturbation_run(GOAL)
    ds["unperturbed_z"][:, 0] *= 1e-9  # over time it grows to its size
    size = np.sqrt((ds["unperturbed_z"].isel(time=-1) ** 2).sum("coordinate"))
    np.testing.assert_allclose(distances_over_size(ds)[:, 0], ds["distance"][:, 0] / size)


def test_a_perturbation_that_grows_stays_in_view() -> None:
    ds = perturbation_run(GOAL)
    axes = perturbations(ds, "newly active").axes[3]
    assert axes.get_ylim()[0] == 1e-4 and axes.get_ylim()[1] >= 0.1
    assert axes.get_yticks().tolist() == [1e-4, 0.05]
    ds["distance"][10, -1] = 200 * abs(GOAL).max()
    axes = perturbations(ds, "newly active").axes[3]
    assert axes.get_ylim()[1] > 100 and axes.get_yticks().tolist() == [1e-4, 0.05, 1, 100]


def test_a_new_noise_starts_a_row_and_columns_end_with_time_labels() -> None:
    ds = perturbation_run(GOAL).isel(trial=slice(0, 7))  # 5 independent, 2 tied
    figure = perturbations(ds, "plateau")
    figure.draw_without_rendering()
    lower = [axes for axes in figure.axes if not axes.get_title(loc="left")]
    shown = [axes.xaxis.get_tick_params()["labelbottom"] for axes in lower]
    assert shown == [False] * 2 + [True] * 3
    names = [label.get_text() for label in lower[-1].get_xticklabels()]
    assert names == ["0", "1", "10", "100", "1000"]


def test_a_kind_the_run_lacks_is_named() -> None:
    ds = perturbation_run(GOAL).isel(trial=slice(0, 10))
    with pytest.raises(ValueError, match="no trial of kind 'newly active'; it has plateau"):
        perturbations(ds, "newly active")
