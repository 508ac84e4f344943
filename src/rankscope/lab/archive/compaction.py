"""Compaction: the archived form of a run has every snapshot, with fewer digits.

Each experiment declares how many. Values that no claim or figure reads become NaN, which takes no
room.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import xarray as xr
from jaxtyping import Float

from rankscope.lab.running.identity import declaration

LEADING = 10  # directions over which alignment is averaged

# Dropped from every run: the tracker's cost, and long descriptions that the declaration implies.
TIMES = "tracker_"
DESCRIPTIONS = ("coverage", "manifest", "schedule")

# Bits of the mantissa. Single precision has 23; with 9 the error is at most 0.1%.
BITS = dict.fromkeys(
    (
        "singular_values",
        "change_singular_values",
        "product_singular_values",
        "product_change_singular_values",
        "alignment",
        "alignment_normalized",
        "alignment_background",
        "alignment_normalized_background",
    ),
    9,
)


@dataclass(frozen=True)
class Compaction:
    """Rules by which a run is shortened.

    bits: bits of the mantissa by variable; other variables stay as they are.
    ends: variables of which only the first and the last snapshot are stored.
    """

    bits: Mapping[str, int] = field(default_factory=lambda: dict(BITS))
    ends: tuple[str, ...] = ()


def compact(ds: xr.Dataset, how: Compaction) -> xr.Dataset:
    """Return the archived form of a run; its attribute `compaction` says how it was made."""
    names = [str(name) for name in ds if not str(name).startswith(TIMES)]
    shortened = {name: _shortened(ds, name, how) for name in names if name in how.bits}
    compacted = ds[names].assign(shortened).load()
    attrs = {name: value for name, value in ds.attrs.items() if name not in DESCRIPTIONS}
    compacted.attrs = {**attrs, "compaction": declaration(how)}
    return compacted


def _shortened(ds: xr.Dataset, name: str, how: Compaction) -> xr.DataArray:
    array = ds[name]
    short = array.copy(data=rounded(array.to_numpy(), how.bits[name]))
    for mask in _masks(ds, name, how):
        short = short.where(mask)
    return short.transpose(*array.dims)


def _masks(ds: xr.Dataset, name: str, how: Compaction) -> Iterator[xr.DataArray]:
    """Yield masks of the values that stay; each axis has its own reason to drop some."""
    place = {axis: xr.DataArray(np.arange(ds.sizes[axis]), dims=[axis]) for axis in ds.sizes}
    axes = ds[name].dims
    if "step" not in axes:
        return
    last = place["step"] == ds.sizes["step"] - 1
    if name in how.ends:
        yield last | (place["step"] == 0)
    if "matrix" in axes:  # parts of matrices: only the largest value, which tells if it is zero
        yield _where(ds, "matrix", "part_of", "") | (place["k"] == 0)
    if "pair" in axes:  # filter taps beside the centre: only the end, where a claim reads them
        yield ~_where(ds, "pair", "pair_kind", "tap") | last
    if "i" in axes:  # all directions only for the pair that figures show, and at the end
        deep = _where(ds, "pair", "pair", ds.attrs.get("shown_pair", "")) | last
        yield (place["i"] < LEADING) | (deep & (name == "alignment"))


def _where(ds: xr.Dataset, axis: str, coordinate: str, value: str) -> xr.DataArray:
    return xr.DataArray(ds[coordinate].to_numpy() == value, dims=axis)


def rounded(values: Float[np.ndarray, "*axes"], bits: int) -> Float[np.ndarray, "*axes"]:
    """Round to the nearest number with this many mantissa bits: error at most 2^-(bits + 1).

    Zeros stay zeros and the order of values stays. Values that are not finite, or so small that
    they are subnormal, stay as they are.
    """
    whole, limits = np.dtype(f"u{values.itemsize}").type, np.finfo(values.dtype)
    cut = limits.nmant - bits
    pattern = np.ascontiguousarray(values).view(whole)
    odd = (pattern >> whole(cut)) & whole(1)
    up = pattern + whole((1 << (cut - 1)) - 1) + odd  # ties to even
    short = (up >> whole(cut) << whole(cut)).view(values.dtype)
    return np.where(np.isfinite(values) & (np.abs(values) >= limits.tiny), short, values)
