"""The table of runs, in a real browser."""

from pathlib import Path

from view.archived_site import address
from view.browsing import chromium, watched
from view.viewed_runs import create, fill, serving, write

COST = """() => [...document.querySelectorAll("tbody [data-run]")].map((button) => {
  const heads = [...document.querySelectorAll("thead th")];
  const column = heads.findIndex((cell) => cell.innerText.startsWith("Tracker"));
  const cell = button.closest("tr").cells[column];
  return [button.innerText, cell.innerText, cell.title];
})"""


def test_what_the_tracker_cost_has_one_unit_and_its_share_beside(tmp_path: Path) -> None:
    write(tmp_path / "short", wall_seconds=40.0, tracking_seconds=20.0)
    write(tmp_path / "long", wall_seconds=7200.0, tracking_seconds=72.0)
    with create(tmp_path / "running", tracking_seconds=30.0) as running:
        fill(running, range(3))
        with (
            serving(tmp_path) as server,
            chromium() as browser,
            watched(browser, address(server)) as site,
        ):
            page = site.go(sort="cost")
            page.wait_for_selector("tbody tr:nth-child(3)")
            assert page.evaluate(COST) == [
                ["short", "20 s", "50% of 40 s"],
                ["running", "30 s", "Its share of the time is known when the run ends"],
                ["long", "1 min", "1% of 2.0 h"],
            ]
