"""StopIf: a gate that ends a training when the spectra meet a condition.

A condition is a comparison of metrics with numbers, such as "stable_rank < 2", or several joined by
"and" and "or". It is parsed into a tree of the few nodes below and computed here; nothing in it is
ever executed.
"""

import ast
import fnmatch
import operator
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import xarray as xr

from rankscope import store
from rankscope.accessor import METRICS

COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
TIMES = ("start", "last")  # values of the comparison's metric at earlier snapshots
LONGEST = 500  # characters of a condition
MOST_NAMES = 5  # matrices named in a reason


class Stopped(RuntimeError):
    """Raised by a gate with then="raise" once its condition is met."""


class StopIf:
    """Stop when `condition` holds: `StopIf("normalized_effective_rank < 0.5 * start")`.

    condition: comparisons (<, <=, >, >=) of metrics of `run.rankscope` with numbers, joined by
        "and" and "or"; + - * / and parentheses may be used. In a comparison `start` is its metric
        at the first snapshot and `last` at the snapshot before.
    matrices: pattern of matrix names, or several.
    of: name of the stored spectra that the metrics are of.
    needs: whether "any" of these matrices must meet the condition, or "all".
    then: "stop" makes `check` return True, "raise" makes it raise `Stopped`.

    As one of a tracker's sinks a gate looks at each snapshot once it is committed; `check()` then
    tells what it saw. `check(run)` looks at a run. A metric that is NaN meets no comparison.

    reason: which matrices met the condition, and when; None until then.
    """

    def __init__(
        self,
        condition: str,
        *,
        matrices: str | Sequence[str] = "*",
        of: str = "singular_values",
        needs: Literal["any", "all"] = "any",
        then: Literal["stop", "raise"] = "stop",
    ) -> None:
        for name, value, choices in (
            ("needs", needs, ("any", "all")),
            ("then", then, ("stop", "raise")),
        ):
            if value not in choices:
                raise ValueError(
                    f"{name}: expected {' or '.join(map(repr, choices))}, got {value!r}"
                )
        self.condition = condition
        self.reason: str | None = None
        self._tree = parsed(condition)
        self._patterns = (matrices,) if isinstance(matrices, str) else tuple(matrices)
        self._of = of
        self._needs = needs
        self.then = then

    def __call__(self, run: xr.Dataset) -> None:
        """Look at the last snapshot of `run`, unless the condition was met before."""
        self.reason = self.reason or self._reason(run)

    def check(self, run: xr.Dataset | str | Path | None = None) -> bool:
        """Return whether `run` meets the condition at its last snapshot.

        Without a run, return whether it was met at a snapshot that this gate has seen as a sink.
        """
        if run is not None:
            self.reason = self._reason(run if isinstance(run, xr.Dataset) else store.open(run))
        if self.reason is not None and self.then == "raise":
            raise Stopped(self.reason)
        return self.reason is not None

    def _reason(self, run: xr.Dataset) -> str | None:
        steps = run.sizes.get("step", 0)
        if not steps:
            return None
        dim, rows = self._rows(run)
        # The snapshot itself, the first one and the one before.
        chosen = run.isel({"step": [steps - 1, 0, max(steps - 2, 0)], dim: rows})
        names = sorted(names_in(self._tree) & set(METRICS))
        values = {
            name: getattr(chosen.rankscope, name)(of=self._of).transpose("step", dim).to_numpy()
            for name in names
        }
        if steps == 1:  # there is no snapshot before
            values = {
                name: np.vstack([rows[:2], rows[:1] * np.nan]) for name, rows in values.items()
            }
        met = np.broadcast_to(_holds(self._tree, values), (len(rows),))
        if not (met.any() if self._needs == "any" else met.all()):
            return None
        names_met = [str(name) for name in chosen[dim].to_numpy()[met]]
        return self._describe(names_met, len(rows), int(chosen["step"][0]))

    def _rows(self, run: xr.Dataset) -> tuple[str, list[int]]:
        """Return the dimension of the spectra's names, and the positions of those that match."""
        # A run of a large model has the leading values alone.
        stored = [
            name for name in (self._of, self._of.replace("singular", "leading")) if name in run
        ]
        if not stored:
            raise ValueError(f"this run has no spectra {self._of!r} for the gate; change its of=")
        dim = next(str(dim) for dim in run[stored[0]].dims if dim not in ("step", "k", "r"))
        names = [str(name) for name in run[dim].to_numpy()]
        rows = [
            row
            for row, name in enumerate(names)
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in self._patterns)
        ]
        if not rows:
            patterns = ", ".join(map(repr, self._patterns))
            known = ", ".join(map(repr, names[:MOST_NAMES]))
            raise ValueError(
                f"the gate {self.condition!r} watches {patterns}, which no name matches; the run "
                f"has {known} ..."
            )
        return dim, rows

    def _describe(self, names: Sequence[str], count: int, step: int) -> str:
        listed = ", ".join(map(repr, names[:MOST_NAMES]))
        rest = " ..." if len(names) > MOST_NAMES else ""
        return (
            f"{self.condition!r} holds at step {step} for {len(names)} of {count} matrices: "
            f"{listed}{rest}"
        )


def parsed(condition: str) -> ast.expr:
    """Return the tree of a condition; ValueError if it is not one."""
    if len(condition) > LONGEST:
        raise ValueError(f"a condition has at most {LONGEST} characters, got {len(condition)}")
    try:
        tree = ast.parse(condition.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise _no_condition(condition, "it cannot be parsed") from None
    _require_condition(tree, condition)
    return tree


def names_in(tree: ast.AST) -> set[str]:
    """Return the names used in a tree."""
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _require_condition(tree: ast.expr, condition: str) -> None:
    if isinstance(tree, ast.BoolOp):
        for part in tree.values:
            _require_condition(part, condition)
        return
    if not isinstance(tree, ast.Compare) or any(type(o) not in COMPARISONS for o in tree.ops):
        raise _no_condition(condition, f"{ast.unparse(tree)!r} is no comparison")
    for value in (tree.left, *tree.comparators):
        _require_value(value, condition)
    metrics = names_in(tree) - set(TIMES)
    if not metrics:
        raise _no_condition(condition, f"{ast.unparse(tree)!r} has no metric")
    if len(metrics) > 1 and names_in(tree) & set(TIMES):
        raise _no_condition(
            condition, f"in {ast.unparse(tree)!r} start and last are of two metrics"
        )


def _require_value(tree: ast.expr, condition: str) -> None:
    match tree:
        case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
            _require_value(left, condition)
            _require_value(right, condition)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            _require_value(operand, condition)
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            if abs(number) > 1e300:
                raise _no_condition(condition, "a number in it is too large")
        case ast.Name(id=name):
            if name not in METRICS and name not in TIMES:
                raise ValueError(
                    f"the condition {condition!r} names {name!r}, which is no metric; it may name "
                    f"start, last, {', '.join(METRICS)}"
                )
        case _:
            raise _no_condition(condition, f"{ast.unparse(tree)!r} is neither metric nor number")


def _no_condition(condition: str, why: str) -> ValueError:
    return ValueError(
        f"expected a condition such as 'stable_rank < 0.5 * start', got {condition!r}: {why}"
    )


def _holds(tree: ast.expr, values: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return for each matrix whether a condition holds.

    values: metrics of (snapshot, matrix): now, at the start, and at the snapshot before.
    """
    if isinstance(tree, ast.BoolOp):
        join = np.logical_and if isinstance(tree.op, ast.And) else np.logical_or
        return np.asarray(join.reduce([_holds(part, values) for part in tree.values]))
    assert isinstance(tree, ast.Compare)
    metrics = sorted(names_in(tree) - set(TIMES))
    known = {name: values[name][0] for name in metrics}
    known |= dict(zip(TIMES, values[metrics[0]][1:], strict=True))
    with np.errstate(all="ignore"):
        operands = [_value(operand, known) for operand in (tree.left, *tree.comparators)]
        results = [
            COMPARISONS[type(op)](left, right)
            for op, left, right in zip(tree.ops, operands, operands[1:], strict=False)
        ]
    return np.asarray(np.logical_and.reduce(np.broadcast_arrays(*results)))


def _value(tree: ast.expr, known: Mapping[str, np.ndarray]) -> np.ndarray:
    match tree:
        case ast.BinOp(left=left, op=op, right=right):
            return np.asarray(ARITHMETIC[type(op)](_value(left, known), _value(right, known)))
        case ast.UnaryOp(operand=operand):
            return np.asarray(-_value(operand, known))
        case ast.Name(id=name):
            return known[name]
        case ast.Constant(value=float() | int() as number):
            return np.asarray(number, np.float64)
    raise AssertionError(ast.dump(tree))
