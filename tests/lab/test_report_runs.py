from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from lab.toy_experiments.paper2000.slow_decay import experiment
from rankscope.lab.report_runs import (
    RunRecord,
    busy_seconds,
    columns_of,
    cost,
    expectation,
    how_many,
    origins,
    record,
)


def training(*, loss: float) -> xr.Dataset:
    """Two snapshots of one matrix, as a training stores them."""
    return xr.Dataset(
        {
            "singular_values": (("step", "matrix", "k"), np.ones((2, 1, 2))),
            "training_loss": ("step", [2.3, loss]),
            "validation_loss": ("step", [2.3, 0.75]),
            "validation_accuracy": ("step", [0.1, 0.925]),
        },
        coords={
            "step": [0, 9],
            "matrix": ["w"],
            "m": ("matrix", [2]),
            "n": ("matrix", [2]),
            "part_of": ("matrix", [""]),
        },
        attrs={
            "constant_loss": 2.0,
            "paper_decay": 0.1,
            "decay": 0.05,
            "decay_sum": 0.125,
            "parameters": 12345,
            "wall_seconds": 61.5,
            "device": "cpu (x)",
            "started": "2026-01-01T10:00:00+00:00",
            "torch": "2.9",
        },
    )


def test_a_training() -> None:
    found = record("vgg/decay-0.1", 1, training(loss=0.5))
    assert found.cells == {
        "paper's decay": "0.1",
        "decay": "0.05",
        "sum of rate x decay": "0.125",
        "parameters": "12,345",
        "training loss": "0.5",
        "of a constant": "2",
        "validation loss": "0.75",
        "validation accuracy": "92.5%",
        "collapsed": "no",
        "seconds": "61.5",
        "device": "cpu (x)",
    }
    assert (found.missing, found.collapsed, found.seconds) == ("", "", 61.5)


def test_a_collapsed_training_says_why() -> None:
    found = record("vgg/decay-0.1", 1, training(loss=1.9))
    assert (
        found.collapsed
        == found.cells["collapsed"]
        == ("training loss 1.9, a constant predictor's is 2")
    )


def test_other_runs_have_fewer_columns() -> None:
    flow = record("flow", 0, xr.Dataset(attrs={"wall_seconds": 2.0}))
    lost = record("flow", 1, "was not run")
    assert columns_of([flow, lost]) == ["seconds", "device"]
    assert lost == RunRecord("flow", 1, "was not run", {})


def test_runs_are_counted_of_all_declared_seeds() -> None:
    """Of two runs with three seeds each, however many of the seeds were begun."""
    toy = experiment("small")

    def said(**missing: tuple[str, ...]) -> str:
        seeds = {int(seed.removeprefix("seed_")): reasons for seed, reasons in missing.items()}
        records = [RunRecord("r", seed, why, {}) for seed, of in seeds.items() for why in of]
        return how_many(toy, records)

    lost, there = ("was not run",) * 2, ("", "")
    assert said(seed_0=lost, seed_1=lost, seed_2=lost) == "0 of 6 runs there"
    assert said(seed_0=("", "failed")) == "1 of 6 runs there, none of seeds 1, 2"
    assert said(seed_0=there, seed_2=there) == "4 of 6 runs there, none of seed 1"
    assert said(seed_0=there, seed_1=there, seed_2=there) == "6 of 6 runs there"
    assert said(seed_7=there) == "2 of 8 runs there, none of seeds 0, 1, 2"


def test_what_is_expected_is_said_of_each_machine() -> None:
    toy = replace(experiment("small"), expected_seconds=1800)
    unknown = replace(toy, name="paper2000/c", expected_seconds=None)
    gpu = replace(toy, expected_seconds=10800, expected_on="one H200")
    assert expectation([toy, gpu, toy]) == "60 min on 2 cores, 3 h on one H200"
    assert expectation([gpu, unknown]) == "3 h on one H200; not known of paper2000/c"
    assert expectation([unknown]) == expectation([]) == ""


def test_cost_and_origin() -> None:
    first, lost = record("a", 0, training(loss=0.5)), record("a", 2, "was not run")
    later = training(loss=0.5).assign_attrs(
        started="2026-01-01T10:10:00+00:00", wall_seconds=30.0, torch="2.10"
    )
    second = record("a", 1, later)
    found = cost([second, first, lost])
    assert found is not None
    assert (found.together, found.busy) == (pytest.approx(91.5), pytest.approx(91.5))
    assert (found.first, found.last) == ("2026-01-01 10:00+00:00", "2026-01-01 10:10+00:00")
    versions = origins([first, first, second, lost])
    assert versions["torch"] == [("2.9", 2), ("2.10", 1)]
    assert versions["commit"] == [("unknown", 3)]
    assert cost([lost]) is None


def test_runs_side_by_side_count_once() -> None:
    day = "2026-01-01T"
    together = [(f"{day}00:00:00", 60.0), (f"{day}00:00:30", 60.0), (f"{day}00:00:40", 10.0)]
    assert busy_seconds(together) == pytest.approx(90)
    assert busy_seconds([*together, (f"{day}05:00:00", 7.0)]) == pytest.approx(97)
    assert busy_seconds([]) == 0
