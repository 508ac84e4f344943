"""Tables of single runs: how training ended, what it cost, where it was made."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import xarray as xr

from rankscope.lab.judging.available_runs import AvailableRuns
from rankscope.lab.judging.verdict import Cell, Table
from rankscope.lab.running.run_key import RunKey
from rankscope.lab.training.outcome import collapsed

# Attributes that `provenance.origin` stores and that may differ between runs.
ORIGIN = ("rankscope", "commit", "torch", "python", "device")
NUMBERS = {
    "paper's decay": "paper_decay",
    "decay": "decay",
    "sum of rate x decay": "decay_sum",
    "parameters": "parameters",
}


@dataclass(frozen=True)
class RunRecord:
    """A run with one seed. missing: why it is not there, or "". cells: column -> text."""

    key: RunKey
    seed: int
    missing: str
    cells: Mapping[str, str]
    seconds: float = 0.0
    origin: tuple[str, ...] = ("",) * len(ORIGIN)


def records_of(runs: AvailableRuns) -> list[RunRecord]:
    """Return a record of every run and seed."""
    return [
        _record(key, seed, entry)
        for key, seeds in runs.entries.items()
        for seed, entry in seeds.items()
    ]


def _record(key: RunKey, seed: int, entry: xr.Dataset | str) -> RunRecord:
    if isinstance(entry, str):
        return RunRecord(key, seed, entry, {})
    seconds = float(entry.attrs.get("wall_seconds", 0.0))
    cells = {
        **_attributes(entry.attrs),
        **_losses(entry),
        **_validation(entry),
        "seconds": f"{seconds:.3g}",
        "device": str(entry.attrs.get("device", "")),
    }
    origin = tuple(str(entry.attrs.get(name, "")) for name in ORIGIN)
    return RunRecord(key, seed, "", cells, seconds, origin)


def _attributes(attrs: Mapping[str, Any]) -> dict[str, str]:
    return {
        column: f"{attrs[name]:,}" if isinstance(attrs[name], int) else f"{attrs[name]:.3g}"
        for column, name in NUMBERS.items()
        if attrs.get(name) is not None
    }


def _losses(ds: xr.Dataset) -> dict[str, str]:
    if "training_loss" not in ds or "constant_loss" not in ds.attrs:
        return {}
    loss, constant = float(ds["training_loss"][-1]), float(ds.attrs["constant_loss"])
    return {
        "training loss": f"{loss:.3g}",
        "constant predictor's": f"{constant:.3g}",
        "collapsed": collapsed(ds) or "no",
    }


def _validation(ds: xr.Dataset) -> dict[str, str]:
    columns = {"accuracy": "validation_accuracy", "error rate": "validation_error_rate"}
    shares = {
        f"validation {column}": f"{100 * float(ds[name][-1]):.1f}%"
        for column, name in columns.items()
        if name in ds
    }
    if "validation_loss" in ds:
        return {"validation loss": f"{float(ds['validation_loss'][-1]):.3g}", **shares}
    return shares


def run_table(records: Iterable[RunRecord]) -> Table:
    """Return one row per run and seed, with the columns that some run fills."""
    listed = list(records)
    columns = list(dict.fromkeys(column for record in listed for column in record.cells))
    lacks = [record.missing for record in listed]
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            record.key.title,
            record.seed,
            *(record.cells.get(column, "") for column in columns),
            *([record.missing] if any(lacks) else []),
        )
        for record in listed
    )
    return Table(("run", "seed", *columns, *(["missing"] if any(lacks) else [])), rows)


def origin_table(records: Iterable[RunRecord]) -> Table:
    """Return what the runs were made with: each value, and how many runs have it."""
    stored = [record for record in records if not record.missing]
    counts = {
        name: Counter(record.origin[place] or "unknown" for record in stored).most_common()
        for place, name in enumerate(ORIGIN)
    }
    rows = tuple(
        (name, ", ".join(f"{value} ({number} runs)" for value, number in values))
        for name, values in counts.items()
    )
    return Table(("made with", ""), rows)
