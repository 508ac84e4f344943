"""Figure of one snapshot: the spectra of all matrices at once."""

import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from rankscope.figures.over_time import draw_cells, label_rows
from rankscope.figures.style import evenly
from rankscope.figures.training import heat_map_height, whole_matrices

COLUMNS = 50  # positions in a spectrum
MOST_ROWS = 200
SMALLEST = -3.0  # log10 of the ratio at the dark end of the colours


def spectra_by_matrix(ds: xr.Dataset) -> Figure:
    """Draw the spectra of all whole matrices at the last snapshot, one row each, as a heat map.

    From left to right the singular values fall. Colours show their ratio to the largest: a row
    that is dark early has few large values. The zero matrix is grey. Of more than 200 matrices some
    are left out, at equal distances. A run that keeps leading values shows those.
    """
    names = whole_matrices(ds)
    names = [names[row] for row in evenly(len(names), MOST_ROWS)]
    snapshot = ds.isel(step=-1).sel(matrix=names)
    figure = Figure(figsize=(6.5, heat_map_height(len(names))), layout="constrained")
    axes = figure.add_subplot()
    full = "singular_values" in ds
    S = snapshot["singular_values" if full else "leading_values"].to_numpy()
    widths = np.minimum(snapshot["m"].to_numpy(), snapshot["n"].to_numpy())
    rows = _log_ratios(S, np.minimum(widths, S.shape[1]))
    edges = np.arange(COLUMNS + 1) - 0.5
    mesh = draw_cells(axes, rows, edges, Normalize(SMALLEST, 0.0))
    label_rows(axes, names)
    ticks = np.linspace(0, COLUMNS, 5)
    axes.set_xticks(ticks - 0.5, labels=[f"{tick / COLUMNS:.0%}" for tick in ticks])
    values = "spectrum" if full else f"spectrum's leading {S.shape[1]} values"
    axes.set_xlabel(f"place in the {values}, largest value first")
    axes.set_title(f"step {int(snapshot['step'])}", fontsize="medium")
    bar = figure.colorbar(mesh, label="singular value / largest", extend="min")
    bar.set_ticks(
        range(int(SMALLEST), 1), labels=[f"1e{power}" for power in range(int(SMALLEST), 1)]
    )
    return figure


def _log_ratios(
    S: Float[np.ndarray, "matrix k"], widths: np.ndarray
) -> Float[np.ndarray, "matrix column"]:
    """Return log10 of each spectrum over its largest value, at evenly spread places."""
    places = (np.arange(COLUMNS)[None, :] * widths[:, None]) // COLUMNS
    values = np.take_along_axis(S, places, axis=1).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log10(values / values[:, :1])
