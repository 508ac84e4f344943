"""The map of needed ranks, on runs whose heads need chosen ranks."""

from matplotlib.axes import Axes
from matplotlib.colors import to_hex

from lab.papers.findings.cut_runs import NONE, cut_run, key
from rankscope.figures.style import MISSING
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.papers.findings.figures.needed_rank import needed_rank


def texts(axes: Axes) -> dict[tuple[int, int], list[str]]:
    """Texts by the row and column of their cell."""
    by_cell: dict[tuple[int, int], list[str]] = {}
    for text in axes.texts:
        x, y = text.get_position()
        by_cell.setdefault((round(y), round(x)), []).append(text.get_text())
    return by_cell


def test_each_cell_has_the_median_and_the_range_of_its_seeds() -> None:
    runs = Runs(
        {
            key(1.0, 0.0): {s: cut_run((r, 8, NONE)) for s, r in enumerate((1, 16, 4))},
            key(0.1, 0.0): {s: cut_run((2, 2, 2)) for s in range(3)},
            key(1.0, 0.1): {s: cut_run((4, 4, 4), collapsed=s > 0) for s in range(3)},
            key(0.1, 0.1): {0: cut_run((1, 1, 1), collapsed=True)},
        }
    )
    figure = needed_rank(runs)
    kq, vo, both = figure.axes
    assert texts(kq) == {(0, 0): ["2"], (0, 1): ["4", "1 to 16"], (1, 1): ["4"]}
    assert texts(vo)[0, 1] == ["8"] and texts(both)[0, 1] == ["> 128"]
    for axes in figure.axes:
        assert [label.get_text() for label in axes.get_xticklabels()] == ["0.1", "1"]
    assert [label.get_text() for label in kq.get_yticklabels()] == ["0", "0.1"]
    (image,) = kq.images
    cell = image.cmap(image.norm(image.get_array()))[1, 0]
    assert to_hex(cell) == to_hex(MISSING)


def test_larger_ranks_are_lighter_in_all_panels_alike() -> None:
    runs = Runs({key(1.0, 0.0): {0: cut_run((1, 8, 128))}})
    lightness = [
        sum(axes.images[0].cmap(axes.images[0].norm(axes.images[0].get_array()))[0, 0][:3])
        for axes in needed_rank(runs).axes
    ]
    assert lightness == sorted(lightness) and len(set(lightness)) == 3
