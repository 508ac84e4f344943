"""Writing of runs: a snapshot appears whole or not at all, whatever happens to the writer.

A commit replaces the chunks first, each in one step, and then the root zarr.json, which alone says
how long every array is. Rows beyond the committed length may lie in a chunk; no reader sees them,
and the next writer overwrites them. Each array's own zarr.json, for readers that do not use the
root's, is written now and then and on closing. At every commit it would double the files written.

A run that goes back to an earlier step shows its old rows until the first new one is committed, and
then keeps them: see `dropped.py`.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, SupportsFloat

import numpy as np

from rankscope.store import dropped
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


@dataclass(frozen=True)
class Block:
    """Rows of an axis, the first of them number `start`."""

    along: str
    start: int
    rows: Mapping[str, np.ndarray]
    size: int


class Writer:
    """The one writer of a run. When `append` or `extend` returns, its rows are committed.

    An OSError (disk full, no permission) leaves the run as it was; make the same call again later.
    One thread writes; others may read `steps`.
    """

    def __init__(self, path: Path, contents: Contents, *, lock: Lock, durable: bool) -> None:
        """Take a run that exists and its lock. Use `create` or `resume` instead."""
        self.path = path.resolve()  # the working directory may change
        self._contents = contents
        self._lock = lock
        self._durable = durable
        self._closed = False
        self._commits = 0
        self._read_back(contents.lengths)

    @classmethod
    def create(
        cls,
        path: str | Path,
        *,
        coords: Coordinates,
        variables: Mapping[str, Variable],
        attrs: Mapping[str, Json] | None = None,
        durable: bool = False,
        overwrite: bool = False,
        chunk_steps: int = 8,
    ) -> "Writer":
        """Create a run without steps at `path`.

        coords: name -> ((dimension,), values). They size and label the dimensions that do not grow;
            several may share one: matrix(matrix), m(matrix), n(matrix).
        attrs: anything JSON can hold.
        durable: wait for the disk at each commit, so that it survives a loss of power.
        overwrite: put it in the place of the run at `path`, if there is one.
        """
        path = Path(path)
        contents = new_contents(coords, variables, _json(attrs or {}), chunk_steps)
        refuse_what_is_there(path, overwrite=overwrite)
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path) as lock:
            refuse_what_is_there(path, overwrite=overwrite)
            write_empty_run(path.resolve(), contents, coords, durable=durable)
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
            dropped.restore(path.resolve(), contents.attrs)
            check_same(path, contents, coords or {}, variables or {})
            writer = cls(path, contents, lock=lock, durable=durable)
            writer._remove_leftovers()
            changed = {k: v for k, v in _json(attrs or {}).items() if contents.attrs.get(k) != v}
            if changed:
                writer.set_attrs({"resumed": [*contents.attrs.get("resumed", []), changed]})
            return writer

    @property
    def steps(self) -> np.ndarray:
        """Committed steps, without those that `rewind` has given up."""
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
        contents, block = self._block(along, np.array([position]), rows)
        self._commit_blocks(contents, [*self._waiting, block])

    def extend(self, along: str, positions: Any, values: Mapping[str, Any]) -> None:
        """Commit many rows of one axis, such as scalars of every step; names may be new.

        After `rewind` they wait for the next `append`, or for `close`.
        """
        rows = {name: np.asarray(column) for name, column in values.items()}
        if not np.size(positions):
            return
        contents, block = self._block(along, np.atleast_1d(positions), rows)
        if self._rewound:
            self._waiting.append(block)
            self._accept(contents, block)
        else:
            self._commit_blocks(contents, [block])

    def rewind(self, before: SupportsFloat) -> None:
        """Go back to continue from a checkpoint: give up the rows at `before` and later.

        Readers see them until the next `append` is committed. They are then in the folder `dropped`
        of the run. Nothing is written here.
        """
        self._check_open()
        if self._waiting:
            self._commit_blocks(self._ahead, self._waiting)
        lengths = {
            axis: int(np.searchsorted(self._positions[axis], float(before)))
            for axis in self._contents.axes
        }
        if any(lengths[axis] < self._contents.lengths[axis] for axis in lengths):
            self._read_back({**self._contents.lengths, **lengths})

    def keep_dropped(self) -> None:
        """Keep the rows that `rewind` gave up, before you replace a file of the run yourself."""
        if self._rewound:
            self._expand()
            arrays = self._contents.layouts
            dropped.keep(self.path, self.attrs, arrays, durable=self._durable)

    def set_attrs(self, attrs: Mapping[str, Json]) -> None:
        """Add or replace attributes of the run, in a commit of their own."""
        attrs = {**self._contents.attrs, **_json(attrs)}
        self._commit(replace(self._contents, attrs=attrs))

    def close(self) -> None:
        """Compact the run and release it; everything but rows that wait is committed already."""
        if not self._closed and self._lock.is_mine():
            with contextlib.suppress(OSError, Damage):  # what is left, the next writer does
                if self._waiting:
                    self._commit_blocks(self._ahead, self._waiting)
                elif self._rewound:
                    dropped.restore(self.path, self.attrs)
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

    def _block(
        self, along: str, positions: np.ndarray, rows: Mapping[str, np.ndarray]
    ) -> tuple[Contents, Block]:
        """Return the rows as arrays of their axis, and the run's contents with them."""
        self._check_open()
        self._expand()
        contents = self._ahead.with_scalars(along, rows)
        before = self._positions.get(along, positions[:0])
        rows = {**rows, along: _increasing(along, before, positions, contents.layouts[along])}
        blocks = {}
        for name, layout in contents.along(along).items():
            # Arrays without values are written too: a chunk may hold rows that were not committed.
            blocks[name] = layout.blank(len(positions))
            if name in rows:
                _insert(blocks[name], rows[name], name)
        lengths = {**contents.lengths, along: len(before) + len(positions)}
        block = Block(along, len(before), blocks, len(positions))
        return replace(contents, lengths=lengths), block

    def _commit_blocks(self, contents: Contents, blocks: Sequence[Block]) -> None:
        attrs = dict(self.attrs)
        if self._rewound:
            attrs |= dropped.keep(self.path, attrs, self._contents.layouts, durable=self._durable)
        columns = dict(self._columns)
        for block in blocks:
            # One of a scalar that came later than these rows is NaN in them.
            for name, layout in contents.along(block.along).items():
                rows = block.rows[name] if name in block.rows else layout.blank(block.size)
                column = columns.get(name) or Column.new(self.path / name, layout)
                columns[name] = column.with_rows(block.start, rows, durable=self._durable)
        self._commit(replace(contents, attrs=attrs))
        self._columns = columns
        self._waiting = []
        self._accept(self._contents, blocks[-1])
        if self._rewound:
            self._rewound = False
            with contextlib.suppress(OSError):  # the rows are committed
                self._remove_leftovers()

    def _accept(self, contents: Contents, block: Block) -> None:
        """Let further rows follow those of `block`."""
        self._ahead = contents
        before = self._positions.get(block.along, block.rows[block.along][:0])
        self._positions[block.along] = np.concatenate(
            [before[: block.start], block.rows[block.along]]
        )

    def _expand(self) -> None:
        """Undo the compaction of a run that was closed."""
        expanded = expand(self.path, self._contents, durable=self._durable)
        if expanded is not self._contents:
            self._contents = expanded
            layouts = {**self._ahead.layouts, **expanded.layouts}
            self._ahead = replace(self._ahead, layouts=layouts)
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

    def _read_back(self, lengths: Mapping[str, int]) -> None:
        """Read the positions, labels and unfinished chunks of the first rows, `lengths` of them."""
        run = StoredRun.at(Folder(self.path))
        contents = self._contents
        self._positions = {axis: run.read(axis, slice(lengths[axis])) for axis in contents.axes}
        self._labels = {
            dim: {label: i for i, label in enumerate(run.read(dim).tolist())}
            for dim in contents.fixed() & set(contents.lengths)
        }
        self._columns = {
            name: Column.read(self.path / name, layout, run, lengths[axis])
            for axis in contents.axes
            for name, layout in contents.along(axis).items()
        }
        self._ahead = replace(contents, lengths=lengths)  # contents that the next rows follow
        self._waiting: list[Block] = []
        self._rewound = lengths != contents.lengths

    def _remove_leftovers(self) -> None:
        """Remove the leftovers of a writer that died and of dropped rows."""
        self._write_own_metadata()
        for column in self._columns.values():
            column.remove_beyond(self._contents.lengths[column.layout.dims[0]])
        remove_other_files(self.path, self._contents)
        for folder in self.path.iterdir():
            if folder.is_dir() and folder.name not in (*self._contents.layouts, dropped.DROPPED):
                Column.clear(folder)  # a scalar that was never committed


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
