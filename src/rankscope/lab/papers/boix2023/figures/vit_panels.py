"""Spectra and stable ranks of vision transformers, as the panels of their figures show them."""

from collections.abc import Iterable

import numpy as np
import xarray as xr
from jaxtyping import Float

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

MOMENTS = 5  # snapshots at which changes are shown


def settings_by_scale(runs: Runs) -> dict[float, Setting]:
    """Return the runs of one network by initial scale, ascending."""
    return {factor: _setting(factor, seeds) for factor, seeds in runs.by("scale").items()}


def default_setting(runs: Runs) -> Setting:
    """Return the runs of one network at initial scale 1, or at the nearest to it."""
    settings = settings_by_scale(runs)
    return settings[min(settings, key=lambda factor: abs(np.log(factor)))]


def _setting(init_scale: float, seeds: Seeds) -> Setting:
    datasets = tuple(seeds[seed] for seed in sorted(seeds))
    return Setting(f"scale {init_scale:g}", datasets, tuple(map(collapsed, datasets)))


def all_collapsed(setting: Setting) -> bool:
    return all(setting.collapsed)


def counted(setting: Setting) -> list[xr.Dataset]:
    """Return the runs that did not collapse, or all of them if they all did."""
    trained = [ds for ds, why in zip(setting.runs, setting.collapsed, strict=True) if not why]
    return trained or list(setting.runs)


def label(setting: Setting) -> str:
    """The name of a line, and how many of its seeds collapsed."""
    lost, every = sum(map(bool, setting.collapsed)), len(setting.runs)
    if not lost:
        return setting.title
    share = "" if lost == every else f"{lost} of {every} seeds left out: "
    return f"{setting.title} ({share}collapsed)"


def block_numbers(ds: xr.Dataset) -> list[int]:
    numbers: list[int] = change_ranks(ds.isel(step=[0]), "kq")["block"].to_numpy().tolist()
    return numbers


def title(kind: Kind, block: int) -> str:
    return f"{KINDS[kind]}, block {block}"


def head_spectra(ds: xr.Dataset, kind: Kind, block: int) -> HeadSpectra:
    """Of the first head of a block: at the start, and of the change at some moments."""
    chosen = moments(ds)
    start = spectra(ds.isel(step=[0]), kind, of=INITIAL).sel(block=block, head=1)
    change = spectra(ds.isel(step=chosen), kind, of=CHANGE).sel(block=block, head=1)
    names = [moment(ds, position) for position in chosen]
    return HeadSpectra(cut(start)[0], dict(zip(names, cut(change), strict=True)))


def moments(ds: xr.Dataset) -> list[int]:
    """Positions of some snapshots from epoch 1 to the end, at equal distances in log time."""
    steps = ds["step"].to_numpy()
    first = min(growth_window(ds).first, len(steps) - 1)
    wanted = np.geomspace(steps[first], steps[-1], MOMENTS) if steps[first] > 0 else [0.0]
    nearest = (int(np.abs(steps - step).argmin()) for step in wanted)
    return list(dict.fromkeys(nearest))


def heads_of_blocks(ds: xr.Dataset, kind: Kind) -> dict[str, SpectraOfHeads]:
    """The spectra of all heads of each block, at the start and of the change at the end."""
    start = spectra(ds.isel(step=[0]), kind, of=INITIAL)[0]
    change = spectra(ds.isel(step=[-1]), kind, of=CHANGE)[0]
    return {
        title(kind, block): SpectraOfHeads(
            cut(start.sel(block=block)), cut(change.sel(block=block))
        )
        for block in block_numbers(ds)
    }


def leading(ds: xr.Dataset, kind: Kind, block: int) -> Values:
    """The change of the first head of a block over training."""
    change = spectra(ds, kind, of=CHANGE).sel(block=block, head=1)
    return Values(times(ds), cut(change), time_unit(ds))


def cut(S: xr.DataArray) -> Float[np.ndarray, "each k"]:
    """(each, k) without the NaN that pads it to the longest spectrum of the run."""
    values = S.to_numpy().astype(np.float64)
    return values[:, ~np.isnan(values).all(0)]


def final_ranks(setting: Setting, kind: Kind) -> Float[np.ndarray, "block head"]:
    """Stable ranks of the change at the end, of the heads of all seeds that count."""
    ends = (change_ranks(ds.isel(step=[-1]), kind)[0] for ds in counted(setting))
    return np.concatenate([end.to_numpy() for end in ends], axis=1).astype(np.float64)


def courses(setting: Setting, kind: Kind) -> list[Course]:
    """Stable ranks of the change over training of each block, of the heads of all those seeds.

    At the snapshots that all seeds have: where they stop at different steps, until the first does.
    """
    runs = counted(setting)
    ranks = [change_ranks(ds, kind) for ds in runs]
    together = xr.concat(ranks, "head", join="inner", coords="minimal", compat="override")
    together = together.isel(step=slice(1, None)).transpose("block", "step", "head")
    common = runs[0].sel(step=together["step"])
    settled = settled_time(runs, times(common))
    return [Course(times(common), each.to_numpy().astype(np.float64), settled) for each in together]


def settled_time(runs: Iterable[xr.Dataset], within: Float[np.ndarray, " step"]) -> float | None:
    """When the training loss of all runs has become negligible; None if not within these times."""
    windows = [(growth_window(ds), times(ds)) for ds in runs]
    latest = max(float(time[window.last]) for window, time in windows)
    every = all(window.settled for window, _ in windows)
    return latest if every and within[0] <= latest <= within[-1] else None
