"""Symbols and labels on the axes and in the legends of the paper's figures."""

import math

from matplotlib.lines import Line2D

from rankscope.figures.style import BAND, DARK

SYMBOLS = {"kq": r"$W_K W_Q^{\top}$", "vo": r"$W_V W_O^{\top}$", "z": "$z$"}
RESCALED_TIME = r"rescaled time $t \,/\, \log(1/\alpha)$"


def power_of_ten(exponent: float | int) -> str:
    """Return 10 to the `exponent` as TeX; the number itself may be too small for a float."""
    return f"$10^{{{exponent:g}}}$"


def log_inverse(log10_alpha: float | int) -> float:
    """Return the natural log(1/alpha), by which times and log coordinates are rescaled."""
    return -log10_alpha * math.log(10)


def band_of_heads() -> Line2D:
    """Return the legend entry for bands over attention heads."""
    return Line2D([], [], color=DARK, alpha=BAND, linewidth=7, label="band: std over heads")
