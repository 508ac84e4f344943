"""Compaction: the archived form of a run has fewer digits, and spectra of about 40 snapshots.

Losses and other scalars have every snapshot. Each experiment declares how many digits and which
variables. Values that no claim or figure reads become NaN, which takes no room.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import xarray as xr
from jaxtyping import Float

from rankscope.lab.running.identity import declaration

LEADING = 10  # directions over which alignment is averaged

OVERLAPS = tuple(
    f"alignment{kind}{level}" for kind in ("", "_normalized") for level in ("", "_background")
)
TINY = float(np.finfo(np.float32).tiny)  # float32 loses digits below it

# Stored at a few snapshots where a training has many.
SPECTRA = ("singular_values", "alignment_normalized", "alignment_normalized_background")

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
    absent: variables that are not stored.
    """

    bits: Mapping[str, int] = field(default_factory=lambda: dict(BITS))
    ends: tuple[str, ...] = ()
    absent: tuple[str, ...] = field(default=(), metadata={"later": True})


@dataclass(frozen=True)
class Thinned:
    """A compaction that stores some variables at a few snapshots only.

    variables: those stored at a few of the snapshots, or of the times of a flow. Of overlaps that
    are not among them, directions after the tenth are.
    most: number of these snapshots; fewer if some coincide.
    grains: variables stored as multiples of a number, so that small values become 0.
    """

    compaction: Compaction
    variables: tuple[str, ...]
    most: int = 40
    grains: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Leading:
    """A compaction that stores only the leading values of some spectra.

    values: number of leading singular values, by variable.
    """

    compaction: Compaction
    values: Mapping[str, int]


@dataclass(frozen=True)
class CoarseTails:
    """A compaction that stores the small values of some spectra with fewer digits.

    At the first and the last snapshot they have all their digits. Sums over a spectrum hardly
    change, since errors of many values cancel.

    leading: number of values that are not small, by variable.
    bits: bits of the mantissa of all later values.
    """

    compaction: Compaction
    leading: Mapping[str, int]
    bits: int = 3


Way = Compaction | Thinned | Leading | CoarseTails

FEW_SPECTRA = Thinned(Compaction(), SPECTRA)  # for a training with a hundred snapshots or more


def compact(ds: xr.Dataset, how: Way) -> xr.Dataset:
    """Return the archived form of a run; its attribute `compaction` says how it was made.

    A run that was compacted before may be compacted further.
    """
    absent = rules_of(how).absent
    names = [str(n) for n in ds if not str(n).startswith(TIMES) and n not in absent]
    shorter = {*rules_of(how).bits, *_grains(how)}
    shortened = {name: _shortened(ds, name, how) for name in names if name in shorter}
    compacted = ds[names].assign(shortened).load()
    attrs = {name: value for name, value in ds.attrs.items() if name not in DESCRIPTIONS}
    compacted.attrs = {**attrs, "compaction": declaration(how)}
    return compacted


def rules_of(how: Way) -> Compaction:
    """Return what holds at the snapshots that are stored."""
    return how if isinstance(how, Compaction) else how.compaction


def _grains(how: Way) -> Mapping[str, float]:
    return how.grains if isinstance(how, Thinned) else {}


def _shortened(ds: xr.Dataset, name: str, how: Way) -> xr.DataArray:
    array, grain = ds[name], _grains(how).get(name)
    if grain is None:
        short = array.copy(data=rounded(array.to_numpy(), rules_of(how).bits[name]))
        if isinstance(how, CoarseTails) and name in how.leading:
            short = _with_coarse_tails(short, how.leading[name], how.bits)
    else:
        short = (array / grain).round() * grain + 0.0  # no negative zeros
    for mask in _masks(ds, name, how):
        short = short.where(mask)
    return short.transpose(*array.dims)


def _with_coarse_tails(spectra: xr.DataArray, leading: int, bits: int) -> xr.DataArray:
    """Round the values after the leading ones, but for both ends; they stay in order."""
    coarse = spectra.copy(data=rounded(spectra.to_numpy(), bits))
    step, k = (xr.DataArray(np.arange(spectra.sizes[axis]), dims=[axis]) for axis in ("step", "k"))
    exact = (k < leading) | (step == 0) | (step == step[-1])
    least = spectra.isel(k=min(leading, spectra.sizes["k"]) - 1, drop=True)
    return spectra.where(exact, coarse.where(~(coarse > least), least)).transpose(*spectra.dims)


def _masks(ds: xr.Dataset, name: str, how: Way) -> Iterator[xr.DataArray]:
    """Yield masks of the values that stay; each axis has its own reason to drop some."""
    axes = ds[name].dims
    place = {axis: xr.DataArray(np.arange(ds.sizes[axis]), dims=[axis]) for axis in axes}
    thinned = how.variables if isinstance(how, Thinned) else ()
    if "time" in axes and name in thinned:
        yield _stored(ds, "time", how)
    if "step" not in axes:
        return
    stored, last = _stored(ds, "step", how), place["step"] == ds.sizes["step"] - 1
    if name in thinned:
        yield stored
    if name in rules_of(how).ends:
        yield last | (place["step"] == 0)
    if isinstance(how, Leading) and name in how.values:
        yield place["k"] < how.values[name]
    if "matrix" in axes:  # parts of matrices: only the largest value, which tells if it is zero
        yield _where(ds, "matrix", "part_of", "") | (place["k"] == 0)
    if "pair" in axes:  # filter taps beside the centre: only the end, where a claim reads them
        yield ~_where(ds, "pair", "pair_kind", "tap") | last
    if "i" in axes:  # all directions only for the pair that figures show, and at the end
        shown = _where(ds, "pair", "pair", ds.attrs.get("shown_pair", ""))
        yield (place["i"] < LEADING) | (((shown & stored) | last) & (name == "alignment"))
    if name in OVERLAPS and "singular_values" in thinned:  # without which nobody can tell
        yield stored | ~of_zero_matrices(ds)


def _where(ds: xr.Dataset, axis: str, coordinate: str, value: str) -> xr.DataArray:
    return xr.DataArray(ds[coordinate].to_numpy() == value, dims=axis)


def _stored(ds: xr.Dataset, axis: str, how: Way) -> xr.DataArray:
    """Whether thinned variables are stored at a snapshot, or at a time of a flow."""
    count = ds.sizes[axis]
    places = chosen(count, how.most) if isinstance(how, Thinned) else np.arange(count)
    return xr.DataArray(np.isin(np.arange(count), places), dims=axis)


def chosen(count: int, most: int) -> np.ndarray:
    """Positions of at most `most` of `count` snapshots, the first and the last among them.

    A third of them lies at equal ratios, since changes are fast early, the others at equal
    distances.
    """
    early = np.geomspace(1, count, max(most // 3, 2)) - 1
    even = np.linspace(0, count - 1, max(most - most // 3, 2))
    return np.unique(np.concatenate([early, even]).round().astype(int))


def of_zero_matrices(ds: xr.Dataset) -> xr.DataArray:
    """(pair, step): whether a matrix of the pair is zero, so that its overlaps mean nothing.

    The solver chooses the singular vectors of a zero matrix. Those of a matrix too small for
    float32's precision consist of rounding errors.
    """
    zero = ds["singular_values"].isel(k=0).transpose("step", "matrix").to_numpy() < TINY
    zero_at = dict(zip(ds["matrix"].to_numpy(), zero.T, strict=True))
    never = np.zeros(ds.sizes["step"], bool)
    ends = zip(ds["earlier"].to_numpy(), ds["later"].to_numpy(), strict=True)
    dead = [zero_at.get(u, never) | zero_at.get(v, never) for u, v in ends]
    return xr.DataArray(np.array(dead).reshape(-1, ds.sizes["step"]), dims=("pair", "step"))


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
