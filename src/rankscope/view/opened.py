"""A run that is open in the viewer: its Dataset at one commit, its axes, its rows by plain name."""

import json
import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import xarray as xr

from rankscope import store
from rankscope.plain_names import PlainName, plain_names, plain_pairs
from rankscope.view.discovery import Place
from rankscope.view.gaps import is_odd

# What is read or held at once; a metric is computed part by part.
MOST_BYTES = 128 * 1024 * 1024
CACHE_BYTES = 64 * 1024 * 1024
MOST_ROWS = 100_000  # matrices, pairs or products of one run
MOST_SNAPSHOTS = 5_000_000


class TooLarge(ValueError):
    """More was asked for than the viewer reads at once."""


class ArrayCache:
    """Arrays of archives, which are read whole; those used last stay in memory."""

    def __init__(self, most_bytes: int = CACHE_BYTES) -> None:
        self._arrays: OrderedDict[tuple[str, str, str], xr.DataArray] = OrderedDict()
        self._most_bytes = most_bytes
        self._lock = threading.Lock()

    def get(self, opened: "Opened", name: str) -> xr.DataArray:
        """Return an array of an archive with its values."""
        key = (opened.place.key, opened.commit, name)
        with self._lock:
            array = self._arrays.get(key)
        if array is None:
            array = opened.ds[name].compute()  # load() would leave the values in the Dataset
        with self._lock:
            self._arrays[key] = array
            self._arrays.move_to_end(key)
            while sum(one.nbytes for one in self._arrays.values()) > self._most_bytes:
                self._arrays.popitem(last=False)
        return array


class Opened:
    """One run at one commit. The Dataset reads its values when they are used."""

    def __init__(self, place: Place, cache: ArrayCache, *, ds: xr.Dataset | None = None) -> None:
        """Open the run at `place`, or show `ds`."""
        self.place, self.commit = place, place.commit
        self._cache = cache
        self._rows: dict[str, list[dict[str, Any]]] = {}
        self._whole: dict[str, np.ndarray] = {}
        if ds is None:
            ds = store.open(place.path, within=place.root, at_once=False)
        self.ds = ds
        axes = self.ds.attrs.get("append_axes", "[]")
        growing = json.loads(axes) if isinstance(axes, str) else list(axes)
        known = [axis for axis in ("step", "time", *growing) if axis in self.ds.sizes]
        self.along: str = known[0] if known else "step"
        for dim, size in self.ds.sizes.items():
            most = MOST_SNAPSHOTS if dim in growing else MOST_ROWS
            if size > most:
                raise TooLarge(f"the run declares {size} entries along {dim!r}, more than {most}")
        # Once, since every part of a variable has them.
        self.ds = self.ds.assign_coords(
            {name: coord.load() for name, coord in self.ds.coords.items()}
        )

    @cached_property
    def x(self) -> np.ndarray:
        """Positions along the time axis."""
        if self.along not in self.ds.sizes:
            return np.zeros(0)
        return np.asarray(self.ds[self.along].to_numpy())

    @property
    def attrs(self) -> dict[Hashable, Any]:
        return self.ds.attrs

    @cached_property
    def names(self) -> dict[str, list[str]]:
        """Names along each axis of rows."""
        return {
            dim: self.ds[dim].to_numpy().astype(str).tolist()
            for dim in map(str, self.ds.sizes)
            if dim in self.ds.coords and self.ds[dim].dtype.kind in "OTU"
        }

    @cached_property
    def plain(self) -> dict[str, list[PlainName]]:
        """Plain names along each axis of rows."""
        words = {dim: plain_names(names) for dim, names in self.names.items() if dim != "pair"}
        if {"earlier", "later"} <= self.ds.coords.keys():
            words["pair"] = plain_pairs(self.texts("earlier"), self.texts("later"))
        elif "pair" in self.names:
            words["pair"] = plain_names(self.names["pair"])
        return words

    def texts(self, name: str) -> list[str]:
        """Return a coordinate of strings."""
        texts: list[str] = self.ds[name].to_numpy().astype(str).tolist()
        return texts

    def numbers(self, name: str) -> list[Any] | None:
        """Return a coordinate of numbers, None if the run has none of that name."""
        return None if name not in self.ds else self.ds[name].to_numpy().tolist()

    def rows_of(self, axis: str) -> list[dict[str, Any]]:
        """Return what is known of each row of an axis: names, shape, kind."""
        if axis not in self._rows:
            self._rows[axis] = self._describe(axis)
        return self._rows[axis]

    def _describe(self, axis: str) -> list[dict[str, Any]]:
        prefix = "product_" if axis == "product" else ""
        m, n = (self.numbers(f"{prefix}{name}") for name in "mn")
        r = self.numbers("product_r") if axis == "product" else None  # the inner width
        kinds = self._along(f"{axis}_kind" if axis != "matrix" else "kind", axis)
        more = {name: self._along(name, axis) for name in ("part_of", "dtype", "earlier", "later")}
        chance = self.numbers("chance") if axis == "pair" else None
        rows = []
        for i, (name, plain) in enumerate(zip(self.names[axis], self.plain[axis], strict=True)):
            row = {
                "name": name,
                "label": plain.label,
                "block": plain.block,
                "depth": plain.depth,
                "kind": plain.role if axis == "matrix" or kinds is None else kinds[i],
                "kind_label": plain.role,
                "layer_kind": None if kinds is None else kinds[i],
                "head": plain.head,
            }
            if axis in ("matrix", "product") and m is not None and n is not None:
                row |= {"m": m[i], "n": n[i], "k": min(m[i], n[i], r[i] if r else m[i])}
            if axis == "pair" and chance is not None:
                row["chance"] = chance[i]
            if axis == "product":
                row["layer"] = plain.depth
            rows.append(row | {key: text[i] for key, text in more.items() if text is not None})
        return rows

    def whole(self, axis: str) -> np.ndarray:
        """Return the positions of rows that are no part of another."""
        if axis not in self._whole:
            parts = self._along("part_of", axis)
            size = self.ds.sizes[axis]
            is_whole = [part == "" for part in parts] if parts else [True] * size
            self._whole[axis] = np.flatnonzero(is_whole)
        return self._whole[axis]

    def row(self, axis: str, name: str) -> int:
        """Return the position of a name; ValueError if there is none."""
        try:
            return self.names[axis].index(name)
        except (KeyError, ValueError):
            raise LookupError(f"this run has no {axis} of that name; look at /api/run") from None

    def read(self, name: str, **selection: Any) -> np.ndarray:
        """Return a part of a variable; TooLarge if it is more than is read at once."""
        return np.asarray(self._part(name, selection).to_numpy())

    def spectra(self, of: str, when: int | slice, row: int, k: int) -> np.ndarray:
        """Return the first `k` values of one row at some times."""
        along, axis, last = map(str, self.ds[of].dims)
        return self.read(of, **{along: when, axis: row, last: slice(0, k)})

    def is_odd(self, positions: np.ndarray, axis: str, row: int) -> np.ndarray:
        """Return at which times a row was measured and is zero or not finite.

        The rows of another axis than that of `status` are odd where any matrix is.
        """
        if "status" not in self.ds or not len(positions):
            return np.zeros(len(positions), bool)
        first = int(positions[0])
        part: dict[str, Any] = {self.along: slice(first, int(positions[-1]) + 1)}
        status = self._part("status", part).transpose(self.along, ...)
        odd = is_odd(status)[positions - first]
        return np.asarray(odd[:, row] if axis in status.dims else odd.any(axis=1))

    def part(self, names: Iterable[str], **selection: Any) -> xr.Dataset:
        """Return a part of some variables with its values, and the coordinates they have."""
        return xr.Dataset({name: self._part(name, selection) for name in names}).load()

    def _part(self, name: str, selection: Mapping[str, Any]) -> xr.DataArray:
        array = self.ds[name]
        part = array.isel(selection)
        if part.nbytes > MOST_BYTES:
            raise TooLarge(
                f"that is {part.nbytes // 2**20} MiB of {name!r}; choose a shorter interval"
            )
        if self.place.is_archive and array.nbytes <= CACHE_BYTES:
            part = self._cache.get(self, name).isel(selection)
        return part

    def scalars(self) -> dict[str, str]:
        """Return the axis of each scalar, by its name; what tracking cost is none."""
        return {
            str(name): str(array.dims[0])
            for name, array in self.ds.data_vars.items()
            if array.ndim == 1
            and array.dtype.kind in "fiu"
            and array.dims[0] in (self.along, "train_step")
        }

    def _along(self, name: str, axis: str) -> list[str] | None:
        if name not in self.ds or self.ds[name].dims != (axis,):
            return None
        return self.texts(name)
