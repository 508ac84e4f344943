import json
from dataclasses import replace
from pathlib import Path

import pytest

from lab.toy_runs import Decay, Surroundings
from rankscope import store
from rankscope.lab.experiment import Experiment
from rankscope.lab.running.run_key import RunKey
from rankscope.lab.running.stored_run import StoredRun, stored_runs
from rankscope.store.lock import Lock


def at(tmp_path: Path, run: object = None) -> StoredRun:
    return StoredRun(RunKey("a", kind="decay"), 1, run or Decay(), tmp_path / "a/decay/seed-1")


def make(stored: StoredRun) -> StoredRun:
    provenance = stored.begin()
    stored.run.execute(stored.path, seed=stored.seed, progress=lambda fraction: None)
    stored.finish(provenance, seconds=2.5)
    return stored


def test_every_run_and_seed_has_a_folder_in_the_order_declared() -> None:
    experiment = Experiment(
        "paper/toy",
        "small",
        runs={RunKey("slow", kind="a"): Decay(), RunKey("b"): Decay(2.0)},
        seeds=(0, 1),
    )
    paths = [str(run.path) for run in stored_runs(experiment, Path("out"))]
    folder = "out/paper/toy/small"
    assert paths == [f"{folder}/{run}/seed-{seed}" for run in ("slow/a", "b") for seed in (0, 1)]
    assert [run.seed for run in stored_runs(experiment, Path("out"), seeds=(7,))] == [7, 7]


def test_a_whole_run_says_what_it_is(tmp_path: Path) -> None:
    stored = at(tmp_path)
    assert stored.state == "missing"
    stored.begin()
    assert stored.state == "interrupted"
    make(stored)
    assert stored.state == "whole"
    attrs = store.open(stored.path).attrs
    assert attrs["declaration"] == stored.declaration and attrs["declaration"]["steps"] == 4
    assert (attrs["seed"], attrs["wall_seconds"], attrs["whole"]) == (1, 2.5, True)
    assert attrs["rate"] == 1.0  # the run's own
    assert {"rankscope", "torch", "commit", "started"} <= attrs.keys()
    assert [path.name for path in stored.path.parent.iterdir()] == ["seed-1"]


def test_what_a_run_says_of_its_device_stays(tmp_path: Path) -> None:
    stored = make(at(tmp_path, Surroundings()))
    assert store.open(stored.path).attrs["device"] == "a device of its own"


def test_another_declaration_is_put_aside_and_not_lost(tmp_path: Path) -> None:
    first = make(at(tmp_path))
    second = at(tmp_path, Decay(rate=2.0))
    assert second.state == "changed" and second.changes() == ["rate: 1.0 -> 2.0"]
    aside = second.free_replaced_path()
    make(second)
    assert second.state == "whole" and store.open(aside).attrs["rate"] == 1.0
    assert replace(first, path=aside).state == "whole"
    third = at(tmp_path, Decay(rate=3.0))
    assert third.free_replaced_path() != aside
    assert at(tmp_path, Decay(rate=2.0, note="other words")).state == "whole"


def test_an_unfinished_run_is_removed_and_begins_anew(tmp_path: Path) -> None:
    stored = at(tmp_path)
    stored.begin()
    with pytest.raises(KeyboardInterrupt):
        Decay(interrupted=True).execute(stored.path, seed=1, progress=lambda fraction: None)
    assert stored.state == "interrupted" and store.open(stored.path).sizes["time"] == 4
    stored.begin()
    assert not stored.path.exists() and stored.state == "interrupted"


def test_a_run_that_another_process_writes_is_left_alone(tmp_path: Path) -> None:
    stored = at(tmp_path)
    stored.begin()
    Decay().execute(stored.path, seed=1, progress=lambda fraction: None)
    lock = Lock.take(stored.path)
    with pytest.raises(ValueError, match="is being written by this process"):
        stored.begin()
    lock.release()
    assert store.open(stored.path).sizes["time"] == 4


def test_what_no_experiment_made_is_refused(tmp_path: Path) -> None:
    stored = at(tmp_path)
    stored.path.mkdir(parents=True)
    thesis = stored.path / "zarr.json"
    thesis.write_text("years of work")
    assert stored.state == "foreign"
    with pytest.raises(ValueError, match="was not made by an experiment; choose another --out"):
        stored.begin()
    assert thesis.read_text() == "years of work"


def test_a_failure_is_kept_until_the_run_succeeds(tmp_path: Path) -> None:
    stored = at(tmp_path)
    assert stored.failure is None
    stored.begin()
    stored.fail("Trouble: in\ntwo lines", "Traceback ...")
    assert stored.failure == "Trouble: in two lines" and stored.state == "interrupted"
    assert "Traceback ..." in stored.failure_file.read_text()
    make(stored)
    assert stored.failure is None and not stored.failure_file.exists()


def test_a_damaged_store_is_not_whole(tmp_path: Path) -> None:
    stored = make(at(tmp_path))
    root = stored.path / "zarr.json"
    whole = json.loads(root.read_text())
    del whole["attributes"]["whole"]
    root.write_text(json.dumps(whole))
    assert stored.state == "foreign"
