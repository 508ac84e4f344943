"""Draw the pictures of the documentation from small real runs, in about a minute on one core.

    python docs/make_pictures.py [FOLDER]

A network with three hidden layers learns scikit-learn's digits twice, with and without weight
decay. Every picture is drawn for a light and for a dark page, into docs/pictures. The pictures of
the how-to and of "Getting started" come from the code of these pages. That of a scan needs the
checkpoints in the folder RANKSCOPE_DATA.
"""

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from torch import nn

import rankscope as rs
from rankscope import figures
from rankscope.scanning.command import run_scan

STEPS, WIDTH, DECAYS = 3000, 96, (0.0, 0.5)
SHOWN = "2"  # the middle matrix
PAIR = "2 > 4"
DPI = 140

BLUE, ORANGE, GREEN = "#2f8fb5", "#e07b39", "#4aa564"
INK = {"light": "#24292f", "dark": "#d5dbe1"}
GRID = {"light": "#d0d7de", "dark": "#3d444d"}


def train(decay: float, folder: Path) -> xr.Dataset:
    """Train on the digits with AdamW, and return the tracked run."""
    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.data / 16, dtype=torch.float32)
    labels = torch.tensor(digits.target)
    layers = [nn.Linear(64, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10)]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=decay)
    pairs = rs.discover_pairs(model, images[:8])
    with rs.Tracker(model, folder, pairs=pairs, top=WIDTH) as tracker:
        for step in range(STEPS):
            batch = torch.randint(len(images), (128,))
            loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
            tracker.observe(step, loss=loss)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        tracker.snapshot(STEPS)
    return rs.open(folder).load()


def run_first_block(page: str, folder: Path) -> None:
    """Run the first block of code on a page; its runs go to `folder`."""
    text = (Path(__file__).parent / page).read_text()
    code = text.partition("```python\n")[2].partition("```")[0]
    torch.manual_seed(0)
    exec(code.replace('"runs/', f'"{folder}/'), {})


def scanned(data: Path, scratch: Path) -> Figure:
    """Scan the series of checkpoints in the data folder, and draw its fourth convolution."""
    run_scan([str(data / "checkpoints" / "mnist-diffusion-cnn")], out=scratch / "scan")
    return figures.overview(rs.open(scratch / "scan"), "net.conv4")


def hero(runs: dict[float, xr.Dataset]) -> Figure:
    """Draw one matrix's singular values without and with decay, and its effective rank."""
    figure = Figure(figsize=(10, 3.2), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=(1, 1, 0.9))
    highest = max(float(run.singular_values.sel(matrix=SHOWN).max()) for run in runs.values())
    for axes, decay, colour in zip((left, middle), DECAYS, (BLUE, ORANGE), strict=True):
        draw_spectrum(axes, runs[decay], colour)
        axes.set(title=decay_name(decay), ylim=(0, 1.05 * highest))
    left.set(ylabel="singular values")
    middle.tick_params(labelleft=False)
    for decay, colour in zip(DECAYS, (BLUE, ORANGE), strict=True):
        rank = runs[decay].rankscope.effective_rank().sel(matrix=SHOWN)
        right.plot(steps(runs[decay]), rank, color=colour, linewidth=2.2, label=decay_name(decay))
    right.set(title="effective rank", ylim=(0, None))
    right.legend(frameon=False, loc="lower left")
    for axes in (left, middle, right):
        log_time(axes)
    return figure


def spectra(runs: dict[float, xr.Dataset]) -> Figure:
    """Draw the whole spectrum at a few moments, without and with decay."""
    figure = Figure(figsize=(8, 3), layout="constrained")
    for axes, decay in zip(figure.subplots(1, 2, sharey=True), DECAYS, strict=True):
        run = runs[decay].singular_values.sel(matrix=SHOWN).dropna("k")
        moments = [0, 100, 300, 1000, STEPS]
        shades = mpl.colormaps["viridis"](np.linspace(0.9, 0.42, len(moments)))
        for moment, shade in zip(moments, shades, strict=True):
            values = run.sel(step=moment, method="nearest")
            index = np.arange(1, values.size + 1)
            axes.plot(index, values, color=shade, linewidth=2, label=f"{moment}")
        axes.set(title=decay_name(decay), xlabel="index of singular value", ylim=(0, None))
    figure.axes[0].set(ylabel="singular value")
    figure.axes[1].legend(title="step", frameon=False, fontsize="small")
    return figure


def ranks(runs: dict[float, xr.Dataset]) -> Figure:
    """Draw three spectra with their effective and stable ranks, and both ranks over training."""
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    index = np.arange(1, 21)
    shapes = {
        "flat": (np.where(index <= 10, 1.0, 0.0), BLUE),
        "slow decay": (0.85 ** (index - 1), GREEN),
        "one large value": (np.where(index == 1, 1.0, 0.3), ORANGE),
    }
    for name, (values, colour) in shapes.items():
        effective, stable = rs.metrics.effective_rank(values), rs.metrics.stable_rank(values)
        label = f"{name}: effective {effective:.1f}, stable {stable:.1f}"
        left.plot(index, values, "o-", color=colour, markersize=3.5, label=label)
    left.set(title="three spectra", xlabel="index of singular value", ylim=(-0.05, 1.75))
    left.set(xticks=[1, 5, 10, 15, 20], yticks=[0, 0.5, 1])
    left.legend(frameon=False, fontsize="small", loc="upper right")
    for decay, colour in zip(DECAYS, (BLUE, ORANGE), strict=True):
        run = runs[decay].rankscope
        effective = run.effective_rank().sel(matrix=SHOWN)
        stable = run.stable_rank().sel(matrix=SHOWN)
        right.plot(steps(runs[decay]), effective, color=colour, label=decay_name(decay))
        right.plot(steps(runs[decay]), stable, color=colour, linestyle="--")
    right.plot([], [], color="0.5", label="effective rank")
    right.plot([], [], color="0.5", linestyle="--", label="stable rank")
    right.set(title="the same matrix over training", yscale="log")
    right.set_yticks([1, 2, 5, 10, 20, 50], ["1", "2", "5", "10", "20", "50"])
    right.minorticks_off()
    log_time(right)
    right.legend(frameon=False, fontsize="small", loc="lower left")
    return figure


def alignment(runs: dict[float, xr.Dataset]) -> Figure:
    """Draw the overlap of each direction at the end, and mean alignment beside chance."""
    figure = Figure(figsize=(9, 3), layout="constrained")
    left, right = figure.subplots(1, 2)
    for decay, colour in zip(DECAYS, (BLUE, ORANGE), strict=True):
        pair = runs[decay].sel(pair=PAIR)
        overlaps = pair.alignment.isel(step=-1, i=slice(40))
        left.plot(np.arange(1, overlaps.size + 1), overlaps, "o-", color=colour, markersize=3)
        mean = pair.rankscope.mean_alignment()
        right.plot(steps(pair), mean, color=colour, linewidth=2, label=decay_name(decay))
        background = pair.alignment_background
        right.plot(steps(pair), background, color=colour, linestyle=":")
    chance = float(runs[0.0].chance.sel(pair=PAIR))
    left.axhline(chance, color="0.55", linestyle="--", linewidth=1.2, label="random directions")
    left.set(title="overlap at the end", xlabel="direction i", ylim=(0, 1))
    left.legend(frameon=False, fontsize="small")
    right.plot([], [], color="0.5", linestyle=":", label="background")
    right.set(title="mean over the first ten", ylim=(0, None))
    log_time(right)
    right.legend(frameon=False, fontsize="small", loc="upper left")
    return figure


def draw_spectrum(axes: Axes, run: xr.Dataset, colour: str) -> None:
    values = run.singular_values.sel(matrix=SHOWN).dropna("k")
    for k in range(values.sizes["k"])[::-1]:
        opacity = 0.25 + 0.75 * (1 - k / values.sizes["k"]) ** 3
        axes.plot(steps(run), values.isel(k=k), color=colour, alpha=opacity, linewidth=1)


def steps(run: xr.Dataset) -> np.ndarray:
    return np.maximum(run.step.to_numpy(), 0.7)  # step 0 has a place on a logarithmic axis


def log_time(axes: Axes) -> None:
    axes.set(xscale="log", xlabel="step", xlim=(0.7, STEPS))
    axes.set_xticks([0.7, 10, 100, 1000], ["0", "10", "100", "1000"])
    axes.minorticks_off()


def decay_name(decay: float) -> str:
    return f"weight decay {decay:g}" if decay else "no weight decay"


def save(name: str, draw: Callable[[], Figure], folder: Path) -> None:
    """Draw a picture twice, for a light and for a dark page, on a transparent ground."""
    for mode, ink in INK.items():
        style = {
            "axes.edgecolor": GRID[mode],
            "axes.facecolor": "none",
            "axes.grid": True,
            "axes.labelcolor": ink,
            "axes.spines.right": False,
            "axes.spines.top": False,
            "axes.titlesize": "medium",
            "figure.facecolor": "none",
            "font.size": 10,
            "grid.alpha": 0.5,
            "grid.color": GRID[mode],
            "legend.labelcolor": ink,
            "text.color": ink,
            "xtick.color": ink,
            "ytick.color": ink,
        }
        with mpl.rc_context(style):
            figure = draw()
            figure.savefig(folder / f"{name}-{mode}.png", dpi=DPI, metadata={"Software": None})


def of_measures(run: xr.Dataset) -> dict[str, Figure]:
    """Draw the figure of each measure of a run."""
    names = ("updates", "gradients", "activations", "attention", "rotation", "tails")
    return {f"measure-{name}": getattr(figures, f"{name}_over_time")(run) for name in names}


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "pictures")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        runs = {decay: train(decay, Path(scratch) / f"decay-{decay:g}") for decay in DECAYS}
        pictures = {"hero": hero, "spectra": spectra, "ranks": ranks, "alignment": alignment}
        for name, draw in pictures.items():
            save(name, lambda draw=draw: draw(runs), folder)
        run_first_block("getting-started.md", Path(scratch))
        run_first_block("howto/look.md", Path(scratch))
        run_first_block("howto/beyond-weights.md", Path(scratch))
        plain, decayed = (rs.open(Path(scratch) / name) for name in ("plain", "decayed"))
        run_first_block("howto/lora.md", Path(scratch))
        growth = rs.lora.growth(Path(scratch) / "finetune")
        drawn = {
            "lora-growth": figures.change_ranks_over_steps(growth),
            "first-run": figures.overview(rs.open(Path(scratch) / "first"), "0"),
            "heads": figures.head_ranks_over_time(plain),
            "spectra-by-matrix": figures.spectra_by_matrix(decayed),
            "comparison": figures.compare_runs({"no decay": plain, "decay 3": decayed}),
        }
        drawn |= of_measures(rs.open(Path(scratch) / "beyond"))
        if series := os.environ.get("RANKSCOPE_DATA"):  # checkpoints of somebody else's training
            drawn["scan-series"] = scanned(Path(series), Path(scratch))
        for name, figure in drawn.items():
            figure.savefig(folder / f"{name}.png", dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
