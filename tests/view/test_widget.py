"""The overview in a cell of a notebook."""

from pathlib import Path

import pytest

import rankscope as rs
from view.viewed_runs import write


def test_a_cell_gets_a_widget_that_needs_no_server(tmp_path: Path) -> None:
    pytest.importorskip("anywidget")
    shown = rs.open(write(tmp_path / "run", range(3))).rankscope.view()
    assert shown.overview.startswith(b"RSV1")
    assert "export default" in shown._esm
    assert shown.theme == "auto"
