"""Figures of the products of attention heads, for any run that tracked them."""

from collections.abc import Sequence

import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rankscope.figures.over_time import draw_heat_map, draw_shades, draw_spectrum
from rankscope.figures.training import select, times_of

TITLES = {"kq": "queries-keys", "vo": "values-output", "lora": "LoRA"}
MEASURES = {
    "product_singular_values": "product",
    "product_change_singular_values": "change of the product",
}
MOST_LABELS = 40


def head_ranks_over_time(ds: xr.Dataset) -> Figure:
    """Draw heat maps of the stable rank of every head's products, and of their changes.

    Rows are heads in model order. Each column of panels has one colour scale: how many directions
    the product has, and how many its change since the reference has (boix2023, fig. 4).
    """
    kinds = product_kinds(ds)
    measures = _measures(ds)
    heads = max(len(products_of(ds, kind)) for kind in kinds)
    height = min(max(2.4, 1.2 + 0.14 * heads), 6.0)
    figure = Figure(figsize=(5.5 * len(measures), height * len(kinds)), layout="constrained")
    grid = figure.subplots(len(kinds), len(measures), squeeze=False)
    for column, spectra in enumerate(measures):
        ranks = ds.rankscope.stable_rank(of=spectra).transpose("product", "step")
        low, high = float(ranks.min()), float(ranks.max())
        for row, kind in enumerate(kinds):
            axes, names = grid[row, column], products_of(ds, kind)
            values = ranks.sel(product=names).to_numpy()
            mesh = draw_heat_map(axes, values, times_of(ds), lowest=low, highest=high)
            axes.set(title=f"{TITLES.get(kind, kind)}: {MEASURES[spectra]}")
            _label_heads(axes, [name.removesuffix(f".{kind}") for name in names], column)
        figure.colorbar(mesh, ax=list(grid[:, column]), label="stable rank")
    return figure


def product_spectra_over_time(ds: xr.Dataset, product: str) -> Figure:
    """Draw the singular values of one head's product, and of its change, as lines over time."""
    measures = _measures(ds)
    selected = select(ds, "product", product)
    figure = Figure(figsize=(5.5 * len(measures), 4), layout="constrained")
    for axes, spectra in zip(
        figure.subplots(1, len(measures), squeeze=False)[0], measures, strict=True
    ):
        values = selected.rankscope.largest(of=spectra).expand_dims("seed")
        draw_shades(axes, draw_spectrum(axes, values, times_of(ds)))
        axes.set(title=f"{product}, {MEASURES[spectra]}", ylabel="singular value")
    return figure


def _measures(ds: xr.Dataset) -> list[str]:
    stored = {str(name).replace("leading_values", "singular_values") for name in ds}
    return [name for name in MEASURES if name in stored]


def product_kinds(ds: xr.Dataset) -> list[str]:
    """Return the kinds of products in a run, such as "kq" and "vo"; ValueError if it has none."""
    if not ds.sizes.get("product"):
        raise ValueError(
            "this run has no products; track a model with attention heads, and products=True"
        )
    return list(dict.fromkeys(map(str, ds["product_kind"].to_numpy())))


def products_of(ds: xr.Dataset, kind: str) -> list[str]:
    """Return the names of the products of one kind, in model order."""
    names = ds["product"].to_numpy()[ds["product_kind"].to_numpy() == kind]
    return [str(name) for name in names]


def _label_heads(axes: Axes, names: Sequence[str], column: int) -> None:
    """Name the rows of the first column, or some of them where names would overlap."""
    ticks = range(0, len(names), max(1, -(-len(names) // MOST_LABELS)))
    labels = [names[tick] for tick in ticks] if column == 0 else []
    axes.set_yticks(ticks if column == 0 else [], labels=labels, fontsize="x-small")
