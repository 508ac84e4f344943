"""A site with archived runs and others, and what tests do on its pages."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from view.browsing import RESULTS, Watched
from view.viewed_runs import EVIL, NAMES, Server, serving, write

FIGURES = RESULTS.parent / "docs/papers/figures"
ARCHIVED = (
    "yunis2024/grok/grok/decay-1/seed-0.zarr.zip",
    "yunis2024/grok/grok/decay-0/seed-0.zarr.zip",
    "yunis2024/vgg/vgg/decay-0.001/seed-0.zarr.zip",
    "boix2023/vit-cifar10/vit/scale-0.1/seed-0.zarr.zip",
    "boix2023/toy-diag/teacher-1/alpha-1e-8/seed-0.zarr.zip",
    "boix2023/toy-diag/teacher-1/alpha-1e-16/seed-0.zarr.zip",
    "boix2023/toy-diag/teacher-1/algorithm/seed-0.zarr.zip",
    "yunis2024/verdicts.json",
)


@contextlib.contextmanager
def archive(folder: Path) -> Iterator[Server]:
    """Serve copies of archived runs beside one that tracks, one with evil names, one damaged."""
    for name in ARCHIVED:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(RESULTS / name, folder / name)
    (folder / "yunis2024/figures").mkdir()
    shutil.copy(FIGURES / "yunis2024/grokking.png", folder / "yunis2024/figures")
    write(folder / "tracked", decay=0.5, seed=1)
    write(folder / "evil", names=(EVIL, *NAMES[1:]), decay=EVIL)
    (folder / "broken").mkdir()
    (folder / "broken" / "zarr.json").write_text('{"zarr_format": 3, "node_type": "gro')
    with serving(folder) as running:
        yield running


def address(server: Server) -> str:
    """Return the address that the server prints."""
    return f"http://127.0.0.1:{server.port}/?token={server.gate.token}"


def painted(page: Any, panel: str) -> int:
    """Number of different colours on the canvas of a panel."""
    script = """panel => {
      const canvas = document.querySelector(`[data-panel="${panel}"] canvas`);
      if (!canvas || !canvas.width) return 0;
      const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
      return new Set(new Uint32Array(data.buffer)).size;
    }"""
    colours: int = page.evaluate(script, panel)
    return colours


def wait_for_paint(page: Any, panel: str) -> None:
    """Wait until a panel has drawn more than its background."""
    page.wait_for_selector(f'[data-panel="{panel}"] canvas')
    page.wait_for_function(
        """panel => { const c = document.querySelector(`[data-panel="${panel}"] canvas`);
           return c && c.width > 1 && new Set(new Uint32Array(
             c.getContext("2d").getImageData(0, 0, c.width, c.height).data.buffer)).size > 2 }""",
        arg=panel,
    )
    assert painted(page, panel) > 2


def open_menu(page: Any, panel: str) -> Any:
    """Open the exports of a panel."""
    menu = page.locator(f'[data-panel="{panel}"] details.menu')
    menu.locator("summary").click()
    return menu


def exported(site: Watched, panel: str, kind: str, folder: Path) -> bytes:
    """Return the file that a panel exports."""
    menu = open_menu(site.page, panel)
    with site.page.expect_download() as download:
        menu.get_by_role("button", name=kind).click()
    assert download.value.suggested_filename.endswith(kind.lower())
    download.value.save_as(folder / kind)
    return (folder / kind).read_bytes()
