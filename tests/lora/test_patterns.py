"""Patterns against PEFT's own matching, and expressions that could hang."""

import re
import time

import pytest

from rankscope.lora.patterns import Patterns, anchored

NAMES = ["model.layers.1.q", "model.layers.11.q", "model.layers.1.mlp.up", "q", "xq", "a.xq"]
TABLES = [
    {"q": 1, "up": 2},
    {"layers.1.q": 1, "q": 2},
    {r"^model\.layers\.1\.q": 1},
    {r".*\.mlp\..*": 3, "up": 4},
    {r"layers\.[0-9]+\.q": 5},
    {"layers.1+.q": 6, "q": 7},
    {"q|up": 8},
    {"^q$": 9},
]


@pytest.mark.parametrize("table", TABLES, ids=str)
def test_matches_are_those_of_peft(table: dict[str, int]) -> None:
    peft = pytest.importorskip("peft.utils.other", exc_type=ImportError)
    patterns = Patterns("rank_pattern", table)
    for name in NAMES:
        assert patterns.get(name, 0) == table.get(peft.get_pattern_key(table, name), 0), name


@pytest.mark.parametrize("name", ["a.b", "a+b.(c)", "h.0.x[1]", "a^b$", r"a\b"])
def test_anchored_patterns_match_one_module(name: str) -> None:
    assert Patterns("rank_pattern", {anchored(name): 3}).get(name, 0) == 3
    assert re.match(rf"(.*\.)?({anchored(name)})$", name)
    assert Patterns("rank_pattern", {anchored(name): 3}).get(f"x.{name}", 0) == 0


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a|a)*b", "a*a*a*b", ".*.*.*q", r"(a)\1", "(?=x)", "[", "a{9999}"]
)
def test_involved_expressions_are_refused(pattern: str) -> None:
    began = time.monotonic()
    with pytest.raises(ValueError, match=r"rank_pattern: .*safely|not a regular expression"):
        Patterns("rank_pattern", {pattern: 1}).get("a" * 300, 0)
    assert time.monotonic() - began < 1


def test_many_names_are_looked_up() -> None:
    table = {anchored(f"model.layers.{i}.q"): i for i in range(50_000)}
    began = time.monotonic()
    patterns = Patterns("rank_pattern", table)
    assert all(patterns.get(f"model.layers.{i}.q", -1) == i for i in range(50_000))
    assert time.monotonic() - began < 5


def test_many_expressions_are_refused() -> None:
    with pytest.raises(ValueError, match="too involved"):
        Patterns("alpha_pattern", {f"a{i}.*": i for i in range(200)})
