"""Flows that meet in one operation."""

import pytest

from rankscope.pairs.flow import Flow, joined

# Source 0 feeds source 1, and both feed source 2.
UPSTREAM = [set[int](), {0}, {0, 1}]


def flow(source: int, **fields: bool) -> Flow:
    return Flow(source=source, axis=1, channels=4, **fields)


@pytest.mark.parametrize(
    ("operands", "sources"),
    [
        ([[0], [1]], [1]),
        ([[2], [0, 1]], [2]),
        ([[0], [0]], [0]),
        ([[0, 2]], [0, 2]),
    ],
    ids=["residual", "two_residual", "same_source", "one_path"],
)
def test_a_sum_drops_the_residual_path(operands: list[list[int]], sources: list[int]) -> None:
    flows = [[flow(source) for source in operand] for operand in operands]
    assert [result.source for result in joined("Add", flows, UPSTREAM)] == sources


@pytest.mark.parametrize("name", ["Mul", "Cat", "Bmm"])
def test_a_product_or_concatenation_keeps_all_features(name: str) -> None:
    assert joined(name, [[flow(0)], [flow(1), flow(0)]], UPSTREAM) == (flow(0), flow(1))


def test_mixture_weights_give_way_to_what_they_mix() -> None:
    weight = flow(1, is_mixture_weight=True)
    assert joined("Bmm", [[weight], [flow(0)]], UPSTREAM) == (flow(0),)
    assert joined("Bmm", [[weight]], UPSTREAM) == (weight,)
