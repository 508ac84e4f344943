"""What a report says of single runs: how training ended, what they cost, where they come from."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import xarray as xr

from rankscope.lab.experiment import Experiment
from rankscope.lab.reading import collapsed
from rankscope.lab.tables import duration

# What may differ between the runs of a report, as `provenance.origin` stores it.
ORIGIN = ("rankscope", "commit", "torch", "python", "device")


@dataclass(frozen=True)
class RunRecord:
    """A declared run with one seed; `missing` says why it is not there, or is "".

    cells: column -> what stands there, of the columns that this run has something for.
    """

    name: str
    seed: int
    missing: str
    cells: Mapping[str, str]
    collapsed: str = ""
    seconds: float = 0.0
    started: str = ""
    origin: tuple[str, ...] = ("",) * len(ORIGIN)


def record(name: str, seed: int, entry: xr.Dataset | str) -> RunRecord:
    """Of a run on the shelf."""
    if isinstance(entry, str):
        return RunRecord(name, seed, entry, {})
    attrs = entry.attrs
    trained = "training_loss" in entry and "constant_loss" in attrs
    reason = collapsed(entry) if trained else ""
    seconds = float(attrs.get("wall_seconds", 0.0))
    return RunRecord(
        name,
        seed,
        missing="",
        cells={
            **_decay(attrs),
            **(_losses(entry) if trained else {}),
            **_validation(entry),
            **({"collapsed": reason or "no"} if trained else {}),
            "seconds": f"{seconds:.3g}",
            "device": str(attrs.get("device", "")),
        },
        collapsed=reason,
        seconds=seconds,
        started=str(attrs.get("started", "")),
        origin=tuple(str(attrs.get(key, "")) for key in ORIGIN),
    )


def _decay(attrs: Mapping[str, Any]) -> dict[str, str]:
    columns = {
        "paper's decay": "paper_decay",
        "decay": "decay",
        "sum of rate x decay": "decay_sum",
        "parameters": "parameters",
    }
    return {
        column: f"{attrs[key]:,}" if isinstance(attrs[key], int) else f"{attrs[key]:.3g}"
        for column, key in columns.items()
        if attrs.get(key) is not None
    }


def _losses(ds: xr.Dataset) -> dict[str, str]:
    loss, constant = float(ds["training_loss"][-1]), float(ds.attrs["constant_loss"])
    return {"training loss": f"{loss:.3g}", "of a constant": f"{constant:.3g}"}


def _validation(ds: xr.Dataset) -> dict[str, str]:
    columns = {"accuracy": "validation_accuracy", "error rate": "validation_error_rate"}
    found = {
        f"validation {column}": f"{100 * float(ds[key][-1]):.1f}%"
        for column, key in columns.items()
        if key in ds
    }
    if "validation_loss" in ds:
        found = {"validation loss": f"{float(ds['validation_loss'][-1]):.3g}", **found}
    return found


def how_many(experiment: Experiment, records: Sequence[RunRecord]) -> str:
    """How many of its runs are there, of all seeds, and the seeds of which none is listed.

    Declared ones, and others that were asked for.
    """
    listed = {each.seed for each in records}
    total = len(experiment.runs) * len({*experiment.seeds, *listed})
    said = f"{sum(not each.missing for each in records)} of {total} runs there"
    if others := [str(seed) for seed in experiment.seeds if seed not in listed]:
        said += f", none of seed{'s' * (len(others) > 1)} {', '.join(others)}"
    return said


def columns_of(records: Iterable[RunRecord]) -> list[str]:
    """The columns that any of them fills, in the order of their first use."""
    return list(dict.fromkeys(column for each in records for column in each.cells))


def origins(records: Iterable[RunRecord]) -> dict[str, list[tuple[str, int]]]:
    """What the runs were made with: key -> each value and how many runs have it."""
    there = [each for each in records if not each.missing]
    return {
        key: Counter(each.origin[place] or "unknown" for each in there).most_common()
        for place, key in enumerate(ORIGIN)
    }


def expectation(experiments: Sequence[Experiment]) -> str:
    """ "2 h on 2 cores, 3 h on one H200; not known of paper/c"; "" where nothing is known."""
    seconds: dict[str, float] = {}
    for each in experiments:
        if each.expected_seconds is not None:
            seconds[each.expected_on] = seconds.get(each.expected_on, 0) + each.expected_seconds
    known = ", ".join(f"{duration(taken)} on {machine}" for machine, taken in seconds.items())
    unknown = ", ".join(each.name for each in experiments if each.expected_seconds is None)
    return f"{known}; not known of {unknown}" if known and unknown else known


@dataclass(frozen=True)
class Cost:
    """Seconds: of all runs together, and those in which at least one of them was running."""

    together: float
    busy: float
    first: str
    last: str


def cost(records: Iterable[RunRecord]) -> Cost | None:
    """Of the runs that say when they began; None of none."""
    timed = [each for each in records if each.started]
    if not timed:
        return None
    starts = [datetime.fromisoformat(each.started) for each in timed]
    ends = [
        start + timedelta(seconds=each.seconds) for start, each in zip(starts, timed, strict=True)
    ]
    return Cost(
        together=sum(each.seconds for each in timed),
        busy=busy_seconds((each.started, each.seconds) for each in timed),
        first=min(starts).isoformat(" ", "minutes"),
        last=max(ends).isoformat(" ", "minutes"),
    )


def busy_seconds(runs: Iterable[tuple[str, float]]) -> float:
    """How long at least one of them was running: of each, when it began and its seconds."""
    spans = sorted((datetime.fromisoformat(began).timestamp(), length) for began, length in runs)
    busy, until = 0.0, float("-inf")
    for start, length in spans:
        busy += max(0.0, start + length - max(start, until))
        until = max(until, start + length)
    return busy
