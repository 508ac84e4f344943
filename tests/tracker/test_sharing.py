"""Each rank measures its share: the values of one process, no rank with all weights, no hang."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

import rankscope as rs
from tracker import sharing_ranks
from tracker.ranks import Case, Nursery


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.mark.parametrize("way", ["ddp", "fsdp2"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_shares_are_those_of_one_process(
    tmp_path: Path, nursery: Nursery, way: str, ranks: int
) -> None:
    case = Case(tmp_path, way, ranks=ranks, deed=sharing_ranks.beside_one)
    for told in nursery.launch(case):
        assert told["failed"] == [None, None]
        assert told["neutral"]
        assert told["matrices"] and told["snapshots"] == 5
        # One place and the reference: each a share, and more for what is borrowed or indivisible.
        most = 2 * (1.25 * told["equal"] + told["largest"])
        assert 0 < told["bytes"] <= most < 2 * told["all"]
    shared, one = rs.open(case.path / "shared"), rs.open(case.path / "one")
    assert shared.attrs["ranks"] == f"{ranks}, each measures a share"
    if way == "fsdp2":  # under DDP a tracker on rank 0 alone is as good
        assert one.attrs["ranks"] == f"{ranks}, rank 0 measures all: share=False"
    assert shared.step.values.tolist() == [0, 1, 2, 3, 4, 5]
    assert set(shared.variables) == set(one.variables)
    for name in one.variables:
        if name.startswith("tracker_"):
            continue
        if one[name].dtype.kind == "f":
            np.testing.assert_allclose(
                shared[name].values, one[name].values, rtol=1e-5, atol=1e-6, err_msg=name
            )
        else:
            assert shared[name].equals(one[name]), name
    references = [
        load_file(case.path / name / "reference.safetensors") for name in ("shared", "one")
    ]
    assert references[0].keys() == references[1].keys()
    for name, weight in references[0].items():
        assert weight.equal(references[1][name])


def test_a_run_is_resumed_by_any_number_of_ranks(tmp_path: Path, nursery: Nursery) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    deed = sharing_ranks.resumed
    for way, ranks, first in (("fsdp2", 4, 0), ("ddp", 2, 3), ("alone", 1, 6), ("ddp", 4, 9)):
        case = Case(tmp_path, way, str(first), ranks=ranks, deed=deed)
        assert nursery.launch(case)[1:] == ["done"] * (ranks - 1)
    for first in (0, 3, 6, 9):
        assert len(nursery.launch(Case(whole, "alone", str(first), deed=deed))) == 1
    run, expected = rs.open(tmp_path / "run"), rs.open(whole / "run")
    assert run.step.values.tolist() == list(range(12))
    for name in ("singular_values", "change_singular_values", "product_change_singular_values"):
        np.testing.assert_allclose(run[name], expected[name], rtol=1e-3, atol=1e-5, err_msg=name)
    # Back to the beginning: all ranks take a new reference, and the old run is kept whole.
    nursery.launch(Case(tmp_path, "ddp", "0", deed=deed))
    assert rs.open(tmp_path / "run").step.values.tolist() == [0, 1, 2]
    assert rs.open(tmp_path / "run" / "dropped" / "1").sizes["step"] == 12
    change = rs.open(tmp_path / "run").change_singular_values
    np.testing.assert_allclose(change, expected.change_singular_values[:3], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("way", "trouble", "ranks", "told"),
    [
        ("ddp", "measuring", 2, r"rank 1 could not measure its share \(OSError: broken\)"),
        ("fsdp2", "silent", 2, r"rank 1 (has not measured|had not come)"),
        ("ddp", "killed while measuring", 4, r"rank 3 has not measured its share: it was silent"),
        ("fsdp2", "killed", 4, "rank 3 had not come to the snapshot of step 2"),
        ("ddp", "raises", 2, "rank 1 had not come to the snapshot of step 2"),
    ],
)
def test_no_rank_hangs(
    tmp_path: Path, nursery: Nursery, way: str, trouble: str, ranks: int, told: str
) -> None:
    case = Case(tmp_path, way, trouble, ranks=ranks, deed=sharing_ranks.in_trouble)
    *others, last = nursery.launch(case)
    for rank, answer in enumerate(others):
        failure, seconds = answer
        assert failure != "failed: None"
        assert seconds < 8 * sharing_ranks.SHORT
        if rank == 0:
            assert re.search(told, failure), failure
    if trouble.startswith("killed"):
        assert last == -9
    assert rs.open(case.path).step.values.tolist() == [0, 1]


def test_what_needs_all_weights_is_left_to_one(tmp_path: Path, nursery: Nursery) -> None:
    for refusal, warning, *told in nursery.launch(
        Case(tmp_path, "fsdp2", deed=sharing_ranks.left_to_one)
    ):
        assert "share=True: a probe needs all weights" in refusal
        assert "in spite of share=True: the ranks have different matrices" in warning
        assert told == [
            "2, rank 0 measures all: a probe needs all weights in one place",
            "2, rank 0 measures all: the ranks have different matrices",
        ]


def test_a_step_is_left_out_by_all_and_a_lost_matrix_by_its_owner(
    tmp_path: Path, nursery: Nursery
) -> None:
    case = Case(tmp_path, "ddp", ranks=3, deed=sharing_ranks.full_places)
    writer, *others = nursery.launch(case)
    assert writer == {"failed": None, "committed": 0}
    assert others == [{"failed": None, "committed": None}] * 2
    run = rs.open(case.path)
    assert run.step.values.tolist() == [0, 2, 3]
    assert run.attrs["skipped"] == [1]
    lost = run.matrix.values == "0"
    spectra = np.isfinite(run.singular_values).any("k")
    assert spectra.values.tolist() == [[True] * len(lost)] * 2 + [(~lost).tolist()]
    assert run.status.values[-1].tolist() == [2 if gone else 0 for gone in lost]
