"""Creation of a run, written whole under another name and then renamed; checks on resuming."""

import contextlib
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from rankscope.store.chunk import Damage
from rankscope.store.exchange import put_folder
from rankscope.store.files import ROOT, replace_file, sync_folder, write_own_metadata
from rankscope.store.layout import Contents, Layout, Variable
from rankscope.store.lock import refuse_while_written
from rankscope.store.metadata import ROOT_BYTES, Json
from rankscope.store.names import OTHER_NAMES
from rankscope.store.source import Folder
from rankscope.store.stored_run import StoredRun, damaged


class RunExists(ValueError):
    """A run is in the way of a new one. found: what there is."""

    def __init__(self, found: str) -> None:
        super().__init__(
            f"{found}; pass resume=True to go on, overwrite=True to begin anew, or choose another "
            "path"
        )
        self.found = found


Coordinates = Mapping[str, tuple[tuple[str, ...], np.ndarray]]


def new_contents(
    coords: Coordinates,
    variables: Mapping[str, Variable],
    attrs: Mapping[str, Json],
    chunk_steps: int,
) -> Contents:
    """Return the contents of a run without rows; first dimensions grow, `coords` size the rest."""
    axes = tuple(dict.fromkeys(variable.dims[0] for variable in variables.values()))
    counters = {axis: Variable((axis,), np.int64) for axis in axes}
    sizes: dict[str, int] = {}
    for name, ((dim,), values) in coords.items():
        if dim in axes or sizes.setdefault(dim, len(values)) != len(values):
            raise ValueError(
                f"coordinate {name!r} has {len(values)} values along {dim!r}, which "
                + ("grows" if dim in axes else f"has {sizes[dim]}")
            )
    layouts = {}
    for name, ((dim,), values) in coords.items():
        fixed = Layout.of(Variable((dim,), values.dtype), sizes, chunk_steps)
        layouts[name] = replace(fixed, chunk_rows=max(1, len(values)))
    for name, variable in {**counters, **variables}.items():
        unknown = set(variable.dims[1:]) - set(sizes)
        if unknown or name in layouts or name in sizes:
            raise ValueError(
                f"variable {name!r} over {variable.dims}: "
                + (f"no coordinate along {unknown}" if unknown else "a coordinate has that name")
            )
        layouts[name] = Layout.of(variable, sizes, chunk_steps)
    return Contents(layouts, {**sizes, **dict.fromkeys(axes, 0)}, axes, attrs)


def write_empty_run(path: Path, contents: Contents, coords: Coordinates, *, durable: bool) -> None:
    """Put a run without rows at `path` in one step, whatever was there; the caller has the lock."""
    partial = path.with_name(f".{path.name}.partial")
    if partial.exists():
        shutil.rmtree(partial)  # left by a process that died
    try:
        partial.mkdir()
        for name, layout in contents.layouts.items():
            (partial / name).mkdir()
            if name in coords and len(coords[name][1]):
                chunk = layout.blank(layout.chunk_rows)
                chunk[:] = coords[name][1]
                data = layout.encode(name, 0, chunk, filled=len(chunk))
                replace_file(partial / name / layout.chunk_name(0), data, durable=durable)
        write_own_metadata(partial, contents, contents.layouts, durable=durable)
        replace_file(partial / ROOT, contents.to_json(), durable=durable)
        put_folder(partial, path)
    except OSError:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    if durable:
        sync_folder(path.parent)


def refuse_what_is_there(path: Path, *, overwrite: bool) -> None:
    """Raise ValueError unless `path` is free, an empty folder, or a run to overwrite."""
    if (path / ROOT).exists():
        contents = read_contents(path)
        if overwrite:
            _refuse_to_remove_others(path, contents)
            return
        refuse_while_written(path)
        raise RunExists(f"{path} already holds a run of {_extent(path, contents)}")
    if path.is_file() or (path.is_dir() and any(path.iterdir())):
        raise ValueError(f"{path} exists and is not a run; choose another path")


def _extent(path: Path, contents: Contents) -> str:
    """Return the number of snapshots, and the last one's step."""
    axis = contents.axes[0] if contents.axes else ""
    count = contents.lengths.get(axis, 0)
    extent = f"{count} snapshot{'s' * (count != 1)}"
    if count:
        with contextlib.suppress(ValueError):  # a damaged run is there all the same
            last = StoredRun.at(Folder(path)).read(axis)[-1]
            extent += f", up to {axis} {last:g}"
    return extent


def _refuse_to_remove_others(path: Path, contents: Contents) -> None:
    """Raise ValueError if the folder of a run holds files of its user's, such as checkpoints."""
    own = {*contents.layouts, *OTHER_NAMES}
    others = sorted(
        entry.name
        for entry in path.iterdir()
        if entry.name not in own and entry.suffix != ".partial" and not _is_left(entry)
    )
    if others:
        raise ValueError(
            f"{path} holds {others[0]!r} beside the run, which overwrite=True would remove; move "
            "it, or choose another path"
        )


def _is_left(folder: Path) -> bool:
    """Tell whether a folder holds a scalar that a writer who died did not commit."""
    return folder.is_dir() and all(file.name.startswith("c.") for file in folder.iterdir())


def read_contents(path: Path) -> Contents:
    """Read what is committed at `path`; ValueError if that is not a run."""
    try:
        file = Folder(path).open(ROOT, most_bytes=ROOT_BYTES)
        if file is None:
            raise ValueError(f"{path} holds no run to resume; pass resume=False to begin one")
        with file:
            return Contents.from_json(file.read())
    except Damage as damage:
        raise damaged(path, damage) from None
    except KeyError:
        raise ValueError(f"{path} is a Zarr group but not a run; choose another path") from None


def check_same(
    path: Path, contents: Contents, coords: Coordinates, variables: Mapping[str, Variable]
) -> None:
    """Raise ValueError if the run at `path` has other coordinates or variables than these.

    Scalars may come and go: one that is not given is NaN from here on, a new one is NaN before.
    """
    advice = "resume with what the run was created with, or choose another path"
    run = StoredRun.at(Folder(path))
    for name, ((dim,), values) in coords.items():
        layout = contents.layouts.get(name)
        same_dims = layout is not None and layout.dims == (dim,)
        if not same_dims or run.read(name).tolist() != values.tolist():
            raise ValueError(f"{path} holds another {name!r} than the one given; {advice}")
    if not variables:
        return
    for name, variable in variables.items():
        wanted, stored = Layout.of(variable, contents.lengths, 1), contents.layouts.get(name)
        if stored is None and not wanted.row_shape:
            continue
        if stored is None or (stored.dims, stored.dtype) != (wanted.dims, wanted.dtype):
            raise ValueError(
                f"{path} holds no {name!r} of {wanted.dtype} over {wanted.dims}; {advice}"
            )
    for name, stored in contents.layouts.items():
        if stored.row_shape and name not in variables:
            raise ValueError(f"{path} holds a variable {name!r} that was not given; {advice}")
