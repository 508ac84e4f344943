"""What kept trainings reached: their last losses and accuracies, as a reader would check first."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import xarray as xr

from rankscope import store
from rankscope.lab.kept_run import kept_path
from rankscope.lab.results.ledger import Ledger
from rankscope.lab.tables import span

COLUMNS = ("run", "seeds", "steps", "training loss", "held-out loss", "held-out, right")


def rows(results: Path, ledger: Ledger) -> Iterator[tuple[str, ...]]:
    """One for each run that trained, its seeds together."""
    found: dict[tuple[str, str], dict[int, xr.Dataset]] = {}
    for (experiment, run, seed), done in ledger.done.items():
        path = kept_path(results, experiment, run, seed)
        if done.speed and path.exists():  # simulations have none
            found.setdefault((experiment, run), {})[seed] = _end(path)
    for (experiment, run), ends in found.items():
        yield _row(f"{experiment.partition('/')[0]}, {run}", ends)


def _end(path: Path) -> xr.Dataset:
    """The scalars of the last snapshot."""
    ds = store.open(path)
    scalars = [name for name in ds.data_vars if ds[name].dims == ("step",)]
    return ds[scalars].isel(step=-1)


def _row(name: str, ends: Mapping[int, xr.Dataset]) -> tuple[str, ...]:
    found = list(ends.values())
    return (
        name,
        ", ".join(map(str, ends)),
        ", ".join(dict.fromkeys(map(_steps, found))),
        span(_extent(_values(found, "training_loss"))),
        span(_extent(_values(found, "validation_loss"))),
        span(_extent(_right(found)), "{:.1%}".format),
    )


def _steps(end: xr.Dataset) -> str:
    """How many were taken, and why no more."""
    steps = f"{int(end['step']):,}"
    if end.attrs.get("diverged_at") is not None:
        return f"{steps} (diverged)"
    return f"{steps} (settled)" if end.attrs.get("stopped_at") is not None else steps


def _values(ends: Sequence[xr.Dataset], name: str) -> list[float]:
    return [float(end[name]) for end in ends if name in end]


def _right(ends: Sequence[xr.Dataset]) -> list[float]:
    """Shares of images, sums or characters."""
    wrong = _values(ends, "validation_error_rate")
    return _values(ends, "validation_accuracy") or [1 - share for share in wrong]


def _extent(values: Sequence[float]) -> tuple[float, float] | None:
    return (min(values), max(values)) if values else None
