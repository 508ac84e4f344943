"""Report on runs of one's own: pictures of what moved, tables of every matrix, on one page."""

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping
from html import escape
from io import BytesIO
from pathlib import Path

import pandas as pd
import xarray as xr
from matplotlib.figure import Figure

from rankscope import figures
from rankscope.lab.judging.verdict import Cell, Table
from rankscope.lab.reporting.html import document, image_html, list_html, table_html
from rankscope.lab.reporting.numbers import duration, number
from rankscope.plain_names import plain_title
from rankscope.store.files import replace_file
from rankscope.tables import movement, summary
from rankscope.view.overview import STYLE, overview_frame, page_script

PAGE_DPI = 110
MOST_MOVED = 12
SINGLE_PAIR = 3  # pairs up to which each has a figure of its own


def write_run_page(runs: Mapping[str, xr.Dataset], path: Path, *, command: str) -> Path:
    """Write the report on some runs, by title, and return its path."""
    title = f"{'Run' if len(runs) == 1 else 'Runs'} {' and '.join(runs)}"
    body = [f"<h1>{escape(title)}</h1>"]
    if len(runs) > 1:
        body += ["<h2>Side by side</h2>", *_comparison(runs)]
    for name, ds in runs.items():
        body += [f"<h2>{escape(name)}</h2>" if len(runs) > 1 else "", *_run(ds)]
    body += [f"<details><summary>Command</summary><pre>{escape(command)}</pre></details>"]
    body += [f"<style>{STYLE.read_text()}</style><script type='module'>{page_script()}</script>"]
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, document(title, body).encode(), durable=False)
    return path


def run_facts(ds: xr.Dataset) -> list[str]:
    """Return sentences on a run: how long it is, what it reached, what tracking took."""
    steps = ds["step"].to_numpy()
    facts = [f"{len(steps)} snapshots, from step {steps[0]} to step {steps[-1]}."]
    scalars = [
        _last_value(ds[name])
        for name in ds.data_vars
        if ds[name].dims == ("step",) and not str(name).startswith("tracker_")
    ]
    if measured := list(filter(None, scalars)):
        facts.append(f"Last values: {', '.join(measured)}.")
    if left_out := ds.attrs.get("left_out"):
        due = len(steps) + len(left_out)
        facts.append(
            f"{len(left_out)} of {due} due steps were left out, to cost at most "
            f'{ds.attrs["budget"]:.0%} of the run; pass schedule="log" to take all.'
        )
    for name, change in json.loads(_plain(ds.attrs.get("changed_tensors", {}))).items():
        facts.append(f"The tensor {name} changed at {change}.")
    costs = [name for name in ("tracker_wait_seconds", "tracker_copy_seconds") if name in ds]
    wall = ds.attrs.get("wall_seconds")
    if isinstance(wall, float) and costs:
        waited = float(sum(ds[name].sum() for name in costs))
        facts.append(f"It took {duration(wall)}; training waited {waited:.2g} s for the tracker.")
    if "tracker_compute_seconds" in ds:
        beside = float(ds["tracker_compute_seconds"].sum())
        held = ds.attrs.get("tracker_bytes")
        memory = f"; copies held {held / 2**20:.3g} MiB" if isinstance(held, int) else ""
        facts.append(f"Measuring took {beside:.2g} s beside training{memory}.")
    return facts


def _last_value(values: xr.DataArray) -> str:
    """Return a scalar's name and last value, with its step if the run went on; or ""."""
    measured = values.dropna("step")
    if not len(measured):
        return ""
    step = int(measured["step"][-1])
    when = "" if step == int(values["step"][-1]) else f" (step {step})"
    return f"{values.name} {number(float(measured[-1]))}{when}"


def _plain(attribute: object) -> str:
    """Return an attribute as JSON, which archives store it as."""
    return attribute if isinstance(attribute, str) else json.dumps(attribute)


def _comparison(runs: Mapping[str, xr.Dataset]) -> Iterator[str]:
    yield _picture(figures.compare_runs(runs), "Loss and mean rank of each run.")
    yield _picture(figures.compare_matrices(runs), "Rank of each matrix at the last snapshot.")


def _run(ds: xr.Dataset) -> Iterator[str]:
    moved = movement(ds)
    first = str(moved.index[0])
    rank = "normalised effective rank" if ds.rankscope.has_all_values else "stable rank"
    ranks = _picture(
        figures.effective_rank_by_depth(ds),
        f"{rank.capitalize()} of every whole matrix, in the order of the model.",
    )
    yield _overview(ds, instead=ranks)
    yield list_html(run_facts(ds), "seen")
    yield _picture(
        figures.singular_values_over_time(ds, first),
        f"Singular values of {plain_title(first)}, whose {rank} moved most.",
    )
    if ds.sizes.get("product"):
        yield _picture(
            figures.head_ranks_over_time(ds),
            "Stable rank of the products of each head, and of their change since the reference.",
        )
    yield from _alignments(ds)
    yield f"<h3>What moved most</h3>{_frame(moved.head(MOST_MOVED))}"
    yield f"<h3>All matrices at the last snapshot</h3>{_frame(summary(ds))}"
    coverage = escape(str(ds.attrs.get("coverage", "not stored")))
    yield f"<details><summary>How every tensor was read</summary><pre>{coverage}</pre></details>"


def _overview(ds: xr.Dataset, *, instead: str) -> str:
    """Return the viewer's overview, which draws itself; `instead` where scripts are off."""
    frame = b64encode(overview_frame(ds)).decode()
    return f"<div class='overview' data-overview='{frame}'></div><noscript>{instead}</noscript>"


def _alignments(ds: xr.Dataset) -> Iterator[str]:
    pairs = [str(name) for name in ds["pair"].to_numpy()] if ds.sizes.get("pair") else []
    if len(pairs) > SINGLE_PAIR:
        caption = "Alignment of neighbouring matrices; 1 is perfect, the white lines are chance."
        yield _picture(figures.mean_alignment_by_pair(ds), caption)
    for pair in pairs if len(pairs) <= SINGLE_PAIR else ():
        caption = f"Alignment of {pair}, direction by direction, and its mean beside chance."
        yield _picture(figures.alignment_over_time(ds, pair), caption)


def _picture(figure: Figure, caption: str) -> str:
    file = BytesIO()
    figure.savefig(file, format="png", dpi=PAGE_DPI)
    image = image_html(file.getvalue(), "png", caption)
    return f"<figure class='natural'>{image}<figcaption>{escape(caption)}</figcaption></figure>"


def _frame(frame: pd.DataFrame) -> str:
    columns = ("matrix", *(str(column).replace("_", " ") for column in frame.columns))
    return table_html(Table(columns, tuple(table_rows(frame))))


def table_rows(frame: pd.DataFrame) -> Iterator[tuple[Cell, ...]]:
    """Yield the rows of a frame, its index first."""
    for row in frame.itertuples(name=None):
        yield tuple(cell if isinstance(cell, str) else float(cell) for cell in row)
