"""The viewer's page in a headless Chromium: pictures, cursor, slider; the heat map alone.

python -m benchmarks view_page
"""

import os
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.timing import table
from benchmarks.view_runs import FOLDER, LANGUAGE, LARGE, Size, written

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
THEORY = Path("results/boix2023/toy-diag/teacher-1")
MOVES = 60
METRICS = ("frobenius_norm", "spectral_norm", "effective_rank", "stable_rank")
WAIT = 60_000  # milliseconds

# Records when heat maps are painted; the page itself is as it is.
RECORD = """
window.paints = [];
const original = CanvasRenderingContext2D.prototype.putImageData;
CanvasRenderingContext2D.prototype.putImageData = function (...values) {
  original.apply(this, values);
  window.paints.push(performance.now());
};
"""
FIRST = "() => window.paints[0] - performance.getEntriesByType('navigation').at(-1).responseStart"
# Milliseconds from each pointer move until the frame that shows it has been drawn.
CURSOR = """async ([panel, moves]) => {
  const canvas = document.querySelector(`[data-panel="${panel}"] .canvas`);
  const box = canvas.getBoundingClientRect(), times = [];
  const frame = () => new Promise(requestAnimationFrame);
  for (let i = 0; i < moves; i++) {
    await frame();
    const clientX = box.left + box.width * (0.2 + 0.7 * ((i * 37) % moves) / moves);
    const began = performance.now();
    const place = { clientX, clientY: box.top + box.height / 2, bubbles: true };
    canvas.dispatchEvent(new PointerEvent("pointermove", place));
    await frame();
    await new Promise((done) => setTimeout(done));
    times.push(performance.now() - began);
  }
  return times;
}"""
# Milliseconds from a choice until a heat map has been painted from the answer.
CHOOSE = """async ([selector, value]) => {
  const control = document.querySelector(selector);
  const loading = () => document.querySelector('[data-panel="heat"].loading');
  const before = window.paints.length, began = performance.now();
  control.value = value;
  control.dispatchEvent(new Event("change", { bubbles: true }));
  await new Promise((done) => setTimeout(done));
  while (window.paints.length === before || loading()) {
    await new Promise((done) => setTimeout(done, 2));
  }
  return window.paints.at(-1) - began;
}"""
# Milliseconds from a move of the slider until the curves have been drawn.
SLIDE = """async (count) => {
  const slider = document.querySelector("input[type=range]"), times = [];
  const title = () => document.querySelector(".slider b").textContent;
  for (let i = 0; i < count; i++) {
    const next = (Number(slider.value) + 1) % (Number(slider.max) + 1);
    const before = title(), began = performance.now();
    slider.value = next;
    slider.dispatchEvent(new Event("input", { bubbles: true }));
    while (title() === before) await new Promise(requestAnimationFrame);
    await new Promise((done) => setTimeout(done));
    times.push(performance.now() - began);
    await new Promise((done) => setTimeout(done, 50));
  }
  return times;
}"""
# The heat map by itself: 1000 rows x 10,000 snapshots on 1000 x 700 pixels.
ALONE = """async () => {
  const { columnsOfPixels, halvings, paint } = await import("/static/draw/cells.js");
  const { colourTable } = await import("/static/draw/colours.js");
  const [rows, columns, width, height] = [1000, 10000, 1000, 700];
  const cells = new Uint8Array(rows * columns).map((_, i) => 1 + (i * 2654435761) % 255);
  const began = performance.now(), levels = halvings(cells, rows, columns);
  const times = { halvings: [performance.now() - began], zoom: [], pan: [] };
  const canvas = Object.assign(document.createElement("canvas"), { width, height });
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  const table = colourTable("viridis", { notStored: 0, notANumber: 0 });
  const order = Uint32Array.from({ length: rows }, (_, i) => i);
  const draw = (left, right, top, bottom) => {
    const step = (right - left) / width;
    const edges = Float64Array.from({ length: width + 1 }, (_, i) => left + i * step);
    const bands = Array.from({ length: height }, (_, y) => {
      const first = Math.floor(top + (bottom - top) * y / height);
      return [first, Math.max(first + 1, Math.floor(top + (bottom - top) * (y + 1) / height))];
    });
    const chosen = columnsOfPixels(edges, width, levels);
    paint(pixels, width, bands, order, levels, chosen, table, 0);
    context.putImageData(image, 0, 0);
  };
  const timed = (list, action) => {
    const began = performance.now();
    action();
    list.push(performance.now() - began);
  };
  for (let i = 0; i < 60; i++) {
    const half = (columns / 2) * 0.9 ** i;
    const bottom = rows * (1 - 0.015 * i);
    timed(times.zoom, () => draw(columns / 2 - half, columns / 2 + half, 0, bottom));
    timed(times.pan, () => draw(i * 100, i * 100 + 3000, 100, 600));
  }
  return times;
}"""


def main() -> None:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        print("view_page: needs playwright; install the extra dev", file=sys.stderr)
        return
    path = os.environ.get("RANKSCOPE_CHROMIUM") or next(
        filter(None, map(shutil.which, BROWSERS)), None
    )
    if path is None:
        print("view_page: needs a browser; install the package chromium", file=sys.stderr)
        return
    console = Console(width=120)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        for size in (LARGE, LANGUAGE):
            console.print(measure(browser, size))
        if THEORY.exists():
            console.print(measure_slider(browser))
        console.print(measure_alone(browser))
        browser.close()


@contextmanager
def opened(browser: Any, *runs: Path) -> Iterator[tuple[Any, str]]:
    """Serve the runs, and open a page that records its paints."""
    command = [
        sys.executable,
        "-m",
        "rankscope",
        "view",
        *map(str, runs),
        "--no-open",
        "--port",
        "0",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        match = re.search(r"(http\S+)/\?token=\S+", process.stdout.readline())
        assert match is not None
        context = browser.new_context(viewport={"width": 1280, "height": 860})
        page = context.new_page()
        page.set_default_timeout(WAIT)
        page.add_init_script(RECORD)
        page.goto(match[0])
        page.wait_for_selector("tbody [data-run]")
        yield page, match[1]
        context.close()
        process.terminate()


def run_key(page: Any, name: str) -> str:
    """Key of the run whose name ends so."""
    runs = page.evaluate("() => fetch('/api/runs').then(answer => answer.json())")["runs"]
    return next(str(run["id"]) for run in runs if run["name"].endswith(name))


def measure(browser: Any, size: Size) -> Table:
    """Time what a person waits for with a large run; the server knows nothing of it before."""
    written(size)
    title = f"{size.name}: {size.matrices} matrices, k = {size.k}, {size.snapshots} snapshots"
    rows = table(f"page, {title}", "what", "median", "95%", "worst", "bar")
    with opened(browser, FOLDER / size.name) as (page, origin):
        depth = f"{origin}/?view=depth&parts=1&run={run_key(page, size.name)}"
        page.goto(depth)
        page.wait_for_function("() => window.paints.length > 0")
        rows.add_row(
            "first picture, after the server's answer", *spread([page.evaluate(FIRST)]), "1.5 s"
        )
        first = [page.evaluate(CHOOSE, ["main select.field", f"singular_values {METRICS[-1]}"])]
        rows.add_row("first picture of another metric", *spread(first), "500 ms")
        wait_until_complete(page)
        again = []
        for metric in METRICS:
            page.evaluate(CHOOSE, ["main select.field", f"singular_values {metric}"])
            wait_until_complete(page)
        for metric in METRICS * 3:
            again.append(page.evaluate(CHOOSE, ["main select.field", f"singular_values {metric}"]))
            page.wait_for_timeout(50)
        rows.add_row("change to a metric that is known", *spread(again), "500 ms")
        cursor = page.evaluate(CURSOR, ["heat", MOVES])
        rows.add_row("cursor on the heat map", *spread(cursor), "50 ms, 120 ms")
        page.goto(depth.replace("view=depth", "view=matrix"))
        page.wait_for_selector('[data-panel="energy"] canvas.above')
        page.wait_for_timeout(500)
        cursor = page.evaluate(CURSOR, ["image", MOVES])
        rows.add_row(
            "cursor on a matrix, with its spectrum and energy", *spread(cursor), "50 ms, 120 ms"
        )
    return rows


def wait_until_complete(page: Any) -> None:
    """Wait until the server has answered with every column."""
    page.wait_for_timeout(100)
    page.wait_for_function("() => !document.querySelector('.partial, .loading')")


def measure_slider(browser: Any) -> Table:
    """Time moves of the slider over alpha."""
    rows = table("page, theory: 100 coordinates", "what", "median", "95%", "worst", "bar")
    with opened(browser, THEORY) as (page, origin):
        page.goto(f"{origin}/?view=theory&run={run_key(page, 'alpha-1e-16/seed-0')}")
        page.wait_for_selector('[data-panel="y"] canvas')
        page.wait_for_timeout(3000)  # the other flows are read meanwhile
        rows.add_row("slider over alpha", *spread(page.evaluate(SLIDE, 30)), "50 ms, 120 ms")
    return rows


def measure_alone(browser: Any) -> Table:
    """Time the heat map's drawing alone."""
    rows = table("heat map: 1000 rows x 10,000 snapshots", "what", "median", "95%", "worst", "bar")
    with opened(browser, THEORY if THEORY.exists() else FOLDER / LARGE.name) as (page, _):
        times = page.evaluate(ALONE)
        rows.add_row("coarser copies, once", *spread(times["halvings"]), "")
        rows.add_row("draw while zooming", *spread(times["zoom"]), "")
        rows.add_row("draw while panning", *spread(times["pan"]), "")
    return rows


def spread(times: list[float]) -> list[str]:
    """Median, 95% and worst of milliseconds."""
    ordered = sorted(times)
    if len(ordered) == 1:
        return [f"{ordered[0]:.0f} ms", "", ""]
    values = (statistics.median(ordered), ordered[int(0.95 * (len(ordered) - 1))], ordered[-1])
    return [f"{value:.1f} ms" for value in values]


if __name__ == "__main__":
    main()
