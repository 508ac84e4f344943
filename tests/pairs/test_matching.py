"""Features that meet, groups that meet in part, and the reasons for what is left out."""

import pytest
import torch
from torch import Tensor, nn

from pairs.networks import IMAGE, ROWS, SEQUENCE, Written, names
from rankscope.matrices import views
from rankscope.pairs import Cut, Pairs, discover_pairs


def left_out(pairs: Pairs) -> set[tuple[str, str]]:
    """Return the two matrices of each pair that is left out."""
    return {(entry.earlier, entry.later) for entry in pairs.left_out}


def test_grouped_convolutions_pair_groups_that_contain_each_other() -> None:
    model = nn.Sequential(
        nn.Conv2d(4, 6, 1, groups=2),
        nn.Conv2d(6, 6, 1, groups=2),
        nn.Conv2d(6, 4, 1),
        nn.Conv2d(4, 6, 1, groups=2),
        nn.Conv2d(6, 6, 1, groups=3),
    )
    pairs = discover_pairs(model, IMAGE)
    assert {(pair.name, pair.earlier_cut, pair.later_cut) for pair in pairs} == {
        ("0.g0 > 1.g0", None, None),
        ("0.g1 > 1.g1", None, None),
        ("1.g0 > 2", None, Cut((2, 3), (0, None))),
        ("1.g1 > 2", None, Cut((2, 3), (1, None))),
        ("2 > 3.g0", Cut((2, 2), (0, None)), None),
        ("2 > 3.g1", Cut((2, 2), (1, None)), None),
        ("3.g0 > 4.g0", Cut((3,), ((0, 2),)), None),
        ("3.g1 > 4.g2", Cut((3,), ((1, 3),)), None),
    }
    assert left_out(pairs) == {("3.g0", "4.g1"), ("3.g1", "4.g1")}


def test_depthwise_convolutions_are_looked_through() -> None:
    model = nn.Sequential(nn.Conv2d(4, 6, 1), nn.Conv2d(6, 6, 3, groups=6), nn.Conv2d(6, 5, 1))
    pairs = discover_pairs(model, IMAGE)
    assert names(pairs) == ["0 > 2"]
    assert left_out(pairs) == {("1", "")}


def test_outputs_of_a_depthwise_convolution_meet_the_next_layer() -> None:
    model = nn.Sequential(nn.Conv2d(4, 4, 1), nn.Conv2d(4, 8, 3, groups=4), nn.Conv2d(8, 5, 1))
    pairs = discover_pairs(model, IMAGE)
    assert [(pair.name, pair.earlier_cut, pair.later_cut) for pair in pairs] == [
        ("1 > 2", None, None)
    ]


def test_vectors_have_no_pairs() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1), nn.Linear(1, 4), nn.Linear(4, 4))
    pairs = discover_pairs(model, ROWS)
    assert names(pairs) == []
    assert left_out(pairs) == {("1", ""), ("2", "")}
    with pytest.raises(KeyError):
        views(model)["1"]


# A model, its input, and the two matrices and the reason that are reported.
LEFT_OUT: dict[str, tuple[nn.Module, Tensor, str, str, str]] = {
    "pixel_shuffle": (
        nn.Sequential(nn.Conv2d(4, 8, 1), nn.PixelShuffle(2), nn.Conv2d(2, 3, 1)),
        *(IMAGE, "0", "2", "PixelShuffle"),
    ),
    # As many tokens as channels: sizes alone would not tell them apart.
    "other_axis": (
        Written(
            lambda self, x: self.channels(self.tokens(self.inner(x).mT).mT),
            inner=nn.Linear(4, 3),
            tokens=nn.Linear(3, 3),
            channels=nn.Linear(3, 2),
        ),
        *(SEQUENCE, "inner", "tokens", "become positions"),
    ),
    # Autograd keeps no sizes of constants, so it is not known where the outputs begin.
    "constants": (
        Written(
            lambda self, x: self.b(torch.cat([x[:, :1], self.a(x), x[:, :1]], 1)),
            a=nn.Linear(4, 3),
            b=nn.Linear(5, 2),
        ),
        *(ROWS, "a", "b", "constants of unknown size"),
    ),
    "unused": (
        Written(lambda self, x: self.a(x), a=nn.Linear(4, 3), idle=nn.Linear(3, 3)),
        *(ROWS, "idle", "", "no product"),
    ),
}


@pytest.mark.parametrize("case", LEFT_OUT)
def test_what_cannot_be_paired_is_reported(case: str) -> None:
    model, example, earlier, later, reason = LEFT_OUT[case]
    pairs = discover_pairs(model, example)
    (reported,) = (entry for entry in pairs.left_out if entry[:2] == (earlier, later))
    assert reason in reported.reason
    assert (earlier, later) not in {(pair.earlier, pair.later) for pair in pairs}


def entries(cut: Cut | None, size: int) -> list[int]:
    """Return the positions in a vector that a cut keeps."""
    numbers = torch.arange(size)[:, None]
    return (numbers if cut is None else cut(numbers))[:, 0].tolist()


@pytest.mark.parametrize(
    ("model", "example"),
    [
        (nn.Sequential(nn.Conv2d(4, 6, 3, padding=1), nn.Conv2d(6, 3, 3, padding=1)), IMAGE),
        (nn.Sequential(nn.Conv2d(4, 2, 4), nn.Flatten(), nn.Linear(18, 3)), IMAGE),
        (nn.Sequential(nn.Linear(4, 18), nn.Unflatten(1, (2, 3, 3)), nn.Conv2d(2, 3, 3)), ROWS),
        (nn.Sequential(nn.Conv2d(4, 6, 1), nn.Conv2d(6, 4, 3, groups=2)), IMAGE),
        (nn.Sequential(nn.Conv2d(4, 6, 1, groups=2), nn.Conv2d(6, 2, 3)), IMAGE),
        (
            Written(
                lambda self, x: self.b(torch.cat([x, self.a(x)[:, 1:4], self.a(x)], 1)),
                a=nn.Conv2d(4, 5, 1),
                b=nn.Conv2d(12, 2, 3),
            ),
            IMAGE,
        ),
    ],
    ids=["centre", "flatten", "unflatten", "ungrouped_grouped", "grouped_ungrouped", "slices"],
)
def test_the_entries_that_meet_are_the_same_features(model: nn.Module, example: Tensor) -> None:
    """One row of the earlier and one column of the later matrix, set alone, let a signal pass if
    and only if the cuts match them."""
    model = model.double()
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    pairs = discover_pairs(model, example.double())
    assert pairs
    matrices = views(model)
    with torch.no_grad():
        for pair in pairs:
            earlier, later = matrices[pair.earlier], matrices[pair.later]
            rows, columns = entries(pair.earlier_cut, earlier.m), entries(pair.later_cut, later.n)
            assert len(rows) == len(columns)
            for i, row in enumerate(rows):
                for j, column in enumerate(columns):
                    # Views share memory with the model's own tensors.
                    earlier.W[row], later.W[:, column] = 1, 1
                    assert bool(model(example.double()).any()) == (i == j)
                    earlier.W[row], later.W[:, column] = 0, 0
