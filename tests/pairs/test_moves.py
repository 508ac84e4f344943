"""Examples in the docstring of `moves`, run as they are printed."""

import doctest

import torch

from rankscope.pairs import moves
from rankscope.pairs.flow import steps_into


def test_the_examples_give_the_flows_they_print() -> None:
    names = {"torch": torch, "steps_into": steps_into}
    results = doctest.testmod(moves, extraglobs=names)
    assert results.attempted >= 10 and results.failed == 0
