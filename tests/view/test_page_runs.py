"""The table of runs, in a real browser."""

import shutil
from pathlib import Path

import rankscope as rs
from rankscope.lab.training.outcome import LOSS_SHARE, collapsed
from rankscope.view.summary import COLLAPSED
from view.archived_site import address
from view.browsing import RESULTS, chromium, watched
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


def test_collapsed_trainings_are_marked_in_the_list_and_in_comparisons(tmp_path: Path) -> None:
    for decay in ("0.01", "0.1"):
        name = f"yunis2024/vgg/vgg/decay-{decay}/seed-3.zarr.zip"
        (tmp_path / name).parent.mkdir(parents=True)
        shutil.copy(RESULTS / name, tmp_path / name)
    assert COLLAPSED == LOSS_SHARE
    with (
        serving(tmp_path) as server,
        chromium() as browser,
        watched(browser, address(server)) as site,
    ):
        runs = {row["decay"]: row for row in server.get("runs").json["runs"]}
        for row in runs.values():
            ds = rs.open(server.library.place(row["id"]).path)
            assert row["status"] == ("collapsed" if collapsed(ds) else "done")
        assert runs[0.1]["status"] == "collapsed"
        status = site.page.locator(".status.collapsed")
        assert status.all_inner_texts() == ["collapsed"]
        assert "constant predictor" in status.get_attribute("title")
        page = site.go(view="depth", run=runs[0.1]["id"])
        assert page.locator(".runline .status").inner_text() == "collapsed"
        page = site.go(view="compare", runs=[row["id"] for row in runs.values()])
        site.settled()
        dashes = {
            entry.inner_text(): entry.locator("path").get_attribute("stroke-dasharray")
            for entry in page.locator('[data-panel="compare"] .legend > span').all()
        }
        assert dashes["VGG, decay 0.01, seed 3"] == ""
        assert dashes["VGG, decay 0.1, seed 3 (collapsed)"] == "6 4"
