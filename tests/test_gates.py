"""Gates: the grammar against Python's own evaluation, and what they see in a run."""

import ast
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import TypeCheckError
from torch import nn

import rankscope as rs
from rankscope.accessor import METRICS
from rankscope.gates import _holds, parsed

NUMBERS = st.one_of(
    st.integers(0, 99).map(str), st.floats(0, 1e6, allow_nan=False).map(lambda x: f"{x:g}")
)
NAMES = st.sampled_from(["stable_rank", "start", "last"])
VALUES = st.recursive(
    NUMBERS | NAMES,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*/"), inner).map(" ".join).map("({})".format),
        inner.map("-{}".format),
    ),
    max_leaves=6,
)
COMPARISONS = st.tuples(VALUES, st.sampled_from(["<", "<=", ">", ">="]), VALUES).map(
    lambda parts: f"{parts[0]} + 0 * stable_rank {parts[1]} {parts[2]}"
)
CONDITIONS = st.recursive(
    COMPARISONS,
    lambda inner: st.tuples(inner, st.sampled_from([" and ", " or "]), inner).map(
        lambda parts: f"({parts[0]}{parts[1]}{parts[2]})"
    ),
    max_leaves=3,
).filter(lambda text: len(text) <= 500)


@given(
    CONDITIONS, st.lists(st.sampled_from([0.0, 0.5, 1.0, 7.0, math.nan]), min_size=3, max_size=3)
)
def test_conditions_mean_what_python_means(condition: str, numbers: list[float]) -> None:
    values = np.array(numbers)
    names = {"stable_rank": values[0], "start": values[1], "last": values[2]}
    with np.errstate(all="ignore"):
        expected = _python(condition, names)
    assert bool(_holds(parsed(condition), {"stable_rank": values[:, None]})[0]) == expected


def _python(condition: str, names: Mapping[str, np.float64]) -> bool:
    """Evaluate with NumPy's division, in which 1 / 0 is infinite."""

    class Numbers(ast.NodeTransformer):
        def visit_Constant(self, node: ast.Constant) -> ast.AST:
            call = ast.Call(ast.Name("float64", ast.Load()), [node], [])
            return ast.copy_location(call, node)

    tree = ast.fix_missing_locations(Numbers().visit(ast.parse(condition, mode="eval")))
    return bool(eval(compile(tree, "", "eval"), {"__builtins__": {}, "float64": np.float64}, names))


@given(
    st.text(max_size=60) | st.text("stable_rank<>=0.5*start()[]{}'\"; andornot\n\\#", max_size=60)
)
def test_other_text_is_refused_in_a_sentence(text: str) -> None:
    try:
        gate = rs.StopIf(text)
    except ValueError as refusal:
        assert repr(text) in str(refusal)
    else:
        assert any(metric in gate.condition for metric in METRICS)


@pytest.mark.parametrize(
    "condition",
    [
        "__import__('os').system('true') < stable_rank",
        "stable_rank.real < 1",
        "stable_rank(1) < 2",
        "stable_rank[0] < 2",
        "[stable_rank] < 2",
        "stable_rank < 'a'",
        "stable_rank < 1j",
        "stable_rank < True",
        "stable_rank < 2 ** 9 ** 9",
        "stable_rank < 1e999",
        "stable_rank == 2",
        "not stable_rank < 1",
        "(x := stable_rank) < 2",
        "lambda: stable_rank < 1",
        "stable_rank < 1 if 1 < 2 else 0",
        "1 < 2",
        "start < last",
        "stable_rank < 0.5 * effective_rank * start",
        "stable_rank",
        "stable_rank <",
        "stable_rank < 1\0",
        "",
        "(" * 240 + "stable_rank < 1" + ")" * 240,
    ],
)
def test_what_is_no_condition_is_refused(condition: str) -> None:
    with pytest.raises(
        ValueError, match=r"expected a condition such as 'stable_rank < 0.5 \* start'"
    ):
        rs.StopIf(condition)


def test_bad_options_are_refused() -> None:
    with pytest.raises(
        ValueError, match="names 'rank', which is no metric; it may name start, last"
    ):
        rs.StopIf("rank < 2")
    with pytest.raises(ValueError, match="at most 500 characters, got 515"):
        rs.StopIf("stable_rank < 1" + " " * 500)
    with pytest.raises((ValueError, TypeCheckError)):
        rs.StopIf("stable_rank < 2", then="explode")


class Two(nn.Module):
    """Two diagonal matrices: `a` loses ranks, one a step, `b` keeps all four."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
        self.lose(0)

    @torch.no_grad()
    def lose(self, count: int) -> None:
        self.a.weight.copy_(torch.diag((torch.arange(4) >= count).float()))
        self.b.weight.copy_(torch.eye(4))


def falling(path: Path, *, steps: int = 4, **options: object) -> xr.Dataset:
    """Return a run in which the effective rank of `a` is 4, 3, 2, 1 and that of `b` stays 4."""
    model = Two()
    with rs.Tracker(model, path, schedule=1, strict=True, **options) as tracker:
        for step in range(steps):
            model.lose(step)
            tracker.observe(step)
    return rs.open(path)


@pytest.mark.parametrize(
    ("condition", "options", "first"),
    [
        ("normalized_effective_rank <= 0.5 * start", {}, 2),
        ("normalized_effective_rank <= 0.5 * start", {"matrices": "a"}, 2),
        ("normalized_effective_rank <= 0.5 * start", {"matrices": ["b"]}, None),
        ("normalized_effective_rank <= 0.5 * start", {"needs": "all"}, None),
        ("effective_rank < last - 0.5", {}, 1),
        ("effective_rank / last < 0.7", {}, 2),
        ("effective_rank < 3.5 and stable_rank < 2.5", {}, 2),
        ("effective_rank < 1.5 or stable_rank > 9", {}, 3),
        ("3.5 > effective_rank > 2.5", {}, 1),
        ("numerical_rank < 1.5", {}, 3),
        ("numerical_rank >= 2", {"of": "change_singular_values"}, 2),
        ("effective_rank < 2 * stable_rank", {"needs": "all"}, 0),
    ],
)
def test_a_gate_stops_at_the_first_snapshot_that_meets_it(
    tmp_path: Path, condition: str, options: dict, first: int | None
) -> None:
    run = falling(tmp_path / "run")
    gate = rs.StopIf(condition, **options)
    met = [gate.check(run.isel(step=slice(step + 1))) for step in range(4)]
    assert (met.index(True) if any(met) else None) == first


def test_a_gate_says_what_it_saw(tmp_path: Path) -> None:
    falling(tmp_path / "run")
    gate = rs.StopIf("stable_rank < 1.5")
    assert gate.check(str(tmp_path / "run"))
    assert gate.reason == "'stable_rank < 1.5' holds at step 3 for 1 of 2 matrices: 'a'"
    with pytest.raises(rs.Stopped, match="holds at step 3"):
        rs.StopIf("stable_rank < 1.5", then="raise").check(tmp_path / "run")


def test_a_gate_is_a_sink(tmp_path: Path) -> None:
    gate = rs.StopIf("effective_rank < 2.5")
    assert not gate.check()
    falling(tmp_path / "run", sinks=gate)
    assert gate.check()
    assert "at step 2" in gate.reason  # the first time, not the last


def test_a_gate_without_matrices_is_told(tmp_path: Path) -> None:
    run = falling(tmp_path / "run", steps=1)
    with pytest.raises(
        ValueError, match=r"watches '\*.attn.\*', which no name matches; the run has"
    ):
        rs.StopIf("stable_rank < 2", matrices="*.attn.*").check(run)
    with pytest.raises(ValueError, match="no spectra 'update_values' for the gate"):
        rs.StopIf("stable_rank < 2", of="update_values").check(run)
    assert not rs.StopIf("stable_rank < 2").check(run.isel(step=slice(0)))
