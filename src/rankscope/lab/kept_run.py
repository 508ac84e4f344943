"""What is kept of a run of the paper's size, in one file: every snapshot, with fewer digits.

    <results>/<paper>/<experiment>/<run>/seed-0.zarr.zip

A folder of results is told from one of runs by its ledger. How many digits is declared for each
experiment, so that all its runs and seeds together stay below `LIMIT`. What no claim or figure
reads is NaN, which takes no room.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import xarray as xr
from jaxtyping import Float

from rankscope.lab.identity import declaration
from rankscope.store.archive import SUFFIX

LEDGER = "ledger.json"
LIMIT = 10_000_000  # bytes of an experiment, all seeds together
LEADING = 10  # directions whose overlaps are averaged, yunis2024 Eq. 3

# Left out everywhere: what took how long, and long descriptions that the declaration implies.
TIMES = "tracker_"
DESCRIPTIONS = ("coverage", "manifest", "schedule")

# Of the mantissa; single precision has 23, and 9 are an error of 0.1% at most.
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
    """bits: of the mantissas of these variables; others stay as they are.

    ends: those of which only the first and the last snapshot are kept.
    """

    bits: Mapping[str, int] = field(default_factory=lambda: dict(BITS))
    ends: tuple[str, ...] = ()


# boix2023 speaks of changes of products; it reads the products themselves at the start, and
# matrices only to tell whether a run collapsed.
VIT = Compaction(
    bits={**BITS, "product_change_singular_values": 7},
    ends=tuple(name for name in BITS if name != "product_change_singular_values"),
)
# Entries over time are there to be looked at; claims read when they cross a threshold.
FLOWS = Compaction(bits={"z": 8, "y": 8})
COMPACTIONS = {
    "yunis2024/vgg": Compaction(bits={**BITS, "singular_values": 8}),
    "yunis2024/lm": Compaction(bits={**BITS, "singular_values": 7}),
    "boix2023/toy-diag": FLOWS,
    "boix2023/diag-transformer": FLOWS,
    "boix2023/vit-cifar10": VIT,
    "boix2023/vit-cifar100": VIT,
    "boix2023/vit-imagenet": VIT,
    "boix2023/vit-variants": VIT,
}


def is_results(folder: Path) -> bool:
    """Whether `folder` holds kept results and not runs."""
    return (folder / LEDGER).is_file()


def kept_path(results: Path, experiment: str, run: str, seed: int) -> Path:
    return results / experiment / run / f"seed-{seed}{SUFFIX}"


def compaction_of(experiment: str) -> Compaction:
    return COMPACTIONS.get(experiment, Compaction())


def compact(ds: xr.Dataset, how: Compaction) -> xr.Dataset:
    """What is kept of a run; `compaction` in its attributes says how it was chosen."""
    wanted = [str(name) for name in ds if not str(name).startswith(TIMES)]
    short = {name: _short(ds, name, how) for name in wanted if name in how.bits}
    kept = ds[wanted].assign(short).load()
    attrs = {name: value for name, value in ds.attrs.items() if name not in DESCRIPTIONS}
    kept.attrs = {**attrs, "compaction": declaration(how)}
    return kept


def _short(ds: xr.Dataset, name: str, how: Compaction) -> xr.DataArray:
    array = ds[name]
    short = array.copy(data=rounded(array.to_numpy(), how.bits[name]))
    for mask in _masks(ds, name, how):
        short = short.where(mask)
    return short.transpose(*array.dims)


def _masks(ds: xr.Dataset, name: str, how: Compaction) -> Iterator[xr.DataArray]:
    """What is kept: by each of its axes another reason to leave something out."""
    place = {axis: xr.DataArray(np.arange(ds.sizes[axis]), dims=[axis]) for axis in ds.sizes}
    axes = ds[name].dims
    if "step" not in axes:
        return
    last = place["step"] == ds.sizes["step"] - 1
    if name in how.ends:
        yield last | (place["step"] == 0)
    if "matrix" in axes:  # of parts of matrices the largest value, which tells if it is zero
        yield _where(ds, "matrix", "part_of", "") | (place["k"] == 0)
    if "pair" in axes:  # of other taps, of which there are most, the end: one claim reads that
        yield ~_where(ds, "pair", "pair_kind", "tap") | last
    if "i" in axes:  # of the pair that is shown, and at the end, all directions
        deep = _where(ds, "pair", "pair", ds.attrs.get("shown_pair", "")) | last
        yield (place["i"] < LEADING) | (deep & (name == "alignment"))


def _where(ds: xr.Dataset, axis: str, coordinate: str, value: str) -> xr.DataArray:
    return xr.DataArray(ds[coordinate].to_numpy() == value, dims=axis)


def rounded(values: Float[np.ndarray, "*axes"], bits: int) -> Float[np.ndarray, "*axes"]:
    """To the nearest number whose mantissa has so many bits: an error of at most 2^-(bits + 1).

    A zero stays a zero, an order stays an order. What is not finite stays what it is, and so do
    numbers so small that they have fewer digits than others.
    """
    whole, limits = np.dtype(f"u{values.itemsize}").type, np.finfo(values.dtype)
    cut = limits.nmant - bits
    pattern = np.ascontiguousarray(values).view(whole)
    odd = (pattern >> whole(cut)) & whole(1)
    up = pattern + whole((1 << (cut - 1)) - 1) + odd  # ties to even
    short = (up >> whole(cut) << whole(cut)).view(values.dtype)
    return np.where(np.isfinite(values) & (np.abs(values) >= limits.tiny), short, values)
