"""Settings, blocks and stable ranks of vision transformers, as their figures show them."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float, Num
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.typing import ColorType

from rankscope.figures.over_time import Line, trimmed
from rankscope.figures.seeds import Setting
from rankscope.figures.style import BAND
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.papers.boix2023.runs import KINDS, Kind, change_ranks, growth_window, times
from rankscope.lab.training.outcome import collapsed

MOMENTS = 5  # snapshots whose changes are shown


def settings_by_scale(runs: Runs) -> dict[float, Setting]:
    """Return the runs of one network by initial scale, ascending."""
    settings = {}
    for init_scale, seeds in runs.by("scale").items():
        datasets = tuple(seeds[seed] for seed in sorted(seeds))
        reasons = tuple(map(collapsed, datasets))
        settings[init_scale] = Setting(f"scale {init_scale:g}", datasets, reasons)
    return settings


def default_setting(runs: Runs) -> Setting:
    """Return the runs of one network at initial scale 1, or at the nearest to it."""
    settings = settings_by_scale(runs)
    return settings[min(settings, key=lambda init_scale: abs(np.log(init_scale)))]


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


def heading(figure: Figure, setting: Setting, seeds: str) -> Figure:
    """Return the figure with a heading that names its runs and those that collapsed."""
    figure.suptitle(f"initial {label(setting)}, {seeds}", fontsize="medium")
    return figure


def draw_heads(
    axes: Axes,
    x: Num[np.ndarray, " x"],
    values: Float[np.ndarray, "head x"],
    colour: ColorType,
    *,
    style: Line = "-",
) -> None:
    """Draw the mean over heads, in a band of one standard deviation."""
    mean, deviation = values.mean(0), values.std(0)
    axes.fill_between(x, mean - deviation, mean + deviation, color=colour, alpha=BAND, linewidth=0)
    axes.plot(x, mean, color=colour, linestyle=style, linewidth=1.4)


def block_numbers(setting: Setting) -> list[int]:
    """Return the numbers of blocks, from 1."""
    first = setting.runs[0].isel(step=[0])
    numbers: list[int] = change_ranks(first, "kq")["block"].to_numpy().tolist()
    return numbers


def title(kind: Kind, block: int) -> str:
    """Return "K-Q, block 1"."""
    return f"{KINDS[kind]}, block {block}"


def moments(ds: xr.Dataset) -> list[int]:
    """Return positions of snapshots from epoch 1 to the end, evenly spaced in log time."""
    steps = ds["step"].to_numpy()
    first = min(growth_window(ds).first, len(steps) - 1)
    wanted = np.geomspace(steps[first], steps[-1], MOMENTS) if steps[first] > 0 else [0.0]
    nearest = (int(np.abs(steps - step).argmin()) for step in wanted)
    return list(dict.fromkeys(nearest))


def unpadded(S: xr.DataArray) -> Float[np.ndarray, "row k"]:
    """Return (row, k) values without the NaN that pads them to the longest spectrum."""
    return trimmed(S.to_numpy().astype(np.float64))


def final_ranks(setting: Setting, kind: Kind) -> Float[np.ndarray, "block head"]:
    """Return stable ranks of the change at the end for the heads of all counted seeds."""
    ends = (change_ranks(ds.isel(step=[-1]), kind)[0] for ds in counted(setting))
    return np.concatenate([end.to_numpy() for end in ends], axis=1).astype(np.float64)


class Course(NamedTuple):
    """Stable ranks of heads over training.

    settled: when the training loss of all seeds has settled; None if not within these times.
    """

    time: Float[np.ndarray, " step"]
    ranks: Float[np.ndarray, "block step head"]
    settled: float | None


def ranks_over_time(setting: Setting, kind: Kind) -> Course:
    """Return the stable ranks of the change for the heads of all counted seeds.

    They are read at the snapshots that all seeds have, so until the first seed stops.
    """
    runs = counted(setting)
    ranks = [change_ranks(ds, kind) for ds in runs]
    together = xr.concat(ranks, "head", join="inner", coords="minimal", compat="override")
    together = together.isel(step=slice(1, None)).transpose("block", "step", "head")
    time = times(runs[0].sel(step=together["step"]))
    return Course(time, together.to_numpy().astype(np.float64), settled_time(runs, time))


def settled_time(runs: Iterable[xr.Dataset], within: Float[np.ndarray, " step"]) -> float | None:
    """Return when the training loss of all runs has settled; None if not within these times."""
    windows = [(growth_window(ds), times(ds)) for ds in runs]
    latest = max(float(time[window.last]) for window, time in windows)
    all_settled = all(window.settled for window, _ in windows)
    return latest if all_settled and within[0] <= latest <= within[-1] else None
