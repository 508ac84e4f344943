"""Check that a run is resumed with the model and the options it was created with."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import xarray as xr

from rankscope import store
from rankscope.store import Variable
from rankscope.store.creation import Coordinates

ADVICE = "pass overwrite=True to begin anew, or choose another path"


def require_same(path: Path, coords: Coordinates, variables: Mapping[str, Variable]) -> None:
    """Raise ValueError that names what differs between the run at `path` and a new tracker.

    coords, variables: those of the new tracker.
    """
    run = store.open(path)
    if not {"matrix", "m", "n", "dtype"} <= set(run.coords):
        return  # not a tracker's run; the store says what it lacks
    new_coords = {name: values.tolist() for name, (_, values) in coords.items()}
    stored = {str(name): run[name].to_numpy().tolist() for name in run.coords}
    _require_same_matrices(path, _wholes(stored), _wholes(new_coords))
    difference = _different_option(run, new_coords, variables)
    if difference is not None:
        option, words = difference
        raise ValueError(
            f"{path} was created with another {option}=: {words}; resume with the same option, "
            f"{ADVICE}"
        )


def _require_same_matrices(path: Path, old: Mapping[str, str], new: Mapping[str, str]) -> None:
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    if names:
        first = names[0]
        rest = f", one of {len(names)} matrices that differ" if len(names) > 1 else ""
        raise ValueError(
            f"{path} is the run of another model: matrix {first!r} is "
            f"{old.get(first, 'missing')} in the run and {new.get(first, 'missing')} in the "
            f"model{rest}; resume with the same model, {ADVICE}"
        )


def _wholes(coords: Mapping[str, list]) -> dict[str, str]:  # type: ignore[type-arg]
    """Return what each matrix is; parts, such as heads, come and go with pairs."""
    columns = (coords[name] for name in ("matrix", "m", "n", "dtype"))
    parts = coords.get("part_of", [""] * len(coords["matrix"]))
    return {
        name: f"{m} x {n} of {dtype}"
        for part_of, name, m, n, dtype in zip(parts, *columns, strict=True)
        if not part_of
    }


def _different_option(
    run: xr.Dataset,
    new_coords: Mapping[str, list],  # type: ignore[type-arg]
    variables: Mapping[str, Variable],
) -> tuple[str, str] | None:
    """Return the option of a tracker that differs, and how; None if all that is stored agrees."""
    for option, name in (("products", "product"), ("pairs", "pair")):
        old = run[name].to_numpy().tolist() if name in run.coords else []
        if words := _different_names(old, new_coords.get(name, []), noun=name):
            return option, words
    old_values, new_values = (
        _kept_values(run.sizes.get("r")),
        _kept_values(_length(new_coords, "r")),
    )
    if old_values != new_values:
        return "spectrum", f"the run has {old_values} of each matrix, not {new_values}"
    if run.sizes.get("i") != _length(new_coords, "i"):
        return "top", f"the run has {run.sizes.get('i')} directions, not {_length(new_coords, 'i')}"
    old = [str(name) for name in run.data_vars if len(run[name].dims) > 1]
    new = [name for name, variable in variables.items() if len(variable.dims) > 1]
    words = _different_names(old, new, noun="variable")
    if not words:
        return None
    of_changes = any("change_" in name for name in set(old) ^ set(new))
    return "reference" if of_changes else "measure", words


def _different_names(old: Iterable[str], new: Iterable[str], *, noun: str) -> str:
    """Say which name only one side has; empty if both have the same."""
    old, new = list(old), list(new)
    for name in old:
        if name not in new:
            return f"{noun} {name!r} is in the run only"
    for name in new:
        if name not in old:
            return f"{noun} {name!r} is not in the run"
    return ""


def _kept_values(leading: int | None) -> str:
    return "all singular values" if leading is None else f"the leading {leading} values"


def _length(coords: Mapping[str, list], name: str) -> int | None:  # type: ignore[type-arg]
    return len(coords[name]) if name in coords else None
