"""Fingers on a phone, in a real browser that gets touches as a screen sends them."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest

from view.archived_site import address, wait_for_paint
from view.browsing import Watched, watched
from view.viewed_runs import Server, serving, write

LAST = 198
HEAT, SCALARS = "heat", "scalars"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("runs")
    write(folder / "run", range(0, LAST + 1, 2))
    with serving(folder) as running:
        yield running


@pytest.fixture
def page(server: Server, browser: Any) -> Iterator[Any]:
    """A view with two panels over time, on a phone."""
    touch = {"has_touch": True, "is_mobile": True}
    with watched(browser, address(server), width=390, height=700, **touch) as site:
        yield opened(site, server)


def opened(site: Watched, server: Server, **state: str) -> Any:
    page = site.go(view="depth", run=server.key("run"), **state)
    wait_for_paint(page, HEAT)
    wait_for_paint(page, SCALARS)
    return page


Place = tuple[float, float]  # share of a panel's plot from its left, pixels below its top


def touch(page: Any, panel: str, *moments: Sequence[Place]) -> None:
    """Put fingers on a panel, move them, and lift them; a moment has a place for each finger."""
    page.locator(f'[data-panel="{panel}"]').scroll_into_view_if_needed()
    box = page.locator(f'[data-panel="{panel}"] .canvas').bounding_box()
    left, width = box["x"] + 96, box["width"] - 96 - 14  # the plot lies between these margins
    session = page.context.new_cdp_session(page)

    def points(places: Sequence[Place]) -> list[dict[str, float]]:
        return [
            {"id": finger, "x": left + share * width, "y": box["y"] + y}
            for finger, (share, y) in enumerate(places)
        ]

    def send(kind: str, points: list[dict[str, float]]) -> None:
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    for fingers in range(1, len(moments[0]) + 1):  # one finger comes after the other
        send("touchStart", points(moments[0][:fingers]))
    for before, places in pairwise([*moments, []]):
        for lifted in reversed(points(before)[len(places) :]):
            send("touchEnd", [lifted])
        if places:
            send("touchMove", points(places))


def slide(begin: Sequence[Place], end: Sequence[Place], count: int = 8) -> list[list[Place]]:
    """Return the moments of fingers that move evenly."""
    shares = [i / count for i in range(count + 1)]
    return [
        [
            (a[0] + (b[0] - a[0]) * share, a[1] + (b[1] - a[1]) * share)
            for a, b in zip(begin, end, strict=True)
        ]
        for share in shares
    ]


def window(page: Any) -> tuple[float, float]:
    """Return the ends of the zoomed interval once the address names them."""
    page.wait_for_function("() => location.search.includes('to=')")
    page.wait_for_timeout(500)  # the address follows
    first, last = (re.search(rf"[?&]{name}=(\d+)", page.url) for name in ("from", "to"))
    assert first and last
    return float(first[1]), float(last[1])


def cursor(page: Any) -> float:
    """Return where the address says that the cursor is."""
    at = re.search(r"[?&]at=(\d+)", page.url)
    assert at
    return float(at[1])


def test_a_finger_moves_the_cursor_and_a_tap_opens(page: Any) -> None:
    touch(page, HEAT, *slide([(0.9, 60)], [(0.5, 60)]))
    page.wait_for_function("() => location.search.includes('at=')")
    assert "view=depth" in page.url and "to=" not in page.url
    touch(page, HEAT, [(0.5, 60)])
    page.wait_for_function("() => location.search.includes('view=matrix')")


@pytest.mark.parametrize("panel", [HEAT, SCALARS])
@pytest.mark.parametrize("slope", [0, 60], ids=["level", "slanted"])
def test_two_fingers_zoom_into_what_they_hold(page: Any, panel: str, slope: float) -> None:
    spread = slide([(0.4, 60), (0.6, 60)], [(0.2, 60 - slope / 2), (0.8, 60 + slope / 2)])
    page.locator(f'[data-panel="{panel}"]').scroll_into_view_if_needed()
    scrolled = page.evaluate("scrollY")
    touch(page, panel, *spread)
    # 0.4 to 0.6 of the run fill 0.2 to 0.8 of the plot.
    assert window(page) == pytest.approx((LAST / 3, 2 * LAST / 3), abs=4)
    assert "view=depth" in page.url
    assert page.locator(f'[data-panel="{panel}"] .tip').is_hidden()
    assert page.evaluate("scrollY") == scrolled


def test_two_fingers_move_the_window_up_to_the_end_of_the_run(page: Any) -> None:
    touch(page, HEAT, *slide([(0.4, 60), (0.6, 60)], [(0.2, 60), (0.8, 60)]))
    first, last = window(page)
    touch(page, HEAT, *slide([(0.5, 60), (0.7, 60)], [(0.3, 60), (0.5, 60)]))
    moved = window(page)
    assert moved == pytest.approx(
        (first + 0.2 * (last - first), last + 0.2 * (last - first)), abs=4
    )
    for _ in range(4):
        touch(page, HEAT, *slide([(0.7, 60), (0.9, 60)], [(0.1, 60), (0.3, 60)]))
    assert window(page) == pytest.approx((LAST - (last - first), LAST), abs=4)


def test_two_fingers_together_show_the_whole_run(page: Any) -> None:
    touch(page, HEAT, *slide([(0.4, 60), (0.6, 60)], [(0.2, 60), (0.8, 60)]))
    window(page)
    touch(page, HEAT, *slide([(0.1, 60), (0.9, 60)], [(0.45, 60), (0.55, 60)]))
    page.wait_for_function("() => !location.search.includes('to=')")


def test_a_finger_that_stays_after_the_other_moves_nothing(page: Any) -> None:
    spread = slide([(0.4, 60), (0.6, 60)], [(0.2, 60), (0.8, 60)])
    touch(page, HEAT, *spread, *slide([(0.2, 60)], [(0.7, 60)]))
    assert window(page) == pytest.approx((LAST / 3, 2 * LAST / 3), abs=4)
    before = cursor(page)
    assert before == pytest.approx(0.4 * LAST, abs=2)  # where the first finger came down
    touch(page, HEAT, *slide([(0.9, 60)], [(0.5, 60)]))  # the next one does
    page.wait_for_function(f"() => !location.search.includes('at={before:.0f}')")


def test_a_page_scrolls_under_a_finger_on_a_picture(page: Any) -> None:
    touch(page, HEAT, *slide([(0.5, 140)], [(0.5, 20)], 12))
    page.wait_for_function("() => scrollY > 30")
    assert "to=" not in page.url


def test_a_key_moves_a_window_to_the_end_without_narrowing_it(server: Server, browser: Any) -> None:
    with watched(browser, address(server)) as site:
        page = opened(site, server, **{"from": "140", "to": "190"})
        page.keyboard.press("d")
        page.wait_for_function(f"() => location.search.includes('to={LAST}')")
        assert window(page) == (LAST - 50, LAST)
