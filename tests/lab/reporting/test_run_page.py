from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import rankscope as rs
from rankscope.lab.commands import report_on_runs, short_titles
from rankscope.lab.reporting.run_page import run_facts, write_run_page
from view.viewed_runs import EVIL, NAMES, write

MOST_BYTES = 1_000_000
COLOURS = """canvas => new Set(new Uint32Array(canvas.getContext("2d").getImageData(
  0, 0, canvas.width, canvas.height).data.buffer)).size"""


def tracked(path: Path) -> Path:
    net = nn.Sequential(nn.MultiheadAttention(8, 2), nn.Linear(8, 5))
    with rs.Tracker(net, path, schedule=[0, 2]) as tracker:
        for step in range(3):
            tracker.observe(step, loss=1.0 / (step + 1))
            with torch.no_grad():
                net[1].weight[0] += 1
    return path


def test_a_page_shows_ranks_heads_alignments_and_tables(tmp_path: Path) -> None:
    ds = rs.open(tracked(tmp_path / "<first>"))
    text = write_run_page({"<first>": ds}, tmp_path / "page.html", command="make").read_text()
    assert text.count("<img ") == 6 and "<h1>Run &lt;first&gt;</h1>" in text
    for words in (
        "What moved most",
        "All matrices at the last snapshot",
        "tail exponent",
        "of each head",
    ):
        assert words in text
    assert "Side by side" not in text and "out x in" in text
    assert "Singular values of matrix 1, whose" in text


def test_several_runs_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [tracked(tmp_path / name / "run") for name in ("a", "b")]
    path = report_on_runs(runs, None, command="rankscope report a b")
    assert path == tmp_path / "a" / "run-and-run.html" and str(path) in capsys.readouterr().out
    text = path.read_text()
    assert "Side by side" in text and "<h2>a/run</h2>" in text and "<h2>b/run</h2>" in text


def test_titles_tell_runs_apart() -> None:
    assert short_titles([Path("/x/a"), Path("/x/b")]) == ["a", "b"]
    assert short_titles([Path("/x/runs/first")]) == ["runs/first"]
    with pytest.raises(ValueError, match="twice"):
        short_titles([Path("/x/a"), Path("/x/a")])


def test_facts(tmp_path: Path) -> None:
    snapshots, values, cost, beside = run_facts(rs.open(tracked(tmp_path / "run")))
    assert snapshots == "2 snapshots, from step 0 to step 2."
    assert values == "Last values: loss 0.333." and "training waited" in cost
    assert "beside training; copies held" in beside and beside.endswith("MiB.")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from view.browsing import chromium  # skips without Playwright

    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reports")
    names = (EVIL, "</script><script>fail()</script>", *NAMES[2:])
    paths = {"plain": write(folder / "plain"), EVIL: write(folder / "evil", names=names)}
    runs = {title: rs.open(path) for title, path in paths.items()}
    return write_run_page(runs, folder / "page.html", command="make")


def opened(browser: Any, report: Path, **options: Any) -> tuple[Any, list[str], list[str]]:
    """Open a file; return the page, its faults, and its requests beside the file itself."""
    page = browser.new_page(**options)
    faults: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: faults.append(message.text))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(report.as_uri())
    inside = ("blob:", "data:", report.as_uri())
    page.wait_for_load_state("networkidle")
    return page, faults, [url for url in requests if not url.startswith(inside)]


def test_a_report_opens_on_the_drawings_of_its_runs(browser: Any, report: Path) -> None:
    page, faults, requests = opened(browser, report)
    page.wait_for_selector(".overview >> nth=1 >> .rankscope-moved")
    overviews = page.locator(".overview")
    assert overviews.count() == 2
    for place in range(2):
        for canvas in overviews.nth(place).locator("canvas").all():
            assert canvas.evaluate(COLOURS) > 5
    assert page.locator("img[src=x]").count() == 0
    assert page.locator("noscript img").count() == 0  # not parsed where scripts run
    assert EVIL in page.locator("h1").inner_text()
    assert not faults and not requests
    page.close()


def test_the_drawing_is_on_the_first_screen(browser: Any, tmp_path: Path) -> None:
    run = rs.open(write(tmp_path / "run"))
    path = write_run_page({"run": run}, tmp_path / "page.html", command="make")
    assert path.stat().st_size < MOST_BYTES
    page, faults, requests = opened(browser, path, viewport={"width": 1280, "height": 800})
    page.wait_for_selector(".overview canvas")
    box = page.locator(".overview canvas").nth(1).bounding_box()
    assert box["y"] + box["height"] < 800
    assert not faults and not requests
    page.close()


def test_without_scripts_a_picture_stands_there(browser: Any, report: Path) -> None:
    page, faults, requests = opened(browser, report, java_script_enabled=False)
    pictures = page.locator("noscript img")
    assert pictures.count() == 2
    assert pictures.first.bounding_box()["height"] > 100
    assert not page.locator(".overview").first.is_visible()
    assert not faults and not requests
    page.close()
