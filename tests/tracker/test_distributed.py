"""Two processes, DDP and FSDP2: one writer, the spectra of the unsharded model, no hang."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import rankscope as rs
from tracker.ranks import Case, Nursery


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture(scope="module")
def alone(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Path:
    case = Case(tmp_path_factory.mktemp("alone"), "alone")
    assert nursery.launch(case) == ["failed: None"]
    return case.path


@pytest.mark.parametrize("way", ["ddp", "fsdp2"])
def test_two_processes_agree_with_one(
    tmp_path: Path, way: str, alone: Path, nursery: Nursery
) -> None:
    case = Case(tmp_path, way)
    assert nursery.launch(case) == ["failed: None"] * 2
    one, two = rs.open(alone), rs.open(case.path)
    assert list(one.matrix.values) == list(two.matrix.values)
    assert list(two.step.values) == [0, 1, 2, 3, 4]
    np.testing.assert_allclose(one.norm.values, two.norm.values, rtol=1e-4)
    for name in ("singular_values", "change_singular_values", "product_singular_values"):
        np.testing.assert_allclose(one[name].values, two[name].values, rtol=1e-4, atol=1e-5)


def test_a_sharded_reference_is_gathered_by_all_ranks(tmp_path: Path, nursery: Nursery) -> None:
    case = Case(tmp_path, "fsdp2", "reference")
    assert nursery.launch(case) == ["failed: None"] * 2
    change = rs.open(case.path).change_singular_values
    assert float(np.nanmax(change.sel(step=0).values)) == 0.0
    assert float(np.nanmax(change.sel(step=3).values)) > 0.0


def test_a_mistake_ends_every_rank(tmp_path: Path, nursery: Nursery) -> None:
    assert nursery.launch(Case(tmp_path, "fsdp2", "mistake")) == ["refused"] * 2


@pytest.mark.parametrize(
    ("trouble", "failure"),
    [("worker", "OSError: broken"), ("disk", "NotADirectoryError|FileExistsError")],
)
def test_sharded_ranks_stop_together_when_the_writer_fails(
    tmp_path: Path, nursery: Nursery, trouble: str, failure: str
) -> None:
    case = Case(tmp_path, "fsdp2", trouble)
    writer, other = nursery.launch(case)
    assert re.search(failure, str(writer)) and "another rank" in str(other)
    if trouble == "worker":
        assert list(rs.open(case.path).step.values) == [0, 1]


def test_a_tracker_on_one_rank_of_a_sharded_model_is_told(tmp_path: Path, nursery: Nursery) -> None:
    first, second = nursery.launch(Case(tmp_path, "fsdp2", "one tracker"))
    assert "rank 1 had not made a Tracker; make it on every rank" in str(first)
    assert second == "no tracker"


def test_a_snapshot_on_one_rank_of_a_sharded_model_is_told(
    tmp_path: Path, nursery: Nursery
) -> None:
    case = Case(tmp_path, "fsdp2", "one snapshot")
    first, second = nursery.launch(case)
    assert "rank 1 had not come to the snapshot of step 9" in str(first)
    assert second == "failed: None"
    assert list(rs.open(case.path).step.values) == [0, 1, 2]


def test_ranks_with_different_steps_are_told(tmp_path: Path, nursery: Nursery) -> None:
    for message in nursery.launch(Case(tmp_path, "fsdp2", "other steps")):
        assert "snapshots of steps 0 and 3; pass the same steps on every rank" in str(message)


def test_truncate_says_how_to_gather_a_sharded_model(tmp_path: Path, nursery: Nursery) -> None:
    messages = nursery.launch(Case(tmp_path, "fsdp2", "truncate"))
    assert messages[0] == "rank 3"  # half of min(9, 6)
