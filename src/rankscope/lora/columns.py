"""Columns of the tables: what each says of the spectrum of a change."""

import math

import pandas as pd

from rankscope import metrics
from rankscope.lora.spectrum import Spectrum

Row = dict[str, object]


def shape_column(m: int, n: int) -> Row:
    """Return the shape, outputs x inputs."""
    return {"shape": f"{m} x {n}"}


def rank_columns(spectrum: Spectrum) -> Row:
    """Return norm, stable and effective rank, and directions at 50, 90 and 99% of the energy."""
    half, most, nearly_all = spectrum.energy_ranks()
    return {
        "norm": spectrum.norm,
        "stable_rank": float(metrics.stable_rank(spectrum.S)),
        "effective_rank": float(metrics.effective_rank(spectrum.S)),
        "r50": half,
        "r90": most,
        "r99": nearly_all,
    }


def approximation_columns(spectrum: Spectrum, rank: int | None) -> Row:
    """Return what is known of a change, and the rank and error of its approximation.

    Without a rank, the change gets no factors.
    """
    return {
        **shape_column(spectrum.m, spectrum.n),
        **_noise_columns(spectrum),
        "rank": rank,
        "error": math.nan if rank is None else spectrum.error(rank),
    }


def _noise_columns(spectrum: Spectrum) -> Row:
    """Return norm, energy ranks, noise floor, and how many singular values are above it."""
    half, most, nearly_all = spectrum.energy_ranks()
    all_above = len(spectrum.S) == spectrum.signal and not spectrum.complete
    return {
        "norm": spectrum.norm,
        "r50": half,
        "r90": most,
        "r99": nearly_all,
        "noise": spectrum.noise,
        "signal": f">={spectrum.signal}" if all_above else spectrum.signal,
    }


def table_of(rows: dict[str, Row]) -> pd.DataFrame:
    """Return one row per matrix."""
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("matrix")
    if "rank" in table:  # None stays, and the others stay whole numbers
        table["rank"] = pd.Series({name: row["rank"] for name, row in rows.items()}, dtype=object)
    return table
