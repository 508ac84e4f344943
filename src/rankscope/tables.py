"""Tables of all matrices of a model, a checkpoint or a run: one row each, to sort and to act on."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr
from torch import Tensor, nn

from rankscope import metrics
from rankscope.matrices import View, views
from rankscope.spectra import singular_values
from rankscope.store import is_run
from rankscope.store import open as open_run

Weights = nn.Module | Mapping[str, Tensor] | str | Path


def summary(
    source: Weights | xr.Dataset, *, reference: Weights | None = None, sort: str | None = None
) -> pd.DataFrame:
    """Return one row per matrix of a model, a state dict, a checkpoint file, or a run.

    The columns are kind, shape, norm (Frobenius), effective_rank, stable_rank, tail_exponent and
    change, which is |W - W0| / |W|. A run gives its last snapshot, and the change since its
    reference. A model has a change if you pass the `reference` that W0 comes from.

    sort: a column to sort by, largest first; the default is the order of the model.
    """
    if isinstance(source, str | Path) and is_run(source):
        source = open_run(source)
    if isinstance(source, xr.Dataset):
        if reference is not None:
            raise ValueError("a run has a reference of its own; pass reference= with a model only")
        table = _of_run(source)
    else:
        table = _of_weights(source, reference)
    if sort is None:
        return table
    if sort not in table:
        raise ValueError(f"sort is a column, one of {', '.join(table)}; got {sort!r}")
    return table.sort_values(sort, ascending=table[sort].dtype == object, kind="stable")


def movement(run: xr.Dataset | str | Path) -> pd.DataFrame:
    """Return how far the effective rank of each matrix of a run moved, the furthest first.

    The columns are first, last, lowest and highest normalised effective rank, and moved, which is
    highest - lowest over all snapshots. A run with leading values has the stable rank instead.
    """
    run = run if isinstance(run, xr.Dataset) else open_run(run)
    _require_snapshots(run)
    accessor = run.rankscope.whole().rankscope
    complete = accessor.has_all_values
    ranks = accessor.normalized_effective_rank() if complete else accessor.stable_rank()
    ranks = ranks.transpose("step", "matrix")
    values = ranks.to_numpy()
    measured = ~np.isnan(values)
    low, high = (
        np.where(measured.any(0), extreme(np.where(measured, values, fill), axis=0), np.nan)
        for extreme, fill in ((np.min, np.inf), (np.max, -np.inf))
    )
    table = pd.DataFrame(
        {"first": values[0], "last": values[-1], "lowest": low, "highest": high},
        index=pd.Index(ranks["matrix"].to_numpy().astype(str), name="matrix", dtype=object),
    )
    table["moved"] = table["highest"] - table["lowest"]
    return table.sort_values("moved", ascending=False, kind="stable")


def _require_snapshots(run: xr.Dataset) -> None:
    if not {"singular_values", "leading_values"} & run.keys() or not run.sizes.get("step"):
        raise ValueError("this run has no snapshot with matrices yet; train on, then look again")


def _of_run(run: xr.Dataset) -> pd.DataFrame:
    _require_snapshots(run)
    if "leading_values" in run:
        return _of_leading(run.isel(step=-1).rankscope.whole().load())
    spectra = [name for name in ("singular_values", "change_singular_values") if name in run]
    last = run.isel(step=-1).rankscope.whole()[spectra].load()  # at once, not matrix by matrix
    has_changes = "change_singular_values" in last
    rows = {}
    for position, name in enumerate(last["matrix"].to_numpy().astype(str)):
        matrix = last.isel(matrix=position)
        m, n = int(matrix["m"]), int(matrix["n"])
        S = matrix["singular_values"].to_numpy()[: min(m, n)]
        changes = matrix["change_singular_values"].to_numpy()[: min(m, n)] if has_changes else None
        change = np.nan if changes is None else _relative(_norm(changes), _norm(S))
        rows[name] = _row(str(matrix["kind"].item()), (m, n), S, change)
    return _table(rows)


def _of_leading(last: xr.Dataset) -> pd.DataFrame:
    """Return the table of a run that keeps leading values; what needs all of them is NaN."""
    norm, stable = last.rankscope.frobenius_norm(), last.rankscope.stable_rank()
    has_changes = "change_leading_frobenius" in last
    changed = last["change_leading_frobenius"] if has_changes else norm * np.nan
    rows = {
        str(name): {
            "kind": str(last["kind"].item(row)),
            "shape": f"{last['m'].item(row)} x {last['n'].item(row)}",
            "norm": norm.item(row),
            "effective_rank": np.nan,
            "stable_rank": stable.item(row),
            "tail_exponent": np.nan,
            "change": _relative(changed.item(row), norm.item(row)),
        }
        for row, name in enumerate(last["matrix"].to_numpy())
    }
    return _table(rows)


def _of_weights(source: Weights, reference: Weights | None) -> pd.DataFrame:
    matrices = views(source)
    whole = [name for name, reading in matrices.readings.items() if reading.part_of is None]
    if not whole:
        raise ValueError("there is no matrix to sum up; print rankscope.views(...).coverage")
    starts = views(reference) if reference is not None else {}
    if reference is not None and not starts.keys() & set(whole):
        raise ValueError("the reference has none of these matrices; pass the same kind of model")
    rows = {}
    for name in whole:  # one at a time, so that a large checkpoint need not fit into memory
        view = matrices[name]
        S = singular_values(view).numpy(force=True)
        rows[name] = _row(view.kind, (view.m, view.n), S, _change(view, starts))
    return _table(rows)


def _change(view: View, starts: Mapping[str, View]) -> float:
    start = starts.get(view.name, None)
    if start is None or start.W.shape != view.W.shape:
        return np.nan
    W, W0 = view.W.double(), start.W.double().to(view.W.device)
    return _relative(float((W - W0).norm()), float(W.norm()))


def _relative(change: float, norm: float) -> float:
    """Return |W - W0| / |W|; NaN of a zero matrix."""
    return change / norm if norm else np.nan


def _row(kind: str, shape: tuple[int, int], S: np.ndarray, change: float) -> dict[str, str | float]:
    S = S.astype(np.float64)
    return {
        "kind": kind,
        "shape": f"{shape[0]} x {shape[1]}",
        "norm": _norm(S),
        "effective_rank": float(metrics.effective_rank(S)),
        "stable_rank": float(metrics.stable_rank(S)),
        "tail_exponent": float(metrics.tail_exponent(S)),
        "change": change,
    }


def _norm(S: np.ndarray) -> float:
    return float(metrics.frobenius_norm(S.astype(np.float64)))


def _table(rows: Mapping[str, Mapping[str, str | float]]) -> pd.DataFrame:
    table = pd.DataFrame.from_dict(dict(rows), orient="index")
    table.index.name = "matrix"
    return table if table["change"].notna().any() else table.drop(columns="change")
