"""What of a run is kept: fewer spectra, fewer digits, overlaps where a claim or figure looks.

Declared for each experiment, so that all its runs and seeds together stay below `LIMIT`. Losses and
other scalars are kept at every snapshot. Spectra that are not stand on an axis of their own,
`kept_step` or `end_step`; `spread` puts them beside the losses again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import xarray as xr
from jaxtyping import Float

from rankscope.lab.identity import declaration
from rankscope.lab.results.archive import open_archive

LIMIT = 10_000_000  # bytes of an experiment, all seeds together
LEADING = 10  # directions whose overlaps are averaged, yunis2024 Eq. 3
KEPT, ENDS = "kept_step", "end_step"

# Left out everywhere: what took how long, and long descriptions that the declaration implies.
TIMES = "tracker_"
DESCRIPTIONS = ("coverage", "manifest", "schedule")

# Of the mantissa; single precision has 23, and 11 are an error of 0.02% at most.
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
        "z",
        "y",
    ),
    11,
)


@dataclass(frozen=True)
class Compaction:
    """bits: of the mantissas of these variables; others stay as they are.

    stride: of those that have steps every so many snapshots are kept, and the last.
    ends: those of which only the first and the last are.
    """

    stride: int = 1
    bits: Mapping[str, int] = field(default_factory=lambda: dict(BITS))
    ends: tuple[str, ...] = ()


# boix2023 speaks of changes of products; it reads the products themselves at the start, and
# matrices only to tell whether a run collapsed.
VIT = Compaction(
    stride=5,
    bits={**BITS, "product_change_singular_values": 7},
    ends=tuple(name for name in BITS if name != "product_change_singular_values"),
)
# Entries over time are there to be looked at; claims read when they cross a threshold.
FLOWS = Compaction(bits={**BITS, "z": 8, "y": 8})
COMPACTIONS = {
    "boix2023/toy-diag": FLOWS,
    "boix2023/diag-transformer": FLOWS,
    "yunis2024/vgg": Compaction(stride=2),
    "yunis2024/lstm": Compaction(stride=2, bits={**BITS, "singular_values": 9}),
    "yunis2024/lm": Compaction(bits={**BITS, "singular_values": 9}),
    "boix2023/vit-cifar10": VIT,
    "boix2023/vit-cifar100": VIT,
    "boix2023/vit-imagenet": VIT,
    "boix2023/vit-variants": VIT,
}


def compaction_of(experiment: str) -> Compaction:
    """The declared one; by default every snapshot is kept."""
    return COMPACTIONS.get(experiment, Compaction())


def compact(ds: xr.Dataset, how: Compaction) -> xr.Dataset:
    """What is kept of a run; `compaction` in its attributes says how it was chosen."""
    wanted = [str(name) for name in ds if not str(name).startswith(TIMES)]
    kept = ds[wanted].assign({name: _kept(ds, name, how) for name in wanted}).load()
    attrs = {name: value for name, value in ds.attrs.items() if name not in DESCRIPTIONS}
    kept.attrs = {**attrs, "compaction": declaration(how)}
    return kept


def open_kept(path: Path) -> xr.Dataset:
    """The kept run in a file, like one that was opened where it was made."""
    return spread(open_archive(path))


def spread(ds: xr.Dataset) -> xr.Dataset:
    """With all variables over `step`, as in the run itself.

    Between two kept snapshots stands the straight line between them, which any plot of kept
    ones alone would draw too; what is kept at both ends alone is NaN between.
    """
    if "step" not in ds.dims:
        return ds
    found = {str(name): _spread(array, ds["step"]) for name, array in ds.items()}
    return ds.drop_dims([KEPT, ENDS], errors="ignore").assign(found)[[*found]]


def _spread(array: xr.DataArray, step: xr.DataArray) -> xr.DataArray:
    if ENDS in array.dims:
        return array.rename({ENDS: "step"}).reindex(step=step)
    if KEPT not in array.dims:
        return array
    kept, wanted = array[KEPT].to_numpy(), step.to_numpy()
    before = np.searchsorted(kept, wanted, side="right") - 1
    after = np.minimum(before + 1, len(kept) - 1)
    gap = np.maximum(kept[after] - kept[before], 1)
    share = xr.DataArray((wanted - kept[before]) / gap, dims="step").astype(array.dtype)
    first, second = (
        array.isel({KEPT: places}).drop_vars(KEPT).rename({KEPT: "step"})
        for places in (before, after)
    )
    line = first.where(share == 0, (1 - share) * first + share * second)
    return line.transpose(*first.dims).assign_coords(step=step)


def _kept(ds: xr.Dataset, name: str, how: Compaction) -> xr.DataArray:
    array = ds[name]
    if name not in how.bits:
        return array
    if "step" not in array.dims:
        return _shortened(array, how.bits[name])
    axis, places = _places(ds.sizes["step"], how, ends=name in how.ends)
    part = ds[[name]].isel(step=places)
    chosen = _fewer_overlaps(part, name) if "pair" in array.dims else part[name]
    short = _shortened(chosen, how.bits[name])
    return short.rename(step=axis) if len(places) < ds.sizes["step"] else short


def _places(steps: int, how: Compaction, *, ends: bool) -> tuple[str, list[int]]:
    """Which snapshots are kept, and the axis they stand on if they are not all."""
    last = max(steps - 1, 0)
    if ends:
        return ENDS, sorted({0, last})
    return KEPT, sorted({*range(0, steps, how.stride), last})


def _fewer_overlaps(ds: xr.Dataset, name: str) -> xr.DataArray:
    """Overlaps of the first ten directions; of all of the pair that is shown, and at the end.

    Those of other taps, of which there are most, at the end only: one claim reads them.
    """
    last = np.arange(ds.sizes["step"]) == ds.sizes["step"] - 1
    pairs = (ds["pair_kind"].to_numpy() != "tap") | last[:, None]  # (step, pair)
    if "i" not in ds[name].dims:
        return _where(ds[name], xr.DataArray(pairs, dims=("step", "pair")))
    shown = ds["pair"].to_numpy() == ds.attrs.get("shown_pair")
    deep = (shown | last[:, None]) & (name == "alignment")
    leading = np.arange(ds.sizes["i"]) < LEADING
    mask = pairs[..., None] & (deep[..., None] | leading)
    return _where(ds[name], xr.DataArray(mask, dims=("step", "pair", "i")))


def _where(array: xr.DataArray, mask: xr.DataArray) -> xr.DataArray:
    return array.where(mask).transpose(*array.dims)


def _shortened(array: xr.DataArray, bits: int) -> xr.DataArray:
    return array.copy(data=rounded(array.to_numpy(), bits))


def rounded(values: Float[np.ndarray, "*axes"], bits: int) -> Float[np.ndarray, "*axes"]:
    """To the nearest number whose mantissa has so many bits: an error of at most 2^-(bits + 1).

    A zero stays a zero, an order stays an order, and what is not finite stays what it is.
    """
    whole = np.dtype(f"u{values.itemsize}").type
    cut = np.finfo(values.dtype).nmant - bits
    pattern = np.ascontiguousarray(values).view(whole)
    odd = (pattern >> whole(cut)) & whole(1)
    up = pattern + whole((1 << (cut - 1)) - 1) + odd  # ties to even
    short = (up >> whole(cut) << whole(cut)).view(values.dtype)
    return np.where(np.isfinite(values), short, values)
