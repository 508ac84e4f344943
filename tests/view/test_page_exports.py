"""Files that panels of the page export, in a real browser with archived runs."""

import re
from pathlib import Path

import pytest

from view.archived_site import exported, open_menu
from view.browsing import Watched
from view.viewed_runs import Server

PICTURES = [
    ("yunis2024/grok/grok/decay-1/seed-0", "moved", ("scalars", "moved", "kinds", "depths")),
    ("yunis2024/grok/grok/decay-1/seed-0", "depth", ("scalars", "heat")),
    ("tracked", "matrix", ("image", "spectrum", "energy", "percentiles", "metric")),
    ("tracked", "alignment", ("heat", "diagonal", "mean")),
    ("boix2023/vit-cifar10/vit/scale-0.1/seed-0", "heads", ("heads", "spectrum", "energy")),
    ("boix2023/toy-diag/teacher-1/alpha-1e-8/seed-0", "theory", ("loss", "z", "y")),
    ("yunis2024/grok/grok/decay-1/seed-0", "compare", ("compare",)),
]


@pytest.mark.parametrize(("run", "view", "panels"), PICTURES, ids=[view for _, view, _ in PICTURES])
def test_every_picture_exports(
    site: Watched, server: Server, tmp_path: Path, run: str, view: str, panels: tuple[str, ...]
) -> None:
    page = site.go(view=view, run=server.key(run), runs=[server.key(run)])
    site.settled()
    pictures = page.locator("[data-panel]:has(canvas, svg.spark)")
    shown = pictures.evaluate_all("panels => panels.map(panel => panel.dataset.panel)")
    assert set(panels) <= set(shown)
    for panel in shown:
        content = {kind: exported(site, panel, kind, tmp_path) for kind in ("PNG", "SVG", "CSV")}
        assert content["PNG"].startswith(b"\x89PNG") and len(content["PNG"]) > 2000
        legend = page.locator(f'[data-panel="{panel}"] .legend > span').all_inner_texts()
        drawn = re.findall(">([^<]+)</text>", content["SVG"].decode())
        assert legend or panel not in ("heat", "image", "spectrum", "energy", "mean", "loss")
        assert {text for text in legend if "\n" not in text} <= set(drawn), panel
        assert len(content["CSV"].splitlines()) > 2
        open_menu(page, panel).get_by_role("button", name="Python").click()
        lines = page.locator("pre.lines").inner_text()
        assert "import rankscope as rs" in lines
        compile(lines, "lines", "exec")
        page.keyboard.press("Escape")
        page.wait_for_selector("dialog", state="detached")


TABLES = [
    ("tracked", "matrix", ("facts",)),
    ("boix2023/toy-diag/teacher-1/alpha-1e-8/seed-0", "theory", ("stages",)),
    ("yunis2024/grok/grok/decay-1/seed-0", "compare", ("curves",)),
    ("", "papers", ("yunis2024", "claim")),
    ("", "runs", ("runs",)),
]


@pytest.mark.parametrize(("run", "view", "panels"), TABLES, ids=[view for _, view, _ in TABLES])
def test_every_table_exports_its_numbers(
    site: Watched, server: Server, tmp_path: Path, run: str, view: str, panels: tuple[str, ...]
) -> None:
    key = {"run": server.key(run), "runs": [server.key(run)]} if run else {}
    page = site.go(view=view, **key, **({"claim": "yunis2024/Y9"} if view == "papers" else {}))
    site.settled()
    for panel in panels:
        page.wait_for_selector(f'[data-panel="{panel}"] details.menu')
        rows = exported(site, panel, "CSV", tmp_path).decode().splitlines()
        assert len(rows) > 1
        menu = open_menu(page, panel)
        assert menu.get_by_role("button", name="PNG").count() == 0
        menu.get_by_role("button", name="Python").click()
        compile(page.locator("pre.lines").inner_text(), "lines", "exec")
        page.keyboard.press("Escape")
        page.wait_for_selector("dialog", state="detached")


@pytest.mark.parametrize("granted", [True, False])
def test_lines_are_copied_or_selected(site: Watched, server: Server, granted: bool) -> None:
    if granted:
        site.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    else:
        site.page.add_init_script(
            "Object.defineProperty(navigator, 'clipboard', {value: undefined})"
        )
    page = site.go(view="depth", run=server.key("tracked"))
    site.settled()
    open_menu(page, "heat").get_by_role("button", name="Python").click()
    page.get_by_role("button", name="Copy").click()
    page.get_by_role("button", name="Copied" if granted else "press Ctrl C").wait_for()
    copied = "navigator.clipboard.readText()" if granted else "String(getSelection())"
    assert "import rankscope" in page.evaluate(copied)


def test_the_table_of_runs_exports_what_the_filter_leaves(site: Watched, tmp_path: Path) -> None:
    site.page.get_by_label("Filter runs").fill("grok decay")
    site.page.wait_for_function("() => document.querySelectorAll('tbody [data-run]').length === 2")
    rows = exported(site, "runs", "CSV", tmp_path).decode().splitlines()
    assert len(rows) == 3
    assert all("grok" in row for row in rows[1:])


def test_what_is_exported_is_what_is_shown(site: Watched, server: Server, tmp_path: Path) -> None:
    site.go(view="depth", run=server.key("tracked"), **{"from": "10", "to": "30"})
    site.settled()
    for panel in ("scalars", "heat"):
        rows = exported(site, panel, "CSV", tmp_path).decode().splitlines()
        assert [row.split(",")[0] for row in rows[1:]] == [f"{step}.0" for step in range(10, 31, 2)]


def test_an_exported_spectrum_is_the_one_at_the_cursor(
    site: Watched, server: Server, tmp_path: Path
) -> None:
    page = site.go(view="matrix", run=server.key("tracked"), at="10", matrix="output")
    site.settled()
    for panel in ("spectrum", "energy"):
        early = exported(site, panel, "SVG", tmp_path)
        table = exported(site, panel, "CSV", tmp_path)
        page.keyboard.press("End")
        page.wait_for_function("() => location.search.includes('at=58')")
        assert exported(site, panel, "SVG", tmp_path) != early
        assert exported(site, panel, "CSV", tmp_path) != table
        page.keyboard.press("Home")
        page.wait_for_function("() => location.search.includes('at=0')")
