"""The overview of a notebook: its numbers, and the modules that travel with it."""

import re
from pathlib import Path

import numpy as np
import pytest

import rankscope as rs
from rankscope.view.export import unpacked
from rankscope.view.widget import STATIC, bundle, overview_frame
from view.viewed_runs import NAMES, write


def test_the_overview_shows_the_run(tmp_path: Path) -> None:
    ds = rs.open(write(tmp_path / "run", range(30)))
    arrays, meta = unpacked(overview_frame(ds))
    assert arrays["heat"].shape == (5, 30)
    assert arrays["x"].tolist() == list(range(30))
    assert [row["name"] for row in meta["rows_info"]] == list(NAMES)
    assert meta["scalar_names"] == ["loss", "rate"]
    np.testing.assert_allclose(arrays["scalars"][0], ds["loss"])
    ranks = ds.rankscope.normalized_effective_rank()
    assert meta["scale"]["low"] == pytest.approx(float(ranks.min()), rel=1e-6)
    moved = ranks.max("step") - ranks.min("step")
    assert meta["moved"]["rows"][0]["name"] == moved.idxmax().item()


def test_another_quantity_and_a_part_of_a_run(tmp_path: Path) -> None:
    ds = rs.open(write(tmp_path / "run", range(30))).isel(step=slice(5, 15))
    arrays, meta = unpacked(overview_frame(ds, of="surprise"))
    assert meta["metric_label"] == "surprise"
    assert arrays["positions"].tolist() == list(range(10))
    with pytest.raises(ValueError, match="nothing to show there; it has singular_values: "):
        overview_frame(ds, metric="nothing")
    with pytest.raises(ValueError, match="nothing to show"):
        overview_frame(ds.isel(step=slice(0)))


def test_a_cell_gets_a_widget_that_needs_no_server(tmp_path: Path) -> None:
    pytest.importorskip("anywidget")
    shown = rs.open(write(tmp_path / "run", range(3))).rankscope.view()
    assert shown.overview.startswith(b"RSV1")
    assert "export default" in shown._esm
    assert shown.theme == "auto"


def test_the_bundle_holds_every_module_once_and_asks_for_none() -> None:
    text = bundle(STATIC / "widget.js")
    assert not re.search(r'from\s*\\"\.', text)
    modules = text.count("urls.push(")
    assert modules >= 6
    for number in map(int, re.findall(r"urls\[(\d+)\]", text)):
        assert number < modules
    assert "http://" not in text.replace("http://www.w3.org", "")


def test_a_module_from_elsewhere_is_refused(tmp_path: Path) -> None:
    module = tmp_path / "own.js"
    module.write_text('import { x } from "./other.js";')
    with pytest.raises(AssertionError, match="elsewhere"):
        bundle(module)
