"""Spectra and stable ranks of vision transformers for the panels of figures."""

from collections.abc import Iterable

import numpy as np
import xarray as xr
from jaxtyping import Float

from rankscope.figures.over_time import trimmed
from rankscope.figures.seeds import Setting
from rankscope.lab.judging.runs import Runs, Seeds
from rankscope.lab.papers.boix2023.figures.products import HeadSpectra, SpectraOfHeads, Values
from rankscope.lab.papers.boix2023.figures.stable_ranks import Course
from rankscope.lab.papers.boix2023.runs import (
    CHANGE,
    INITIAL,
    KINDS,
    Kind,
    change_ranks,
    growth_window,
    moment,
    spectra,
    time_unit,
    times,
)
from rankscope.lab.training.outcome import collapsed

MOMENTS = 5  # snapshots whose changes are shown


def settings_by_scale(runs: Runs) -> dict[float, Setting]:
    """Return the runs of one network by initial scale, ascending."""
    by_init_scale = runs.by("scale").items()
    return {init_scale: _setting(init_scale, seeds) for init_scale, seeds in by_init_scale}


def default_setting(runs: Runs) -> Setting:
    """Return the runs of one network at initial scale 1, or at the nearest to it."""
    settings = settings_by_scale(runs)
    return settings[min(settings, key=lambda init_scale: abs(np.log(init_scale)))]


def _setting(init_scale: float, seeds: Seeds) -> Setting:
    datasets = tuple(seeds[seed] for seed in sorted(seeds))
    return Setting(f"scale {init_scale:g}", datasets, tuple(map(collapsed, datasets)))


def all_collapsed(setting: Setting) -> bool:
    """Whether every run collapsed."""
    return all(setting.collapsed)


def counted(setting: Setting) -> list[xr.Dataset]:
    """Return the runs that did not collapse, or all of them if they all did."""
    trained = [ds for ds, why in zip(setting.runs, setting.collapsed, strict=True) if not why]
    return trained or list(setting.runs)


def label(setting: Setting) -> str:
    """Return the name of a line, with how many of its seeds collapsed."""
    lost, total = sum(map(bool, setting.collapsed)), len(setting.runs)
    if not lost:
        return setting.title
    if lost == total:
        return f"{setting.title} (collapsed)"
    return f"{setting.title} ({lost} of {total} seeds left out: collapsed)"


def block_numbers(ds: xr.Dataset) -> list[int]:
    """Return the numbers of blocks, from 1."""
    numbers: list[int] = change_ranks(ds.isel(step=[0]), "kq")["block"].to_numpy().tolist()
    return numbers


def title(kind: Kind, block: int) -> str:
    """Return "K-Q, block 1"."""
    return f"{KINDS[kind]}, block {block}"


def head_spectra(ds: xr.Dataset, kind: Kind, block: int) -> HeadSpectra:
    """Return spectra of a block's first head: at the start, and of the change at some moments."""
    chosen = moments(ds)
    start = spectra(ds.isel(step=[0]), kind, of=INITIAL).sel(block=block, head=1)
    change = spectra(ds.isel(step=chosen), kind, of=CHANGE).sel(block=block, head=1)
    names = [moment(ds, position) for position in chosen]
    return HeadSpectra(unpadded(start)[0], dict(zip(names, unpadded(change), strict=True)))


def moments(ds: xr.Dataset) -> list[int]:
    """Return positions of snapshots from epoch 1 to the end, evenly spaced in log time."""
    steps = ds["step"].to_numpy()
    first = min(growth_window(ds).first, len(steps) - 1)
    wanted = np.geomspace(steps[first], steps[-1], MOMENTS) if steps[first] > 0 else [0.0]
    nearest = (int(np.abs(steps - step).argmin()) for step in wanted)
    return list(dict.fromkeys(nearest))


def heads_of_blocks(ds: xr.Dataset, kind: Kind) -> dict[str, SpectraOfHeads]:
    """Return spectra of all heads of each block: at the start, and of the change at the end."""
    start = spectra(ds.isel(step=[0]), kind, of=INITIAL)[0]
    change = spectra(ds.isel(step=[-1]), kind, of=CHANGE)[0]
    return {
        title(kind, block): SpectraOfHeads(
            unpadded(start.sel(block=block)), unpadded(change.sel(block=block))
        )
        for block in block_numbers(ds)
    }


def leading(ds: xr.Dataset, kind: Kind, block: int) -> Values:
    """Return singular values of the change of a block's first head over training."""
    change = spectra(ds, kind, of=CHANGE).sel(block=block, head=1)
    return Values(times(ds), unpadded(change), time_unit(ds))


def unpadded(S: xr.DataArray) -> Float[np.ndarray, "row k"]:
    """Return (row, k) values without the NaN that pads them to the longest spectrum."""
    return trimmed(S.to_numpy().astype(np.float64))


def final_ranks(setting: Setting, kind: Kind) -> Float[np.ndarray, "block head"]:
    """Return stable ranks of the change at the end for the heads of all counted seeds."""
    ends = (change_ranks(ds.isel(step=[-1]), kind)[0] for ds in counted(setting))
    return np.concatenate([end.to_numpy() for end in ends], axis=1).astype(np.float64)


def courses(setting: Setting, kind: Kind) -> list[Course]:
    """Return stable ranks of each block's change over training, for heads of all counted seeds.

    They are read at the snapshots that all seeds have, so until the first seed stops.
    """
    runs = counted(setting)
    ranks = [change_ranks(ds, kind) for ds in runs]
    together = xr.concat(ranks, "head", join="inner", coords="minimal", compat="override")
    together = together.isel(step=slice(1, None)).transpose("block", "step", "head")
    common = runs[0].sel(step=together["step"])
    settled = settled_time(runs, times(common))
    return [
        Course(times(common), block.to_numpy().astype(np.float64), settled) for block in together
    ]


def settled_time(runs: Iterable[xr.Dataset], within: Float[np.ndarray, " step"]) -> float | None:
    """Return when the training loss of all runs has settled; None if not within these times."""
    windows = [(growth_window(ds), times(ds)) for ds in runs]
    latest = max(float(time[window.last]) for window, time in windows)
    all_settled = all(window.settled for window, _ in windows)
    return latest if all_settled and within[0] <= latest <= within[-1] else None
