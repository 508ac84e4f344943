"""Figures of kept runs as PNG files that are small enough to be kept themselves."""

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image

from rankscope.figures.style import FIGURE_DPI
from rankscope.lab.findings import remarks_on
from rankscope.lab.results.judging import FIGURES, Datasets, Place, shelf_of
from rankscope.lab.shelf import with_whole_seeds
from rankscope.store.files import replace_file

COLOURS = 256  # of a palette, a third of the bytes; heat maps have no more


def draw_place(place: Place, datasets: Datasets, results: Path) -> Iterator[tuple[str, str]]:
    """(path within the results, "") of each figure drawn, ("", remark) of what could not be."""
    shelf = shelf_of(place, datasets)
    for name, maker in place.figures.items():
        attempt = with_whole_seeds(maker, shelf, group=place.group)
        if attempt.found is not None:
            path = f"{place.name}/{FIGURES}/{name}.png"
            (results / path).parent.mkdir(parents=True, exist_ok=True)
            replace_file(results / path, png(attempt.found), durable=False)
            yield path, ""
        else:
            yield "", f"{place.name}: {' '.join(remarks_on(name, attempt))}"


def png(figure: Figure) -> bytes:
    """The figure with a palette of its own."""
    drawn, packed = BytesIO(), BytesIO()
    figure.savefig(drawn, format="png", dpi=FIGURE_DPI)
    picture = Image.open(drawn).convert("RGB")
    picture.quantize(COLOURS, method=Image.Quantize.FASTOCTREE).save(
        packed, format="png", optimize=True
    )
    return packed.getvalue()
