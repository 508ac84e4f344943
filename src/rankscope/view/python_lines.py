"""The lines of Python that compute what a panel shows; every name in them is a string."""

from collections.abc import Iterator

from rankscope.view.compare import (
    alignment_of,
    axis_of,
    compared_keys,
    groups_of,
    label_of,
    reference_of,
    rows_together,
)
from rankscope.view.library import Unknown
from rankscope.view.opened import Opened
from rankscope.view.python_spectra import (
    argument,
    ranks_lines,
    spectra_lines,
    spectrum_lines,
)
from rankscope.view.python_tables import claims_lines, runs_lines
from rankscope.view.quantities import VALUE, Quantity
from rankscope.view.query import Query
from rankscope.view.theory import flow_parts, staircase_at, theory

CHOICES = ("rows", "row", "matrix", "pair", "kind", "block")  # of rows, in an address


def python_lines(query: Query, panel: str) -> str:
    """Return lines that compute what a panel shows."""
    if panel == "claims":
        return "\n".join(claims_lines(query)) + "\n"
    if panel == "runs":
        lines = list(runs_lines(query))
    elif panel in ("compare", "curves"):
        lines = list(_comparison(query, panel))
    else:
        key = theory(query)["predicted"] if panel == "stages" else query.text("run")
        opened = query.library.open(key)
        lines = [_opening(opened), *_code(query, opened, panel)]
    imports = ["import numpy as np"] * any("np." in line for line in lines)
    return "\n".join([*imports, "import rankscope as rs", "", *lines]) + "\n"


def _opening(opened: Opened) -> str:
    return f"run = rs.open({str(opened.place.path)!r})"


def _comparison(query: Query, panel: str) -> Iterator[str]:
    """Yield lines for the curves of several runs on one grid, their bands and differences."""
    align, known = alignment_of(query), []
    summaries = {row["id"]: row for row in query.library.summaries()}
    yield "curves = []"
    for key in compared_keys(query):
        try:
            opened = query.library.open(key)
            quantity = query.quantity(opened)
            rows_together(query, opened, quantity.axis)
            name, unit = axis_of(opened, align)
        except Unknown:
            raise
        except (LookupError, ValueError):  # the panel leaves this run out
            continue
        known.append(summaries[key])
        yield _opening(opened)
        yield from _values(query, opened, quantity)
        yield f"mean = values.where(np.isfinite(values)).mean({quantity.axis!r}).values"
        yield f"x = run[{name!r}].values" + (f" / {unit!r}" if unit != 1 else "")
        yield (
            "curves.append((np.fmin.accumulate(x), mean))"
            if align == "loss"
            else ("curves.append((x, mean))")
        )
    groups = groups_of(known, query)
    labelled = [(label_of(known[group[0]], len(group)), group) for group in groups]
    yield "for place, (x, y) in enumerate(curves):"
    yield "    order = np.argsort(x, kind='stable')"
    yield "    order = order[np.isfinite(x[order]) & np.isfinite(y[order])]"
    yield "    x, first = np.unique(x[order], return_index=True)"
    yield "    curves[place] = (x, y[order][first])"
    yield "grid = np.unique(np.concatenate([x for x, _ in curves]))"
    first, last = query.number("from"), query.number("to")
    if first is not None:
        yield f"grid = grid[grid >= {first}]"
    if last is not None:
        yield f"grid = grid[grid <= {last}]"
    yield "rows = np.array([np.interp(grid, x, y, left=np.nan, right=np.nan) for x, y in curves])"
    reference = reference_of(groups, [row["id"] for row in known], query)
    if reference is not None:
        yield f"rows = rows - rows[{groups[reference]!r}].mean(0)"
    yield f"for label, places in {labelled!r}:"
    yield "    band = rows[places]"
    if panel == "compare":
        yield "    print(label, band.mean(0), band.min(0), band.max(0))"
        return
    wanted = query.number("step")
    yield f"    at = {'-1' if wanted is None else f'np.abs(grid - {wanted}).argmin()'}"
    yield "    mean = band.mean(0)"
    yield "    print(label, len(places), grid[at], mean[at], mean[np.isfinite(mean)][[0, -1]])"


def _code(query: Query, opened: Opened, panel: str) -> Iterator[str]:
    if panel == "scalars":
        yield from _scalars(query, opened)
        return
    if panel not in ("spectrum", "ranks", "stages"):
        yield from _interval(query, opened.along)
    if panel == "theory/flow":
        yield from _flow(query, opened)
    elif panel == "stages":
        yield from _stages(opened)
    elif panel == "ranks":
        yield from ranks_lines(query, opened)
    elif panel == "spectrum":
        yield from spectrum_lines(query, opened)
    elif panel == "spectra":
        yield from spectra_lines(query, opened)
    elif panel == "alignment" and (query.has("row") or query.has("pair")):
        yield from _diagonal(query, opened)
    else:
        quantity = query.quantity(opened)
        yield from _values(query, opened, quantity)
        if panel in ("moved", "kinds", "depths"):
            yield from _moved(query, opened, panel, quantity)
        else:
            yield f"print(values.transpose({quantity.axis!r}, {opened.along!r}).values)"


def _interval(query: Query, along: str) -> Iterator[str]:
    """Yield the line that cuts the run to the interval that is asked for."""
    first, last = query.number("from"), query.number("to")
    if first is not None or last is not None:
        yield f"run = run.sel({argument(along, f'slice({first}, {last})')})"


def _scalars(query: Query, opened: Opened) -> Iterator[str]:
    """Yield lines for scalars, those of snapshots and those of every step apart."""
    known = opened.scalars()
    names = query.texts("name") or list(known)
    axes = list(dict.fromkeys(known[name] for name in names))
    for along in axes:
        yield from _interval(query, along)
    for along in axes:
        chosen = [name for name in names if known[name] == along]
        yield f"print(run[{chosen!r}].to_dataframe())"


def _moved(query: Query, opened: Opened, panel: str, quantity: Quantity) -> Iterator[str]:
    """Yield lines for how far each row moved, and for the means of kinds or layers."""
    axis, along = quantity.axis, opened.along
    shown = "values"
    if quantity.scale == "log":
        shown = "decades"
        yield f"{shown} = np.log10(values.where(values > 0))"
    yield f"moved = {shown}.max({along!r}) - {shown}.min({along!r})"
    if panel == "moved":
        yield "print(moved.to_series().sort_values())"
        return
    groups: dict[str, list[str]] = {}
    for row in query.rows(opened, axis, most=100_000):
        word = opened.plain[axis][row]
        group = groups.setdefault(word.role if panel == "kinds" else word.block, [])
        group.append(opened.names[axis][row])
    yield f"groups = {groups!r}"
    yield "for group, names in groups.items():"
    yield f"    rows = {{{axis!r}: names}}"
    yield f"    mean = values.sel(rows).mean({axis!r}).dropna({along!r}).values"
    yield "    print(group, len(names), moved.sel(rows).mean().item(), mean[:1], mean[-1:])"


def _flow(query: Query, opened: Opened) -> Iterator[str]:
    """Yield lines for a flow; beside its loss, the one that Algorithm 1 predicts."""
    yield f"flow = run[{[name for name in flow_parts(query) if name in opened.ds]!r}]"
    yield "print(flow)"
    if staircase_at(query, opened.x) is not None:
        predicted = query.library.open(theory(query)["predicted"])
        yield f"predicted = rs.open({str(predicted.place.path)!r})"
        yield "stage = np.searchsorted(predicted['stage_time'], flow['time'], 'right') - 1"
        yield "staircase = predicted['stage_loss'].values[stage.clip(0)]"
        yield "print(staircase)"


def _stages(opened: Opened) -> Iterator[str]:
    """Yield lines for the stages that Algorithm 1 predicts; winners by their names."""
    arrays = opened.ds.data_vars.items()
    names = [str(name) for name, array in arrays if array.dims == ("stage",)]
    yield f"stages = run[{names!r}].to_dataframe()"
    if "stage_winner" in names and "coordinate" in opened.names:
        yield "names = run['coordinate'].to_series().reset_index(drop=True)"
        yield "stages = stages.join(names.rename('winner'), on='stage_winner')"
    yield "print(stages)"


def _diagonal(query: Query, opened: Opened) -> Iterator[str]:
    """Yield lines for the alignment of one pair: direction by direction, and its mean."""
    stored = query.text("of", "alignment")
    name = opened.names["pair"][int(query.rows(opened, "pair", most=1)[0])]
    yield f"pair = run.sel(pair={name!r})"
    yield f"values = pair[{stored!r}].transpose('i', {opened.along!r})"
    yield f"mean = pair.rankscope.mean_alignment(of={stored!r})"
    yield f"background = pair[{stored + '_background'!r}]"
    yield "print(values.values, mean.values, background.values)"


def _values(query: Query, opened: Opened, quantity: Quantity) -> Iterator[str]:
    """Yield lines for a number of each row at each time."""
    axis = quantity.axis
    call = f"run[{quantity.of!r}]"
    if quantity.metric != VALUE:
        name, options = quantity.metric, f"of={quantity.of!r}"
        if name.startswith("energy_rank_"):
            name, share = "energy_rank", int(name.rpartition("_")[2]) / 100
            options = f"fraction={share}, {options}"
        call = f"run.rankscope.{name}({options})"
    yield f"values = {call}"
    if any(query.has(name) for name in CHOICES):
        rows = rows_together(query, opened, axis)
        names = repr([opened.names[axis][row] for row in rows])
        yield f"values = values.sel({argument(axis, names)})"
    elif query.text("parts", "0") == "0" and len(opened.whole(axis)) < opened.ds.sizes[axis]:
        whole = "(run['part_of'] == '').values"
        yield f"values = values.isel({argument(axis, whole)})"
