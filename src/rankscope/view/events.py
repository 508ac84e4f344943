"""Events on the time axis: what broke, collapsed, jumped, was resumed, or was turned down."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from rankscope.view.columns import Span
from rankscope.view.frames import plain
from rankscope.view.gaps import broken_from
from rankscope.view.opened import Opened
from rankscope.view.quantities import Quantity, quantities
from rankscope.view.query import Query
from rankscope.view.tables import Values

DEVIATIONS = 6  # median absolute deviations of the steps; more is a jump
LEAST_STEPS = 8  # steps without which nothing is said about jumps
COLLAPSE = 0.1  # of the highest rank so far
MOST = 500
LATEST = 2**53  # a time beyond it is damage
RATES = ("rate", "lr", "learning_rate")
DROP = 0.7  # of the learning rate before
COLUMNS = 2048


def events(query: Query) -> dict[str, Any]:
    """Return the events of a run in their order; of too many, the largest."""
    opened = query.run()
    span = Span(query.number("from"), query.number("to"), COLUMNS)
    positions = span.positions(opened.x)
    quantity = _watched(opened)
    known = query.library.tables.values(opened, quantity, positions) if quantity else None
    events_of_run = list(find_events(opened, positions, quantity, known))
    inside = [event for event in events_of_run if _inside(event["x"], span)]
    largest = sorted(inside, key=lambda event: -(event["size"] or np.inf))[:MOST]
    return plain(  # type: ignore[no-any-return]
        {
            "events": sorted(largest, key=lambda event: event["x"]),
            "left_out": len(inside) - len(largest),
            "commit": opened.commit,
            **({} if known is None else known.meta),
        }
    )


def find_events(
    opened: Opened, positions: np.ndarray, quantity: Quantity | None, known: Values | None
) -> Iterator[dict[str, Any]]:
    """Yield the events of the scalars, the matrices and the run."""
    x = opened.x[positions]
    for name, along in opened.scalars().items():
        if along == opened.along and not name.startswith("tracker_"):
            yield from _of_scalar(name, opened.read(name)[positions].astype(float), x, positions)
    if quantity is not None and known is not None and known.done == 1:
        rows = opened.whole(quantity.axis)
        names = opened.names[quantity.axis]
        labels = [plain_name.label for plain_name in opened.plain[quantity.axis]]
        for row in rows:
            where = {"name": names[row], "row": int(row), "axis": quantity.axis}
            stored = known.stored[:, row]
            line = known.values[stored, row].astype(float)
            inside = (x[stored], positions[stored])
            for event in _of_row(labels[row], quantity.label, line, *inside):
                yield event | where
    yield from _of_run(opened)


def jumps(values: np.ndarray) -> Iterator[tuple[int, float]]:
    """Yield positions whose step is beyond 6 median deviations, and its size in deviations."""
    steps = np.diff(values)
    known = steps[np.isfinite(steps)]
    if len(known) < LEAST_STEPS:
        return
    middle = np.median(known)
    deviation = np.median(np.abs(known - middle))
    floor = 1e-3 * np.median(np.abs(values[np.isfinite(values)]))  # a constant line has none
    spread = max(deviation, floor / DEVIATIONS, 1e-12)
    sizes = np.abs(steps - middle) / spread
    for place in np.flatnonzero(sizes > DEVIATIONS):
        around = sizes[max(0, place - 2) : place + 3]
        if sizes[place] >= np.nanmax(around):  # one event for the steps beside it
            yield int(place) + 1, float(sizes[place])


def _of_scalar(
    name: str, values: np.ndarray, x: np.ndarray, positions: np.ndarray
) -> Iterator[dict[str, Any]]:
    if "loss" in name and (first := broken_from(values)) is not None:
        yield _event("nan", first, x, positions, f"{name} is not finite", name)
    if name in RATES:
        before, after = values[:-1], values[1:]
        for place in (np.flatnonzero((after < DROP * before) & (before > 0)) + 1).tolist():
            label = f"{name} falls from {before[place - 1]:.3g} to {values[place]:.3g}"
            yield _event("rate", place, x, positions, label, name)
        return
    if "loss" in name:
        for place, size in jumps(values):
            if values[place] > values[place - 1]:
                label = f"{name} jumps from {values[place - 1]:.3g} to {values[place]:.3g}"
                yield _event("jump", place, x, positions, label, name, size)


def _of_row(
    label: str, quantity: str, values: np.ndarray, x: np.ndarray, positions: np.ndarray
) -> Iterator[dict[str, Any]]:
    finite = np.isfinite(values)
    if finite.any() and not finite.all():
        gone = np.flatnonzero(~finite[int(np.argmax(finite)) :])
        if len(gone):
            place = int(np.argmax(finite)) + int(gone[0])
            yield _event("nan", place, x, positions, f"{label}: no {quantity}", None)
    highest = np.fmax.accumulate(np.where(finite, values, np.nan))
    with np.errstate(invalid="ignore"):
        low = np.flatnonzero(values < COLLAPSE * highest)
    if len(low):
        place = int(low[0])
        text = f"{label}: {quantity} collapses to {values[place]:.3g}"
        size = float(highest[place] / values[place]) if values[place] > 0 else None
        yield _event("collapse", place, x, positions, text, None, size)
    for jump, size in jumps(values):
        text = f"{label}: {quantity} jumps from {values[jump - 1]:.3g} to {values[jump]:.3g}"
        yield _event("jump", jump, x, positions, text, None, size)


def _of_run(opened: Opened) -> Iterator[dict[str, Any]]:
    attrs, x = opened.attrs, opened.x
    resumed = attrs.get("resumed_at") if opened.along == "step" else None
    for kind, when, words in (
        ("diverged", attrs.get("diverged_at"), "the loss stopped being finite"),
        ("stopped", attrs.get("stopped_at"), "training stopped early"),
        *(
            ("resume", step, f"training was resumed at step {step}")
            for step in (resumed[-MOST:] if isinstance(resumed, list) else [])
        ),
    ):
        if isinstance(when, int | float) and not isinstance(when, bool) and abs(when) <= LATEST:
            place = np.searchsorted(x, when).clip(0, max(0, len(x) - 1))
            yield _event(kind, 0, np.array([when]), np.array([place]), words, None)


def _event(
    kind: str,
    place: int,
    x: np.ndarray,
    positions: np.ndarray,
    label: str,
    name: str | None,
    size: float | None = None,
) -> dict[str, Any]:
    return {
        "kind": kind,
        "x": float(x[place]),
        "position": int(positions[place]),
        "label": label,
        "name": name,
        "row": None,
        "axis": None,
        "size": size,
    }


def _watched(opened: Opened) -> Quantity | None:
    known = quantities(opened.ds, opened.along)
    return next((one for one in known if one.metric == "normalized_effective_rank"), None)


def _inside(x: float, span: Span) -> bool:
    low, high = span.first, span.last
    return (low is None or x >= low) and (high is None or x <= high)
