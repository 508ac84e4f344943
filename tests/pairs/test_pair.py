"""Cuts of singular vectors."""

import json
from dataclasses import asdict

import pytest
import torch

from rankscope.pairs import Cut, Pair
from rankscope.pairs.pair import block_cut


@pytest.mark.parametrize(
    ("cut", "entries"),
    [
        (Cut((2, 3, 3), (None, 1, 1)), [4, 13]),
        (Cut((4, 3), (2, None)), [6, 7, 8]),
        (Cut((9,), ((4, 7),)), [4, 5, 6]),
        (Cut((3, 2), ((1, 3), 0)), [2, 4]),
    ],
)
def test_a_cut_keeps_the_entries_it_names(cut: Cut, entries: list[int]) -> None:
    numbers = torch.arange(int(torch.tensor(cut.shape).prod()))
    entries_of_both = cut(torch.stack([numbers, 10 * numbers], dim=1))
    assert entries_of_both.tolist() == [[entry, 10 * entry] for entry in entries]
    assert cut.size == len(entries)


def test_a_cut_of_no_vectors_has_no_columns() -> None:
    assert Cut((2, 3), (0, None))(torch.empty(6, 0)).shape == (3, 0)


@pytest.mark.parametrize(
    ("start", "stop", "total", "taps", "cut"),
    [
        (0, 6, 6, (), None),
        (0, 6, 6, (1, 1), None),
        (0, 6, 6, (3, 3), Cut((6, 3, 3), (None, 1, 1))),
        (0, 6, 6, (2,), Cut((6, 2), (None, 1))),
        (3, 6, 6, (), Cut((2, 3), (1, None))),
        (3, 6, 6, (5, 3), Cut((2, 3, 5, 3), (1, None, 2, 1))),
        (4, 9, 9, (), Cut((9,), ((4, 9),))),
        (4, 6, 9, (3,), Cut((9, 3), ((4, 6), 1))),
    ],
)
def test_block_cut_has_one_form_for_each_cut(
    start: int, stop: int, total: int, taps: tuple[int, ...], cut: Cut | None
) -> None:
    assert block_cut(start, stop, total, taps=taps) == cut


def test_pairs_are_plain_data() -> None:
    pair = Pair("a", "b", later_cut=Cut((9, 3), ((4, 6), 1)), label="in 4:6")
    assert pair.name == "a > b [in 4:6]"
    assert json.loads(json.dumps(asdict(pair)))["later_cut"] == {
        "shape": [9, 3],
        "index": [[4, 6], 1],
    }
