"""The overview in a cell of a notebook."""

from base64 import b64encode
from pathlib import Path

import pytest

import rankscope as rs
from rankscope.view.overview import overview_frame, page_script
from view.browsing import chromium
from view.viewed_runs import write


def test_a_cell_gets_a_widget_that_needs_no_server(tmp_path: Path) -> None:
    pytest.importorskip("anywidget")
    shown = rs.open(write(tmp_path / "run", range(3))).rankscope.view()
    assert shown.overview.startswith(b"RSV1")
    assert "export default" in shown._esm
    assert shown.theme == "auto"


def test_a_cell_has_the_theme_of_its_notebook_and_follows_it(tmp_path: Path) -> None:
    frame = b64encode(overview_frame(rs.open(write(tmp_path / "run", range(3))))).decode()
    place = f"<section><div data-overview='{frame}'></div></section>"
    script = f"<script type='module'>{page_script()}</script>"
    with chromium() as browser:
        page = browser.new_page(color_scheme="light")
        page.set_content(f"<body style='background: #111'>{place}{script}")
        page.wait_for_selector(".rankscope-dark canvas")
        page.evaluate("() => (document.body.style.background = '#fafafa')")
        page.wait_for_selector(".rankscope-light canvas")
        assert page.locator(".rankscope-dark").count() == 0
