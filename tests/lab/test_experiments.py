"""Every experiment of the package, end to end at smoke scale: what it stores, judges and draws."""

import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from rankscope import store
from rankscope.lab.catalogue import load, load_studies
from rankscope.lab.commands import run_experiment
from rankscope.lab.experiment import SCALES
from rankscope.lab.running.stored_run import stored_runs

NAMES = [e.name for study in load_studies("smoke") for e in study.experiments]


@pytest.mark.parametrize("name", NAMES)
def test_smoke(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = load(name, "smoke")
    (experiment,) = study.experiments
    assert run_experiment(study, tmp_path, jobs=1)
    runs = stored_runs(experiment, tmp_path)
    assert {run.state for run in runs} == {"whole"}
    for run in runs:
        check_contents(store.open(run.path))
    folder = experiment.folder(tmp_path)
    verdicts = json.loads((folder / "verdicts.json").read_text())["verdicts"]
    assert [verdict["claim"] for verdict in verdicts] == [rule.claim for rule in study.claims]
    words = {n["verdict"] for verdict in verdicts for n in verdict["networks"]}
    assert words <= {"no data", "holds so far", "fails so far"}  # there is one seed
    figures = list((folder / "figures").iterdir())
    assert {path.stem for path in figures} == {figure.name for figure in study.figures}
    assert all(path.stat().st_size > 5000 for path in figures)
    printed = capsys.readouterr().out
    assert all(rule.claim in printed for rule in study.claims)


def check_contents(ds: xr.Dataset) -> None:
    """What any run of a kind shows, at whatever size."""
    assert ds.attrs["seed"] >= 0 and ds.attrs["declaration"]
    if "z" in ds:  # a flow goes downhill and ends where it was told to, with all its numbers
        assert ds.attrs["finished"], ds.attrs["message"]
        assert (np.diff(ds["loss"]) <= 1e-9 * float(ds["loss"][0])).all()
        assert np.isfinite(ds["y"]).all()
        assert ds.sizes["crossing"] > 0
    if "stage_z" in ds:  # each stage has a lower loss and at most one coordinate more
        assert (ds["stage_converged"] == 1).all()
        assert (np.diff(ds["stage_time"]) >= 0).all() and (np.diff(ds["stage_loss"]) < 0).all()
        assert (np.diff((ds["stage_z"] != 0).sum("coordinate")) <= 1).all()
    if "singular_values" in ds:
        values = ds["singular_values"].fillna(0)  # short spectra are padded
        assert (values.diff("k") <= 0).all()
    if "training_loss" in ds:
        check_training(ds)
    elif "product" in ds.dims and "z" not in ds:  # the full head's rise from nearly nothing
        assert (values[-1].max("k") > 100 * values[0].max("k")).all()
    if "distance" in ds:  # perturbed, and nearer afterwards
        assert (ds["distance"][:, 0] > 0).all()


def check_training(ds: xr.Dataset) -> None:
    """Every matrix was read at every snapshot, weights moved, and what was measured makes sense."""
    assert ds.sizes["step"] >= 4 and ds["step"][0] == 0
    assert (ds["status"] == 0).all() and ds.attrs["diverged_at"] is None
    assert (np.isfinite(ds["singular_values"]).sum("k") == np.minimum(ds["m"], ds["n"])).all()
    assert (abs(ds["singular_values"][-1] - ds["singular_values"][0]) > 0).any("k").all()
    assert ds["training_loss"][-1] < ds["training_loss"][0]
    assert np.isfinite(ds["validation_loss"]).all() and ds.attrs["constant_loss"] > 0
    assert ds.attrs["shown_matrix"] in ds["matrix"] and ds.attrs["shown_pair"] in ds["pair"]
    rank = ds.rankscope.normalized_effective_rank()
    assert ((rank > 0) & (rank <= 1 + 1e-6)).all()
    aligned = ds.rankscope.mean_alignment()
    assert ((aligned > 0) & (aligned <= 1)).all()
    if "product" in ds.dims:  # of heads, which have not changed yet at the start
        change = ds["product_change_singular_values"].fillna(0).max("k")
        assert (change[0] == 0).all() and (change[-1] > 0).all()
    if "top_loss" in ds:
        assert np.isfinite(ds["top_loss"]).all() and np.isfinite(ds["bottom_loss"]).all()
        assert not np.allclose(ds["top_loss"], ds["bottom_loss"])


@pytest.mark.parametrize("name", NAMES)
def test_every_scale_is_declared(name: str) -> None:
    studies = {scale: load(name, scale) for scale in SCALES}
    assert all(study.claims and study.figures for study in studies.values())
    for scale in ("paper", "small"):
        least = 1 if (name, scale) == ("boix2023/vit-variants", "paper") else 3  # a first look
        assert len(studies[scale].experiments[0].seeds) >= least
    assert studies["small"].experiments[0].expected_seconds, f"measure {name} at small"
