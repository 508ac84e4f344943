"""Check that a run is resumed with the model it was created with."""

from pathlib import Path

from rankscope import store
from rankscope.store.creation import Coordinates


def require_same_matrices(path: Path, coords: Coordinates) -> None:
    """Raise ValueError that names a matrix of the run at `path` or of `coords` that differs."""
    run = store.open(path)
    if not {"matrix", "m", "n", "dtype"} <= set(run.coords):
        return  # not a tracker's run; the store says what it lacks
    stored = _descriptions({name: run[name].to_numpy().tolist() for name in run.coords})
    given = _descriptions({name: values.tolist() for name, (_, values) in coords.items()})
    names = [name for name in {**stored, **given} if stored.get(name) != given.get(name)]
    if names:
        first, others = names[0], len(names) - 1
        raise ValueError(
            f"{path} is the run of another model: matrix {first!r} is "
            f"{stored.get(first, 'missing')} in the run and {given.get(first, 'missing')} in the "
            f"model{f', and {others} others differ' if others else ''}; resume with the same model, "
            "pass overwrite=True to begin anew, or choose another path"
        )


def _descriptions(coords: dict[str, list]) -> dict[str, str]:  # type: ignore[type-arg]
    columns = (coords[name] for name in ("matrix", "m", "n", "dtype"))
    return {name: f"{m} x {n} of {dtype}" for name, m, n, dtype in zip(*columns, strict=True)}
