"""Keys in every view, dialogs on a phone and empty views, in a real browser."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from view.archived_site import address, wait_for_paint
from view.browsing import Watched, watched
from view.viewed_runs import Server, create, serving

GROK = "yunis2024/grok/grok/decay-1/seed-0"
VIT = "boix2023/vit-cifar10/vit/scale-0.1/seed-0"
FLOW = "boix2023/toy-diag/teacher-1/alpha-1e-8/seed-0"


@pytest.fixture
def phone(server: Server, browser: Any) -> Iterator[Watched]:
    touch = {"has_touch": True, "is_mobile": True}
    with watched(browser, address(server), width=390, height=800, **touch) as result:
        yield result


def cursor(page: Any) -> float | None:
    """Return where the address says that the cursor is."""
    place = page.evaluate("() => new URLSearchParams(location.search).get('at')")
    return None if place is None else float(place)


def wait_for_cursor(page: Any, before: float | None) -> float:
    """Wait until the cursor is elsewhere."""
    page.wait_for_function(
        """before => { const at = new URLSearchParams(location.search).get('at');
           return at !== null && Number(at) !== before }""",
        arg=before,
    )
    place = cursor(page)
    assert place is not None
    return place


TIMED = [
    ("moved", GROK, "scalars"),
    ("depth", GROK, "heat"),
    ("matrix", GROK, "image"),
    ("alignment", GROK, "heat"),
    ("heads", VIT, "image"),
    ("theory", FLOW, "z"),
    ("compare", GROK, "compare"),
]


@pytest.mark.parametrize(("view", "run", "panel"), TIMED, ids=[view for view, *_ in TIMED])
def test_keys_move_the_cursor_and_play_in_every_view(
    site: Watched, server: Server, view: str, run: str, panel: str
) -> None:
    key = server.key(run)
    # A comparison needs no open run.
    page = site.go(view=view, **({"runs": [key]} if view == "compare" else {"run": key}))
    site.settled()
    wait_for_paint(page, panel)
    page.keyboard.press("ArrowLeft")
    last = wait_for_cursor(page, None)
    page.keyboard.press("Home")
    first = wait_for_cursor(page, last)
    assert first < last
    page.keyboard.press(" ")
    assert wait_for_cursor(page, first) > first
    page.keyboard.press(" ")
    page.keyboard.press("+")
    page.wait_for_function("() => location.search.includes('to=')")
    page.keyboard.press("0")
    page.wait_for_function("() => !location.search.includes('to=')")


@pytest.mark.parametrize(("view", "run"), [("matrix", GROK), ("heads", VIT), ("depth", GROK)])
def test_a_key_goes_to_the_next_measure(site: Watched, server: Server, view: str, run: str) -> None:
    page = site.go(view=view, run=server.key(run))
    site.settled()
    heading = page.locator("h1").inner_text()
    measure = page.get_by_label("Measure")
    before = measure.input_value()
    page.keyboard.press("m")
    page.wait_for_function("() => location.search.includes('metric=')")
    assert measure.input_value() != before
    assert page.locator("h1").inner_text() == heading


def test_playing_ends_with_the_view(site: Watched, server: Server) -> None:
    page = site.go(view="depth", run=server.key(GROK), at="0")
    wait_for_paint(page, "heat")
    page.keyboard.press(" ")
    wait_for_cursor(page, 0)
    page.keyboard.press("4")
    wait_for_paint(page, "image")
    page.get_by_role("button", name="Play").wait_for()
    page.wait_for_timeout(600)  # the address follows the cursor
    place = cursor(page)
    page.wait_for_timeout(600)
    assert cursor(page) == place


def test_a_whole_run_plays_in_eight_seconds(site: Watched, server: Server) -> None:
    page = site.go(view="depth", run=server.key(GROK), at="0")
    wait_for_paint(page, "heat")
    began = time.monotonic()
    page.keyboard.press(" ")
    page.wait_for_timeout(3000)
    seconds, place = time.monotonic() - began, cursor(page)
    page.keyboard.press(" ")
    page.keyboard.press("End")
    assert place is not None
    played = 8 * place / wait_for_cursor(page, place)
    assert seconds - 1 < played <= seconds + 0.1  # the address lags


@pytest.mark.parametrize("dialog", ["Search", "Keys", "Python"])
def test_dialogs_fit_a_phone(phone: Watched, server: Server, dialog: str) -> None:
    page = phone.go(view="depth", run=server.key(GROK))
    wait_for_paint(page, "heat")
    if dialog == "Python":
        page.locator('[data-panel="heat"] details.menu summary').tap()
        page.get_by_role("button", name="Python").tap()
    else:
        page.get_by_role("button", name=dialog, exact=True).tap()
    shown = page.get_by_role("dialog")
    shown.wait_for()
    box = shown.bounding_box()
    assert box and box["x"] >= 0 and box["x"] + box["width"] <= 390
    assert box["y"] >= 0 and box["y"] + box["height"] <= 800
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"view": "theory"}, "this run has no continuous time"),
        ({"view": "heads"}, 'attrs["coverage"]'),
        ({"view": "compare", "runs": "gone"}, "there is no such run here"),
        ({"view": "moved", "run": "gone"}, "there is no such run here"),
    ],
    ids=["theory", "heads", "compare", "moved"],
)
def test_an_empty_view_says_why(
    server: Server, browser: Any, state: dict[str, str], words: str
) -> None:
    with watched(browser, address(server)) as site:
        page = site.go(**{"run": server.key("tracked"), **state})
        page.locator(".nothing").get_by_text(words).wait_for()
        site.faults.clear()  # a browser notes every answer of 404


def test_a_difference_from_a_run_that_is_not_compared_is_none(
    site: Watched, server: Server
) -> None:
    page = site.go(view="compare", runs=[server.key(GROK)], difference=server.key("tracked"))
    wait_for_paint(page, "compare")
    page.get_by_role("button", name="Without difference").click()
    page.wait_for_function("() => !location.search.includes('difference')")


def test_a_run_without_a_snapshot_says_what_to_do(browser: Any, tmp_path: Path) -> None:
    create(tmp_path / "begun").close()
    with serving(tmp_path) as server, watched(browser, address(server)) as site:
        for view in ("moved", "depth", "matrix"):
            page = site.go(view=view, run=server.key("begun"))
            page.get_by_text("Call tracker.observe").wait_for()
