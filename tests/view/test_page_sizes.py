"""Every view on a phone, in other sizes and themes, and for readers of other senses."""

import re
from pathlib import Path
from typing import Any

import pytest

from view.archived_site import address, exported
from view.browsing import watched
from view.viewed_runs import Server

EVERY_VIEW = (
    *("runs", "moved", "depth", "matrix", "alignment"),
    *("heads", "theory", "compare", "papers"),
)
RUNS = {
    "heads": "boix2023/vit-cifar10/vit/scale-0.1/seed-0",
    "theory": "boix2023/toy-diag/teacher-1/alpha-1e-8/seed-0",
}


@pytest.mark.parametrize("view", EVERY_VIEW)
def test_a_phone_has_no_horizontal_scroll(server: Server, browser: Any, view: str) -> None:
    run = server.key(RUNS.get(view, "yunis2024/grok/grok/decay-1/seed-0"))
    with watched(browser, address(server), width=390, height=800) as site:
        page = site.go(view=view, run=run, runs=[run])
        site.settled()
        assert page.evaluate("() => document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("width", [760, 920, 1280])
def test_every_view_is_in_sight(server: Server, browser: Any, width: int) -> None:
    with watched(browser, address(server), width=width) as site:
        tabs = site.page.locator("nav.tabs button")
        boxes = [tab.bounding_box() for tab in tabs.all()]
        bar = site.page.locator("nav.tabs").bounding_box()
        assert len(boxes) == len(EVERY_VIEW) and bar
        assert all(box and box["x"] + box["width"] <= bar["x"] + bar["width"] for box in boxes)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("view", EVERY_VIEW)
def test_axe_finds_no_serious_fault(server: Server, browser: Any, view: str, theme: str) -> None:
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="install the extra dev"
    )
    run = server.key(RUNS.get(view, "yunis2024/grok/grok/decay-1/seed-0"))
    with watched(browser, address(server), color_scheme=theme) as site:
        page = site.go(
            view=view,
            run=run,
            runs=[run],
            **({"claim": "yunis2024/Y9"} if view == "papers" else {}),
        )
        site.settled()
        violations = axe.Axe().run(page).response["violations"]
        grave = [
            (violation["id"], [node["html"][:120] for node in violation["nodes"]][:3])
            for violation in violations
            if violation["impact"] in ("serious", "critical")
        ]
        assert not grave, grave


def test_a_phone_names_rows_and_the_open_view(server: Server, browser: Any, tmp_path: Path) -> None:
    run = server.key("yunis2024/vgg/vgg/decay-0.001/seed-0")
    with watched(browser, address(server), width=390, height=800) as site:
        page = site.go(view="alignment", run=run)
        site.settled()
        box = page.locator("nav.tabs [aria-current]").bounding_box()
        assert box
        assert box["x"] >= 0 and box["x"] + box["width"] <= 390
        picture = exported(site, "heat", "SVG", tmp_path).decode()
    assert re.search(">con[^ ]*… 13 &#62; out[^ ]*…<", picture)
    for number in (1, 9, 12):  # words are cut, not numbers
        assert re.search(rf">con[^ ]*… {number} &#62; {number + 1}<", picture)


@pytest.mark.parametrize("width", [760, 1000, 1240, 1280, 1400])
def test_no_column_of_runs_is_cut(server: Server, browser: Any, width: int) -> None:
    with watched(browser, address(server), width=width) as site:
        table = site.page.locator(".table")
        assert table.evaluate("table => table.scrollWidth - table.clientWidth") <= 0
        heads = table.locator("thead th").all_inner_texts()
    assert {"Run", "Status", "Seed", "Last loss"} <= {head.strip() for head in heads}
