"""Images that a trained diffusion network made: a sheet for each setting."""

import base64
import math
import textwrap

import numpy as np
import xarray as xr
from jaxtyping import UInt8
from matplotlib.figure import Figure

from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.papers.yunis2024.figures.settings import by_decay

SHEET = 4.2  # inches
HEADING = 56  # characters that fit above a sheet
SEPARATOR = 128  # grey between images


def samples(runs: Runs) -> Figure:
    """Images the diffusion network made from noise after training (not in the paper).

    Each weight decay has a sheet, from its first seed. The sheets show whether a network of low
    rank still does its work.
    """
    settings = by_decay(runs, "unet")
    figure = Figure(figsize=(SHEET * len(settings), SHEET + 0.5), layout="constrained")
    sheets = list(figure.subplots(1, len(settings), squeeze=False)[0])
    first = [
        setting._replace(runs=setting.runs[:1], collapsed=setting.collapsed[:1])
        for setting in settings
    ]
    for axes, setting in zip(sheets, first, strict=True):
        axes.imshow(sheet(read_samples(setting.runs[0])), cmap="gray", vmin=0, vmax=255)
        axes.set_axis_off()
        heading = textwrap.fill(setting.heading, HEADING)
        axes.set_title(heading, loc="left", fontsize="small")
    return figure


def read_samples(ds: xr.Dataset) -> UInt8[np.ndarray, "count rows columns"]:
    """Return the images stored with a run as base64 of their bytes."""
    if "samples" not in ds.attrs:
        raise ValueError("this run stored no samples; only trainings of the unet do")
    stored = ds.attrs["samples"]
    return np.frombuffer(base64.b64decode(stored["bytes"]), np.uint8).reshape(stored["shape"])


def sheet(images: UInt8[np.ndarray, "count rows columns"]) -> UInt8[np.ndarray, "height width"]:
    """Return images in rows on a nearly square sheet, each with a grey edge below and right."""
    across = math.ceil(math.sqrt(len(images)))
    missing = -len(images) % across
    framed = np.pad(images, ((0, 0), (0, 1), (0, 1)), constant_values=SEPARATOR)
    filled = np.pad(framed, ((0, missing), (0, 0), (0, 0)), constant_values=SEPARATOR)
    _, rows, columns = filled.shape
    tiles = filled.reshape(-1, across, rows, columns).swapaxes(1, 2)
    return tiles.reshape(-1, across * columns)
