"""Ranks that an extraction would choose, before anything is written."""

from typing import Any

import pandas as pd
from torch import nn

from rankscope.checkpoints import Checkpoint
from rankscope.checkpoints.files import StrPath
from rankscope.lora.changes import MAX_RANK, known_directions, open_changes, spectra_of
from rankscope.lora.columns import approximation_columns, table_of
from rankscope.lora.placement import left_out, placement
from rankscope.lora.ranks import Rounding, choose_ranks, parameters, total_squared_error


def plan(
    base: StrPath | Checkpoint,
    tuned: StrPath | Checkpoint,
    *,
    max_rank: int | None = MAX_RANK,
    round_to: Rounding = 1,
    model: nn.Module | None = None,
    prefix: str = "",
    matrices_only: bool = False,
    **rules: Any,
) -> pd.DataFrame:
    """Return the table of `extract` without writing an adapter: one row per matrix that changed.

    The columns are shape, norm, directions at 50, 90 and 99% of the energy, noise floor, directions
    above it, rank and predicted error. Rank is None, and error NaN, where `extract` stores a matrix
    whole or leaves it out. `attrs` has the number of parameters of all factors, the relative error
    of all factored changes together, and why tensors are left out, by name.

    model, prefix, matrices_only: as in `extract`.
    rules: energy, error, noise or budget, as `choose_ranks` takes them.
    """
    changes = open_changes(base, tuned, model=model, prefix=prefix)
    spectra = dict(spectra_of(changes, leading=known_directions(max_rank)))
    places = placement(changes, matrices_only=matrices_only)
    factored = {reading.name for reading in places.factored}
    chosen = {name: spectrum for name, spectrum in spectra.items() if name in factored}
    ranks = choose_ranks(chosen, max_rank=max_rank, round_to=round_to, **rules)
    table = table_of({n: approximation_columns(s, ranks.get(n)) for n, s in spectra.items()})
    total = total_squared_error(chosen, dict.fromkeys(chosen, 0))
    missed = total_squared_error(chosen, ranks)
    table.attrs["parameters"] = parameters(chosen, ranks)
    table.attrs["error"] = (missed / total) ** 0.5 if total else 0.0
    table.attrs["left_out"] = left_out(changes, places)
    return table
