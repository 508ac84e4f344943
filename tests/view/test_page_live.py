"""The page while a run is being written, and when there is nothing to see."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from view.browsing import watched
from view.viewed_runs import create, fill, serving, write

SECONDS = 2.0  # until a new snapshot is on the page


def wait_for_step(page: Any, step: int) -> None:
    """Wait until the table of ranks, which follows the last snapshot, shows a step."""
    page.wait_for_function(
        "text => document.querySelector('[data-panel=facts]')?.innerText.includes(text)",
        arg=f"step {step}\t",
    )


def test_a_new_snapshot_appears(tmp_path: Path, browser: Any) -> None:
    with create(tmp_path / "runs/live") as writer, serving(tmp_path / "runs") as server:
        fill(writer, range(5))
        address = f"http://127.0.0.1:{server.port}/?token={server.gate.token}"
        with watched(browser, address) as site:
            page = site.go(view="matrix", run=server.key("live"))
            wait_for_step(page, 4)
            waits = []
            for step in range(5, 8):
                fill(writer, range(step, step + 1))
                began = time.monotonic()
                wait_for_step(page, step)
                waits.append(time.monotonic() - began)
            assert min(waits) < SECONDS  # the least: other tests share the machine


def test_a_writer_that_dies_is_seen(tmp_path: Path, browser: Any) -> None:
    lines = "import sys, time; from pathlib import Path; from view.viewed_runs import *\n"
    lines += "fill(create(Path(sys.argv[1])), range(5)); print('written', flush=True)\n"
    command = [sys.executable, "-c", lines + "time.sleep(600)", str(tmp_path / "runs/live")]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=env) as writer:
        assert writer.stdout is not None and writer.stdout.readline() == b"written\n"
        with serving(tmp_path / "runs") as server:
            address = f"http://127.0.0.1:{server.port}/?token={server.gate.token}"
            with watched(browser, address) as site:
                page = site.go(view="matrix", run=server.key("live"))
                page.wait_for_selector(".runline .running")
                writer.kill()
                writer.wait()
                page.wait_for_selector(".runline .interrupted", timeout=15_000)


def test_a_new_run_appears(tmp_path: Path, browser: Any) -> None:
    (tmp_path / "runs").mkdir()
    with serving(tmp_path / "runs") as server:
        address = f"http://127.0.0.1:{server.port}/?token={server.gate.token}"
        with watched(browser, address) as site:
            assert "rs.Tracker" in site.page.locator("main").inner_text()  # says what to do
            with create(tmp_path / "runs/fresh") as writer:
                fill(writer, range(3))
                site.page.wait_for_selector("[data-run]", timeout=8000)
            assert "fresh" in site.page.locator("tbody").inner_text()


def test_a_run_that_is_deleted_stays_and_is_announced(tmp_path: Path, browser: Any) -> None:
    path = write(tmp_path / "runs/first")
    with serving(tmp_path / "runs") as server:
        address = f"http://127.0.0.1:{server.port}/?token={server.gate.token}"
        with watched(browser, address) as site:
            page = site.go(view="matrix", run=server.key("first"))
            wait_for_step(page, 58)
            shutil.rmtree(path)
            page.get_by_text("This is the run as it was last read").wait_for(timeout=15_000)
            wait_for_step(page, 58)
            site.faults.clear()  # a browser notes every answer of 404


def test_a_page_goes_on_when_the_server_is_back(tmp_path: Path, browser: Any) -> None:
    write(tmp_path / "runs/first")
    with serving(tmp_path / "runs") as server:
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{server.port}/?token={server.gate.token}")
        page.locator("[data-run]").click()
        page.locator('[data-view="depth"]').click()
        page.wait_for_selector('[data-panel="heat"] canvas')
        context.set_offline(True)
        page.get_by_text("The server does not answer.").wait_for(timeout=8000)
        page.get_by_label("Measure").select_option(label="stable rank")
        page.wait_for_selector('[data-panel="heat"] .state.error')
        context.set_offline(False)
        page.wait_for_selector("[role=alert]", state="detached", timeout=8000)
        page.wait_for_selector('[data-panel="heat"] canvas')
        context.clear_cookies()  # as if another server had taken the port
        page.get_by_text("Open the address that rankscope view printed last").wait_for(timeout=8000)
        context.close()


def test_a_server_that_ends_is_announced(tmp_path: Path, browser: Any) -> None:
    (tmp_path / "runs").mkdir()
    with serving(tmp_path / "runs") as server:
        address = f"http://127.0.0.1:{server.port}/?token={server.gate.token}"
        context = browser.new_context()
        page = context.new_page()
        page.goto(address)
        page.wait_for_selector("main .nothing")
    page.wait_for_selector("[role=alert]", timeout=8000)
    assert "rankscope view" in page.locator("[role=alert]").inner_text()
    context.close()
