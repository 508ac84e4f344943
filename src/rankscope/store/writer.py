"""Writing of runs: a snapshot appears whole or not at all, whatever happens to the writer.

A commit replaces the chunks first, each in one step, and then the root zarr.json, which alone says
how long every array is. Rows beyond the committed length may lie in a chunk; no reader sees them,
and the next writer overwrites them. Each array's own zarr.json, for readers that do not use the
root's, is written now and then and on closing. At every commit it would double the files written.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, SupportsFloat

import numpy as np

from rankscope.store.chunk import Damage
from rankscope.store.column import Column
from rankscope.store.compaction import compact, expand, remove_other_files
from rankscope.store.creation import (
    Coordinates,
    check_same,
    new_contents,
    read_contents,
    refuse_what_is_there,
    write_empty_run,
)
from rankscope.store.files import ROOT, replace_file, write_own_metadata
from rankscope.store.layout import RESERVED_ATTRS, Contents, Json, Layout, Variable, name_taken
from rankscope.store.lock import Lock
from rankscope.store.source import Folder
from rankscope.store.stored_run import StoredRun

# Number of commits after which the arrays' own metadata are written again.
OWN_METADATA_EVERY = 16


class Writer:
    """The one writer of a run. When `append` or `extend` returns, its rows are committed.

    An OSError (disk full, no permission) leaves the run as it was; make the same call again later.
    One thread writes; others may read `steps`.
    """

    def __init__(self, path: Path, contents: Contents, *, lock: Lock, durable: bool) -> None:
        """Take a run that exists and its lock. Use `create` or `resume` instead."""
        self.path = path
        self._contents = contents
        self._lock = lock
        self._durable = durable
        self._closed = False
        self._commits = 0
        self._read_back()

    @classmethod
    def create(
        cls,
        path: str | Path,
        *,
        coords: Coordinates,
        variables: Mapping[str, Variable],
        attrs: Mapping[str, Json] | None = None,
        durable: bool = False,
        chunk_steps: int = 8,
    ) -> "Writer":
        """Create a run without steps at `path`.

        coords: name -> ((dimension,), values). They size and label the dimensions that do not grow;
            several may share one: matrix(matrix), m(matrix), n(matrix).
        attrs: anything JSON can hold.
        durable: wait for the disk at each commit, so that it survives a loss of power.
        """
        path = Path(path)
        contents = new_contents(coords, variables, _json(attrs or {}), chunk_steps)
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path) as lock:
            refuse_what_is_there(path)
            write_empty_run(path, contents, coords, durable=durable)
            return cls(path, contents, lock=lock, durable=durable)

    @classmethod
    def resume(
        cls,
        path: str | Path,
        *,
        coords: Coordinates | None = None,
        variables: Mapping[str, Variable] | None = None,
        attrs: Mapping[str, Json] | None = None,
        durable: bool = False,
    ) -> "Writer":
        """Continue the run at `path` after its last committed row.

        `coords` and `variables`, if given, must be those it was created with. Values of `attrs`
        that differ from the stored ones become an entry of the attribute `resumed`.
        """
        path = Path(path)
        read_contents(path)  # raises before there is a lock, if this is not a run
        with _locked(path) as lock:
            contents = read_contents(path)
            check_same(path, contents, coords or {}, variables or {})
            writer = cls(path, contents, lock=lock, durable=durable)
            writer._remove_leftovers()
            changed = {k: v for k, v in _json(attrs or {}).items() if contents.attrs.get(k) != v}
            if changed:
                writer.set_attrs({"resumed": [*contents.attrs.get("resumed", []), changed]})
            return writer

    @property
    def steps(self) -> np.ndarray:
        """Committed steps."""
        return self.positions("step")

    def positions(self, along: str) -> np.ndarray:
        """Return the committed positions along an axis."""
        return self._positions[along]

    @property
    def attrs(self) -> Mapping[str, Json]:
        """Attributes of the run."""
        return self._contents.attrs

    def append(
        self,
        position: SupportsFloat,
        values: Mapping[str, Any],
        *,
        scalars: Mapping[str, SupportsFloat] | None = None,
        along: str = "step",
    ) -> None:
        """Commit one row of the axis `along`: a snapshot.

        values: an array for each variable, or a mapping from labels of the variable's second
            dimension to arrays. Values that are too short or missing are padded with the fill.
        scalars: numbers stored under their own names. A new one is NaN at all earlier steps.
        """
        rows = {}
        for name, value in values.items():
            layout = self._variable(name, along)
            row = self._from_labels(name, layout, value) if isinstance(value, Mapping) else value
            rows[name] = np.asarray(row)[None]
        for name, scalar in (scalars or {}).items():
            known = self._contents.layouts.get(name)
            if name in rows or (known is not None and known.row_shape):
                raise name_taken(name)
            rows[name] = np.array([float(scalar)])
        self._commit_rows(along, np.array([position]), rows)

    def extend(self, along: str, positions: Any, values: Mapping[str, Any]) -> None:
        """Commit many rows of one axis, such as scalars of every step; names may be new."""
        rows = {name: np.asarray(column) for name, column in values.items()}
        if np.size(positions):
            self._commit_rows(along, np.atleast_1d(positions), rows)

    def truncate(self, before: SupportsFloat) -> None:
        """Drop the rows at `before` and later along every axis, to continue from a checkpoint.

        Readers that have the run open should open it again.
        """
        lengths = {
            axis: int(np.searchsorted(positions, float(before)))
            for axis, positions in self._positions.items()
        }
        if any(lengths[axis] < len(positions) for axis, positions in self._positions.items()):
            lengths = {**self._contents.lengths, **lengths}
            self._commit(replace(self._contents, lengths=lengths))
            self._read_back()
            self._remove_leftovers()

    def set_attrs(self, attrs: Mapping[str, Json]) -> None:
        """Add or replace attributes of the run, in a commit of their own."""
        attrs = {**self._contents.attrs, **_json(attrs)}
        self._commit(replace(self._contents, attrs=attrs))

    def close(self) -> None:
        """Compact the run and release it to other writers; everything is committed already."""
        if not self._closed and self._lock.is_mine():
            with contextlib.suppress(OSError, Damage):  # then the run stays as it is
                self._contents = compact(self.path, self._contents, durable=self._durable)
            self._write_own_metadata()
        self._closed = True
        self._lock.release()

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _variable(self, name: str, along: str) -> Layout:
        layouts = self._contents.along(along)
        if name not in layouts or name == along:
            known = ", ".join(sorted(layouts.keys() - {along}))
            raise ValueError(
                f"{self.path} has no variable {name!r} along {along!r}; it has {known}"
            )
        return layouts[name]

    def _from_labels(self, name: str, layout: Layout, entries: Mapping[str, Any]) -> np.ndarray:
        row: np.ndarray = layout.blank(1)[0]
        positions = self._labels[layout.dims[1]]
        for label, entry in entries.items():
            if label not in positions:
                raise ValueError(f"{name!r}: {self.path} has no {layout.dims[1]} {label!r}")
            _insert(row[positions[label] : positions[label] + 1], np.asarray(entry)[None], name)
        return row

    def _commit_rows(
        self, along: str, positions: np.ndarray, rows: Mapping[str, np.ndarray]
    ) -> None:
        self._check_open()
        self._expand()
        contents = self._contents.with_scalars(along, rows)
        before = self._positions.get(along, positions[:0])
        rows = {**rows, along: _increasing(along, before, positions, contents.layouts[along])}
        columns = {}
        for name, layout in contents.along(along).items():
            # Arrays without values are written too: a chunk may hold rows that were not committed.
            block = layout.blank(len(positions))
            if name in rows:
                _insert(block, rows[name], name)
            column = self._columns.get(name) or Column.new(self.path / name, layout)
            columns[name] = column.with_rows(len(before), block, durable=self._durable)
        lengths = {**contents.lengths, along: len(before) + len(positions)}
        self._commit(replace(contents, lengths=lengths))
        self._columns |= columns
        self._positions[along] = np.concatenate([before, rows[along]])

    def _expand(self) -> None:
        """Undo the compaction of a run that was closed."""
        expanded = expand(self.path, self._contents, durable=self._durable)
        if expanded is not self._contents:
            self._contents = expanded
            for name, column in self._columns.items():
                self._columns[name] = replace(column, layout=expanded.layouts[name])

    def _commit(self, contents: Contents) -> None:
        self._check_open()
        replace_file(self.path / ROOT, contents.to_json(), durable=self._durable)
        grown = contents.layouts.keys() != self._contents.layouts.keys()
        self._contents = contents
        self._commits += 1
        if grown or self._commits % OWN_METADATA_EVERY == 0:
            self._write_own_metadata()

    def _write_own_metadata(self) -> None:
        # The root's metadata are committed already, so the caller need not know of a failure here.
        with contextlib.suppress(OSError):
            names = self._contents.layouts.keys() - self._contents.fixed()
            write_own_metadata(self.path, self._contents, sorted(names), durable=False)

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(f"the writer of {self.path} is closed; resume the run to go on")

    def _read_back(self) -> None:
        """Read the committed positions, labels and unfinished chunks."""
        run = StoredRun.at(Folder(self.path))
        contents = self._contents
        self._positions = {axis: run.read(axis) for axis in contents.axes}
        self._labels = {
            dim: {label: i for i, label in enumerate(run.read(dim).tolist())}
            for dim in contents.fixed() & set(contents.lengths)
        }
        self._columns = {
            name: Column.read(self.path / name, layout, run, contents.lengths[axis])
            for axis in contents.axes
            for name, layout in contents.along(axis).items()
        }

    def _remove_leftovers(self) -> None:
        """Remove the leftovers of a writer that died and of dropped rows."""
        for column in self._columns.values():
            column.remove_beyond(self._contents.lengths[column.layout.dims[0]])
        remove_other_files(self.path, self._contents)
        for folder in self.path.iterdir():
            if folder.is_dir() and folder.name not in self._contents.layouts:
                Column.clear(folder)  # a scalar that was never committed
        self._write_own_metadata()


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[Lock]:
    """Take the lock, and release it only if the context fails."""
    lock = Lock.take(path)
    try:
        yield lock
    except BaseException:
        lock.release()
        raise


def _json(attrs: Mapping[str, Json]) -> dict[str, Json]:
    """Return the attributes as a reader will find them."""
    if reserved := RESERVED_ATTRS & attrs.keys():
        raise ValueError(f"attributes {sorted(reserved)} are the store's own; rename them")
    try:
        return dict(json.loads(json.dumps(attrs, allow_nan=False)))
    except (TypeError, ValueError) as error:
        raise ValueError(f"attributes must be plain JSON: {error}") from None


def _increasing(
    along: str, before: np.ndarray, positions: np.ndarray, layout: Layout
) -> np.ndarray:
    """Return `positions` in the dtype of their axis; ValueError unless they follow `before`."""
    stored = positions.astype(layout.dtype)
    joined = np.concatenate([before[-1:], stored])
    if not (np.array_equal(stored, positions) and np.all(joined[1:] > joined[:-1])):
        raise ValueError(
            f"positions along {along!r} must be {layout.dtype} and increase: got "
            f"{positions.tolist()[:3]} after {before[-1:].tolist()}; steps must increase over the "
            "whole run, not per epoch"
        )
    return stored


def _insert(block: np.ndarray, rows: np.ndarray, name: str) -> None:
    """Put `rows` into `block`, whose other entries stay as they are."""
    fits = len(rows) == len(block) and rows.ndim == block.ndim
    if not fits or any(size > room for size, room in zip(rows.shape, block.shape, strict=True)):
        raise ValueError(
            f"{name!r}: expected rows of shape {block.shape} or smaller, got {rows.shape}"
        )
    with np.errstate(over="ignore"):  # numbers too large for float32 become infinite
        block[tuple(slice(size) for size in rows.shape)] = rows
