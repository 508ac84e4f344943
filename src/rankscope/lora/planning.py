"""Ranks that an extraction would choose, before anything is written."""

import math
from typing import Any

import pandas as pd

from rankscope.checkpoints import Checkpoint
from rankscope.checkpoints.files import StrPath
from rankscope.lora.changes import MAX_RANK, open_changes, spectra_of
from rankscope.lora.columns import noise_columns, shape_column, table_of
from rankscope.lora.placement import left_out, placement
from rankscope.lora.ranks import Rounding, choose_ranks, parameters, rounded_up, total_squared_error


def plan(
    base: StrPath | Checkpoint,
    tuned: StrPath | Checkpoint,
    *,
    max_rank: int | None = MAX_RANK,
    round_to: Rounding = 1,
    **rules: Any,
) -> pd.DataFrame:
    """Return the table of `extract` without writing an adapter: one row per matrix that changed.

    The columns are shape, norm, directions at 50, 90 and 99% of the energy, noise floor, directions
    above it, rank and predicted error. Rank is None, and error NaN, where `extract` stores a matrix
    whole or leaves it out. `attrs` has the number of parameters of all factors, the relative error
    of all factored changes together, and why tensors are left out, by name.

    rules: energy, error, noise or budget, as `choose_ranks` takes them.
    """
    both = open_changes(base, tuned)
    known = None if max_rank is None else max(MAX_RANK, rounded_up(max_rank, round_to))
    spectra = dict(spectra_of(both, leading=known))
    places = placement(both)
    factored = {reading.name for reading in places.factored} & spectra.keys()
    chosen = {name: spectrum for name, spectrum in spectra.items() if name in factored}
    ranks = choose_ranks(chosen, max_rank=max_rank, round_to=round_to, **rules)
    rows = {
        name: {
            **shape_column(spectrum.m, spectrum.n),
            **noise_columns(spectrum),
            "rank": 0,
            "error": spectrum.error(ranks[name]) if name in ranks else math.nan,
        }
        for name, spectrum in spectra.items()
    }
    table = table_of(rows)
    table["rank"] = pd.Series({name: ranks.get(name) for name in rows}, dtype=object)
    total = sum(spectrum.norm**2 for spectrum in chosen.values())
    missed = total_squared_error(chosen, ranks)
    table.attrs["parameters"] = parameters(chosen, ranks)
    table.attrs["error"] = (missed / total) ** 0.5 if total else 0.0
    table.attrs["left_out"] = left_out(both, places)
    return table
