from io import BytesIO

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from rankscope.figures.style import COLOURS, FIGURE_DPI
from rankscope.lab.results.drawing import png


def test_a_palette_is_smaller_and_looks_the_same() -> None:
    figure = Figure(figsize=(4, 3))
    axes = figure.add_subplot()
    axes.imshow(np.add.outer(np.arange(40), np.arange(60)), cmap=COLOURS)
    axes.plot([0, 59], [0, 39], color="red")
    plain = BytesIO()
    figure.savefig(plain, format="png", dpi=FIGURE_DPI)
    packed = png(figure)
    assert len(packed) < 0.7 * len(plain.getvalue()) and packed == png(figure)
    before, after = (
        np.asarray(Image.open(file).convert("RGB"), float) for file in (plain, BytesIO(packed))
    )
    assert before.shape == after.shape
    assert np.abs(before - after).mean() < 4  # of 255
