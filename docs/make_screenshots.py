"""Take the screenshots of `rankscope view` from the archived runs, light and dark.

    python docs/make_screenshots.py [--to FOLDER] [VIEW ...]

Needs a browser: the package chromium, or RANKSCOPE_CHROMIUM. Writes docs/pictures/view.
"""

import argparse
import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs/pictures/view"
WIDTH, HEIGHT, SCALE = 1280, 800, 1
SHORTEST, TALLEST, MARGIN = 700, 1040, 14  # pixels of a picture that ends below a panel
FREQUENT = 96  # colours of a picture that stay exactly as they are
MOST = 100  # pixels for which each of the other colours counts, at most
BROWSERS = ("chromium", "chromium-browser", "google-chrome")

LANGUAGE, VGG = "yunis2024/lm/lm/decay-1/seed-0", "yunis2024/vgg/vgg/decay-0.001/seed-0"
HEADS = "boix2023/vit-cifar10/vit/scale-0.1/seed-0"
FLOW = "boix2023/toy-diag/teacher-1/alpha-1e-16/seed-0"
CHANGES = {"of": "product_change_singular_values", "metric": "stable_rank"}

# View -> (run, further state, words of the runs that are compared).
VIEWS: dict[str, tuple[str, dict[str, str], str]] = {
    "runs": ("", {"query": "yunis2024"}, ""),
    "moved": (LANGUAGE, {}, ""),
    "depth": (LANGUAGE, {"metric": "normalized_effective_rank", "of": "singular_values"}, ""),
    "matrix": (VGG, {"matrix": "conv11", "at": "3159"}, ""),
    "alignment": (VGG, {"axis": "log", "pair": "conv11 > conv12"}, ""),
    "heads": (HEADS, CHANGES, ""),
    "theory": (FLOW, {}, ""),
    "compare": ("", {"axis": "log"}, "yunis2024/vgg/vgg"),
    "papers": ("", {"claim": "yunis2024/Y4"}, ""),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("views", nargs="*", help=", ".join(VIEWS))
    parser.add_argument("--to", type=Path, default=FOLDER)
    parser.add_argument("--width", type=int, default=WIDTH)
    parser.add_argument("--height", type=int, default=HEIGHT)
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.views) - set(VIEWS)):
        parser.error(f"no view {', '.join(unknown)}; choose from {', '.join(VIEWS)}")
    path = os.environ.get("RANKSCOPE_CHROMIUM") or next(
        filter(None, map(shutil.which, BROWSERS)), None
    )
    if path is None:
        parser.error("there is no browser; install the package chromium")
    command = [sys.executable, "-m", "rankscope", "view", "results"]
    command += ["--no-open", "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        match = re.search(r"http\S+", server.stdout.readline())
        assert match is not None
        with sync_playwright() as driver:
            browser = driver.chromium.launch(
                executable_path=path, args=["--no-sandbox", "--disable-gpu"]
            )
            for theme in ("light", "dark"):
                take(browser, match[0], theme, arguments)
            browser.close()
        server.terminate()


def take(browser: Browser, address: str, theme: Any, arguments: argparse.Namespace) -> None:
    """Take the pictures of one theme."""
    context = browser.new_context(
        viewport={"width": arguments.width, "height": arguments.height},
        color_scheme=theme,
        device_scale_factor=SCALE,
    )
    page = context.new_page()
    page.set_default_timeout(120_000)
    page.goto(address)
    page.wait_for_selector("tbody [data-run]")
    keys = {run["name"]: run["id"] for run in listed(page)}
    for view in arguments.views or VIEWS:
        run, state, compared = VIEWS[view]
        query = [("view", view), *state.items()]
        query += [("run", keys[run])] if run else []
        query += [("runs", key) for name, key in keys.items() if compared and compared in name]
        pairs = "&".join(
            f"{name}={value.replace(' ', '%20').replace('>', '%3E')}" for name, value in query
        )
        page.goto(f"{address.split('?')[0]}?{pairs}")
        settle(page)
        clip = {"x": 0, "y": 0, "width": arguments.width, "height": height(page, arguments.height)}
        save(page.screenshot(full_page=True, clip=clip), arguments.to / f"{view}-{theme}.png")
    context.close()


def height(page: Page, usual: int) -> float:
    """Return the height at which no panel is cut, if there is one."""
    bottoms: list[float] = page.eval_on_selector_all(
        ".panel", "panels => panels.map(panel => panel.getBoundingClientRect().bottom)"
    )
    fitting = [bottom for bottom in bottoms if SHORTEST <= bottom <= TALLEST]
    return max(fitting) + MARGIN if fitting else usual


def listed(page: Page) -> list[dict[str, str]]:
    """Return the rows of the table of runs."""
    runs: list[dict[str, str]] = page.evaluate(
        "() => fetch('/api/runs').then(answer => answer.json()).then(answer => answer.runs)"
    )
    return runs


def settle(page: Page) -> None:
    """Wait until every panel has all of its data, and figures are there."""
    page.wait_for_selector("main h1")
    page.wait_for_timeout(500)
    page.wait_for_function(
        "() => !document.querySelector('.loading, .partial, .placeholder')"
        " && !document.body.innerText.includes('Reading…')"
        " && [...document.images].every((image) => image.complete)"
    )
    page.wait_for_timeout(400)


def save(content: bytes, path: Path) -> None:
    """Write a picture in 256 colours, which takes a third of the bytes.

    Half of them are its most frequent colours, which stay as they are; the others cover the rest.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))
    colours, places, counts = np.unique(
        pixels.reshape(-1, 3), axis=0, return_inverse=True, return_counts=True
    )
    order = np.argsort(-counts)
    rare = order[FREQUENT:] if len(order) > FREQUENT else order
    seen = np.repeat(colours[rare], np.minimum(counts[rare], MOST), axis=0)
    rest = Image.fromarray(seen[None])
    others = rest.quantize(256 - FREQUENT, kmeans=2).getpalette() or []
    palette = np.concatenate([colours[order[:FREQUENT]], np.array(others, np.uint8).reshape(-1, 3)])
    far = ((colours[:, None].astype(np.int32) - palette[None]) ** 2).sum(-1)
    few = far.argmin(1)[places.ravel()].astype(np.uint8).reshape(pixels.shape[:2])
    picture = Image.fromarray(few, "P")
    picture.putpalette(palette.tobytes())
    picture.save(path, optimize=True)
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
