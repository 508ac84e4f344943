"""The overview of a run: its numbers, and the modules that travel with it."""

import re
from pathlib import Path

import numpy as np
import pytest

import rankscope as rs
from rankscope.view.export import unpacked
from rankscope.view.overview import bundle, overview_frame, page_script
from view.viewed_runs import NAMES, write


def test_the_overview_shows_the_run(tmp_path: Path) -> None:
    ds = rs.open(write(tmp_path / "run", range(30)))
    arrays, meta = unpacked(overview_frame(ds))
    assert arrays["heat"].shape == (5, 30)
    assert arrays["x"].tolist() == list(range(30))
    assert [row["name"] for row in meta["rows_info"]] == list(NAMES)
    assert meta["scalar_names"] == ["loss"]
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


def test_losses_share_an_axis_with_nothing_else(tmp_path: Path) -> None:
    ds = rs.open(write(tmp_path / "run", range(3)))
    names = ("a_loss_of_ours", "bottom_loss", "training_loss", "validation_loss")
    _, meta = unpacked(overview_frame(ds.assign({name: ds["loss"] for name in names})))
    assert meta["scalar_names"] == ["loss", "training loss", "validation loss"]
    _, meta = unpacked(overview_frame(ds.drop_vars("loss")))
    assert meta["scalar_names"] == ["rate"]


def test_snapshots_without_spectra_are_told_from_others(tmp_path: Path) -> None:
    ds = rs.open(write(tmp_path / "run", range(30)))
    kept = ds.assign(singular_values=ds["singular_values"].where(ds["step"] % 7 == 0))
    arrays, meta = unpacked(overview_frame(kept))
    assert arrays["heat"].shape == (5, 30)
    assert np.flatnonzero(arrays["heat"].any(axis=0)).tolist() == [0, 7, 14, 21, 28]
    assert (meta["moved"]["stored"], meta["moved"]["columns"]) == (5, 30)
    assert arrays["scalars"].shape == (1, 30)
    assert None not in meta["moved"]["rows"][0]["spark"]


def test_weights_are_shown_before_what_else_is_stored(tmp_path: Path) -> None:
    ds = rs.open(write(tmp_path / "run", range(3)))
    turned = ds[list(ds.data_vars)[::-1]]
    for run in (ds, turned):
        _, meta = unpacked(overview_frame(run))
        assert meta["metric_label"] == "normalised effective rank"


def test_the_bundle_holds_every_module_once_and_asks_for_none() -> None:
    text = bundle()
    assert "<" not in page_script().partition("const { default")[0]  # it stands inside HTML
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
