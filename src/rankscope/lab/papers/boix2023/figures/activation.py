"""How far activation times are from Algorithm 1's as alpha falls (boix2023, claim B3)."""

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter, NullLocator

from rankscope.figures.style import DARK, draw_order_bar, shades
from rankscope.lab.papers.boix2023.figures.axes import log_inverse, power_of_ten


def activation_errors(errors: xr.Dataset) -> Figure:
    """Draw the relative error |t_k - T_k| / T_k of each stage against 1 / log(1/alpha).

    errors: `activation_error` and `resolved` over (alpha, stage), `log10_alpha` over alpha; NaN
    where the flow did not reach a stage. Unresolved stages are hollow. The dashed guide of slope 1
    is error = c / log(1/alpha), with the median c of the resolved stages.
    """
    log10_alpha = [float(value) for value in errors["log10_alpha"].to_numpy()]
    x = np.array([1 / log_inverse(value) for value in log10_alpha])
    error = errors["activation_error"].transpose("alpha", "stage").to_numpy()
    resolved = errors["resolved"].transpose("alpha", "stage").to_numpy().astype(bool)
    figure = Figure(figsize=(6.5, 5), layout="constrained")
    axes = figure.add_subplot(xscale="log", yscale="log")
    for j, colour in enumerate(shades(error.shape[1])):
        axes.plot(x, error[:, j], color=colour, linewidth=0.7, alpha=0.5)
        for shown, face in ((resolved[:, j], colour), (~resolved[:, j], "white")):
            axes.plot(x[shown], error[shown, j], "o", color=colour, markerfacecolor=face, ms=5)
    axes.plot(x, slope_one(x, error, resolved), color="black", linewidth=1, linestyle="--")
    axes.set(xlabel=r"$1 \,/\, \log(1/\alpha)$", ylabel=r"relative error $|t_k - T_k| \,/\, T_k$")
    axes.xaxis.set_minor_formatter(NullFormatter())  # they would overlap on half a decade
    above = axes.secondary_xaxis("top")
    above.set_xticks(x, labels=[power_of_ten(value) for value in log10_alpha], fontsize="small")
    above.xaxis.set_minor_locator(NullLocator())
    above.set_xlabel(r"$\alpha$")
    draw_order_bar(figure, [axes], errors.sizes["stage"], "stage $k$")
    lines = [
        Line2D([], [], color=DARK, marker="o", linestyle="", label="resolved"),
        Line2D([], [], color=DARK, marker="o", mfc="white", linestyle="", label="not resolved"),
        Line2D([], [], color="black", linewidth=1, linestyle="--", label="slope 1"),
    ]
    figure.legend(handles=lines, loc="outside lower center", ncols=3, frameon=False)
    return figure


def slope_one(
    x: Float[np.ndarray, " alpha"],
    error: Float[np.ndarray, "alpha stage"],
    resolved: Bool[np.ndarray, "alpha stage"],
) -> Float[np.ndarray, " alpha"]:
    factors = error / x[:, None]
    known = ~np.isnan(error)
    chosen = known & resolved if (known & resolved).any() else known
    return x * np.median(factors[chosen]) if chosen.any() else np.full_like(x, np.nan)
