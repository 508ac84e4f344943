"""A scalar that cannot be stored is dropped with one warning, and the spectra go on."""

import numpy as np
import pytest
import torch

import rankscope as rs
from rankscope.tracker.scalars import name_problem
from tracker.tracked import network


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("train/loss", 1.0, "under this name"),
        ("a\\b", 1.0, "under this name"),
        ("", 1.0, "under this name"),
        ("zarr.json", 1.0, "under this name"),
        ("dropped", 1.0, "under this name"),
        ("loss.partial", 1.0, "under this name"),
        ("line\nbreak", 1.0, "under this name"),
        ("x" * 300, 1.0, "under this name"),
        ("singular_values", 1.0, "the name of another variable"),
        ("matrix", 1.0, "the name of another variable"),
        ("good_every_step", 1.0, "the name of another variable"),
        ("tracker_copy_seconds", 1.0, "the name of another variable"),
        ("nothing", None, "is None, not a number"),
        ("word", "high", "not a number"),
        ("huge", 10**400, "not a number"),
        ("vector", torch.ones(3), r"of shape \(3,\)"),
        ("array", np.ones((2, 2)), r"of shape \(2, 2\)"),
        ("empty", torch.ones(0), r"of shape \(0,\)"),
        ("phase", torch.tensor(1j), "complex"),
    ],
)
def test_a_bad_scalar_loses_nothing_else(tmp_path, name: str, value: object, reason: str) -> None:
    with (
        pytest.warns(RuntimeWarning, match=reason) as caught,
        rs.Tracker(network(), tmp_path / "run", schedule=1, every_step="good") as tracker,
    ):
        for step in range(4):
            tracker.observe(step, good=float(step), **({name: value} if step else {}))
    assert len(caught) == 1 and repr(name) in str(caught[0].message)
    assert tracker.failed is None
    ds = rs.open(tmp_path / "run")
    assert list(ds.good.values) == list(ds.good_every_step.values) == [0.0, 1.0, 2.0, 3.0]
    assert np.isfinite(ds.singular_values.sel(matrix="2").values[:, :4]).all()


def test_a_scalar_that_is_bad_at_times_is_nan_there(tmp_path) -> None:
    with (
        pytest.warns(RuntimeWarning, match="'loss' is None") as caught,
        rs.Tracker(network(), tmp_path / "run", schedule=2, every_step=("loss",)) as tracker,
    ):
        for step in range(4):
            tracker.observe(step, loss=None if step in (1, 2) else 1.0)
    assert len(caught) == 1
    ds = rs.open(tmp_path / "run")
    np.testing.assert_array_equal(ds.loss_every_step.values, [1.0, np.nan, np.nan, 1.0])
    np.testing.assert_array_equal(ds.loss.values, [1.0, np.nan])


@pytest.mark.parametrize("value", [3, True, np.float32(3), np.ones(1), torch.ones(1, 1)])
def test_single_numbers_of_any_kind(tmp_path, value: object) -> None:
    with rs.Tracker(network(), tmp_path / "run", schedule=1, strict=True) as tracker:
        tracker.observe(0, number=value)
    assert float(rs.open(tmp_path / "run").number[0]) == float(np.asarray(value).item())


def test_a_bad_scalar_is_an_exception_if_strict(tmp_path) -> None:
    tracker = rs.Tracker(network(), tmp_path / "run", schedule=1, strict=True)
    with pytest.raises(ValueError, match="'loss' is None"):
        tracker.observe(0, loss=None)
    tracker.close()


@pytest.mark.parametrize("name", ["a/b", "singular_values"])
def test_a_name_of_every_step_is_checked_at_once(tmp_path, name: str) -> None:
    with pytest.raises(ValueError, match="every_step: the scalar"):
        rs.Tracker(network(), tmp_path / "run", every_step=name)


def test_names_people_use() -> None:
    for name in ("loss", "top-5 accuracy", "lr.group.0", "perplexité"):
        assert name_problem(name, ()) == ""
