import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh

from lab.papers.yunis2024.figures.closed_form import training
from lab.papers.yunis2024.figures.test_networks import cells, panels
from rankscope.figures.seeds import Setting
from rankscope.lab.papers.yunis2024.figures.sweeps import alignment_by_decay, spectra_by_decay


def sweep(*decays: float) -> list[Setting]:
    return [
        Setting(
            f"weight decay {decay:g}",
            tuple(training(seed, decay=decay).isel(pair=[0, 1]) for seed in range(3)),
            ("no norm is left of what it was at the start" if decay == 10 else "",) * 3,
        )
        for decay in decays
    ]


def scales(axes: list[Axes]) -> set[tuple[float, float]]:
    meshes = (each for panel in axes for each in panel.collections if isinstance(each, QuadMesh))
    return {tuple(mesh.get_clim()) for mesh in meshes}


def test_a_row_for_each_decay_headed_by_it() -> None:
    figure = spectra_by_decay({"VGG": sweep(0.0, 1.0, 10.0), "LSTM": sweep(0.0, 1.0)})
    vgg, lstm = (panels(part.axes) for part in figure.subfigs)
    assert (len(vgg), len(lstm)) == (6, 4)
    headings = [axes.get_title(loc="left") for axes in vgg]
    assert headings[:2] == ["weight decay 0, 3 seeds", "weight decay 1, 3 seeds"]
    assert headings[2].startswith("weight decay 10, 3 seeds, collapsed: no norm is left")
    assert figure.subfigs[0].get_suptitle() == "VGG\nlayers.1.weight, and all matrices"


def test_spectra_and_ranks_of_each_decay() -> None:
    figure = spectra_by_decay({"VGG": sweep(0.0, 1.0)})
    left, right = panels(figure.subfigs[0].axes)[:2], panels(figure.subfigs[0].axes)[2:]
    for axes, heat_map, decay in zip(left, right, (0.0, 1.0), strict=True):
        ds = training(1, decay=decay)
        shown = ds["singular_values"].sel(matrix="layers.1.weight").to_numpy()
        np.testing.assert_allclose([line.get_ydata() for line in axes.lines], shown.T[::-1])
        ranks = ds.rankscope.normalized_effective_rank().to_numpy()[:, :3]
        np.testing.assert_allclose(cells(heat_map), ranks.T)


def test_the_rows_of_a_network_share_colours_that_span_all_of_them() -> None:
    figure = spectra_by_decay({"VGG": sweep(0.0, 10.0)})
    maps = panels(figure.subfigs[0].axes)[2:]
    values = np.concatenate([cells(axes) for axes in maps])
    assert scales(maps) == {(float(values.min()), float(values.max()))}
    figure = alignment_by_decay({"VGG": sweep(0.0, 10.0)})
    left, right = (panels(figure.subfigs[0].axes)[j : j + 2] for j in (0, 2))
    for column in (left, right):
        highest = max(float(np.nanmax(cells(axes))) for axes in column)
        assert scales(column) == {(0.0, highest)}


def test_alignment_over_background_is_on_one_scale_around_chance() -> None:
    drawn = panels(alignment_by_decay({"VGG": sweep(0.0, 10.0)}).subfigs[0].axes)
    every, relative = drawn[2:4], drawn[6:]
    for raw, ratios in zip(every, relative, strict=True):
        np.testing.assert_allclose(cells(ratios), cells(raw) / 0.02)
    farthest = max(float(cells(axes).max()) for axes in relative)
    ((low, high),) = scales(relative)
    np.testing.assert_allclose((low, high), (1 / farthest, farthest))


def test_alignment_has_levels_under_each_row_on_one_height() -> None:
    figure = alignment_by_decay({"VGG": sweep(0.0, 10.0)})
    drawn = panels(figure.subfigs[0].axes)
    assert len(drawn) == 8
    levels = drawn[4:6]
    for axes, decay in zip(levels, (0.0, 10.0), strict=True):
        a = training(1, decay=decay)["alignment"].to_numpy()[:, 1, :10].mean(-1)
        np.testing.assert_allclose(axes.lines[3].get_ydata(), a)
        np.testing.assert_allclose(axes.lines[1].get_ydata(), 2 * a)
    assert len({axes.get_ylim() for axes in levels}) == 1
    assert levels[0].get_ylim()[0] == 0


def test_a_run_that_ended_early_leaves_its_place_empty() -> None:
    settings = sweep(0.0, 10.0)
    settings[1] = settings[1]._replace(runs=tuple(ds.isel(step=[0, 1]) for ds in settings[1].runs))
    figure = spectra_by_decay({"VGG": settings})
    late = cells(panels(figure.subfigs[0].axes)[3])
    assert late.shape == (3, 6)
    assert np.isnan(late).all(axis=0).tolist() == [False, False, True, True, True, True]
