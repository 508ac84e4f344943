"""The lines of Python that compute what a panel shows; every name in them is a string."""

import keyword
from collections.abc import Iterator

from rankscope.view.compare import rows_together
from rankscope.view.opened import Opened
from rankscope.view.quantities import VALUE, Quantity
from rankscope.view.query import Mistake, Query
from rankscope.view.spectra import LEVELS, spectrum_of
from rankscope.view.spectrum import SHARES, change_of
from rankscope.view.theory import FLOW, theory

MOST_RUNS = 24
CHOICES = ("rows", "row", "matrix", "pair", "kind", "block")  # of rows, in an address


def python_lines(query: Query, panel: str) -> str:
    """Return lines that compute what a panel shows."""
    if panel in ("claims", "runs"):
        raise Mistake("this table is of many runs; open one of them for its lines of Python")
    together = panel in ("compare", "curves")
    keys = query.texts("run") if together else [query.text("run")]
    keys = [theory(query)["predicted"]] if panel == "stages" else keys
    lines = []
    for number, key in enumerate(keys[:MOST_RUNS]):
        opened = query.library.open(key)
        name = "run" if len(keys) == 1 else f"run_{number}"
        lines.append(f"{name} = rs.open({str(opened.place.path)!r})")
        lines += _code(query, opened, panel, name)
    imports = ["import numpy as np"] * any("np." in line for line in lines)
    return "\n".join([*imports, "import rankscope as rs", "", *lines]) + "\n"


def _code(query: Query, opened: Opened, panel: str, run: str) -> Iterator[str]:
    first, last = query.number("from"), query.number("to")
    if panel not in ("spectrum", "ranks", "stages") and (first is not None or last is not None):
        yield f"{run} = {run}.sel({_argument(opened.along, f'slice({first}, {last})')})"
    if panel == "scalars":
        names = query.texts("name") or list(opened.scalars())
        yield f"print({run}[{names!r}].to_dataframe())"
    elif panel == "theory/flow":
        yield f"flow = {run}[{[name for name in FLOW if name in opened.ds]!r}]"
        yield "print(flow)"
    elif panel == "stages":
        yield from _stages(opened, run)
    elif panel == "ranks":
        yield from _ranks(query, opened, run)
    elif panel in ("spectra", "spectrum"):
        yield from _spectra(query, opened, panel, run)
    elif panel == "alignment" and (query.has("row") or query.has("pair")):
        yield from _diagonal(query, opened, run)
    else:
        quantity = query.quantity(opened)
        yield from _values(query, opened, quantity, run)
        if panel == "compare":
            yield f"print(values.mean({quantity.axis!r}).to_series())"
        elif panel == "curves":
            yield from _curve(query, opened, quantity)
        elif panel in ("moved", "kinds", "depths"):
            yield from _moved(query, opened, panel, quantity)
        else:
            yield f"print(values.transpose({quantity.axis!r}, {opened.along!r}).values)"


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


def _curve(query: Query, opened: Opened, quantity: Quantity) -> Iterator[str]:
    """Yield lines for the mean of one run, at its ends and at the cursor."""
    along, wanted = opened.along, query.number("step")
    yield f"mean = values.mean({quantity.axis!r}).dropna({along!r})"
    yield f"print(mean.isel({{{along!r}: [0, -1]}}).values)"
    if wanted is not None and query.text("align", "step") == "step":
        yield f"print(mean.sel({{{along!r}: {wanted}}}, method='nearest').item())"


def _stages(opened: Opened, run: str) -> Iterator[str]:
    """Yield lines for the stages that Algorithm 1 predicts; winners by their names."""
    arrays = opened.ds.data_vars.items()
    names = [str(name) for name, array in arrays if array.dims == ("stage",)]
    yield f"stages = {run}[{names!r}].to_dataframe()"
    if "stage_winner" in names and "coordinate" in opened.names:
        yield f"names = {run}['coordinate'].to_series().reset_index(drop=True)"
        yield "stages = stages.join(names.rename('winner'), on='stage_winner')"
    yield "print(stages)"


def _ranks(query: Query, opened: Opened, run: str) -> Iterator[str]:
    """Yield lines for the ranks of one spectrum, at the start and now, and of the change."""
    stored, axis = spectrum_of(query, opened)
    name = opened.names[axis][query.row(opened, axis)]
    changed = change_of(opened, stored)
    yield f"chosen = {run}.sel({_argument(axis, repr(name))})"
    yield f"now = chosen.{_at_cursor(query, opened)}"
    yield f"start = chosen.isel({_argument(opened.along, '0')})"
    yield f"parts = {{'start': (start, {stored!r}), 'now': (now, {stored!r})}}"
    if changed:
        yield f"parts['change'] = (now, {changed!r})"
    yield "ranks = {}"
    yield "for name, (part, of) in parts.items():"
    for rank in ("effective", "stable", "numerical"):
        yield f"    {rank} = part.rankscope.{rank}_rank(of=of).item()"
    shares = [share / 100 for share in SHARES]
    yield f"    energy = [part.rankscope.energy_rank(of=of, fraction=f).item() for f in {shares}]"
    yield "    ranks[name] = [effective, stable, numerical, *energy]"
    yield "print(ranks)"


def _at_cursor(query: Query, opened: Opened) -> str:
    """Return the selection of the snapshot that is asked for, or nearest to it."""
    wanted, end = query.number("step"), max(0, len(opened.x) - 1)
    if wanted is not None:
        return f"sel({_argument(opened.along, str(wanted))}, method='nearest')"
    position = str(query.integer("at", end, most=end))
    return f"isel({_argument(opened.along, position)})"


def _spectra(query: Query, opened: Opened, panel: str, run: str) -> Iterator[str]:
    stored = query.text("of", "singular_values")
    axis = str(opened.ds[stored].dims[1]) if stored in opened.ds else "matrix"
    name = opened.names[axis][query.row(opened, axis)]
    yield f"spectra = {run}[{stored!r}].sel({_argument(axis, repr(name))})"
    length = str(opened.ds[stored].dims[2])
    if panel == "spectra":
        shares = [level / 100 for level in LEVELS]
        yield f"percentiles = spectra.quantile({shares}, {length!r}, method='nearest')"
        yield "print(spectra.values, percentiles.values)"
        return
    yield f"spectrum = spectra.{_at_cursor(query, opened)}"
    yield f"energy = (spectrum**2).cumsum({length!r}) / (spectrum**2).sum()"
    yield "print(spectrum.values, energy.values)"


def _diagonal(query: Query, opened: Opened, run: str) -> Iterator[str]:
    """Yield lines for the alignment of one pair: direction by direction, and its mean."""
    stored = query.text("of", "alignment")
    name = opened.names["pair"][int(query.rows(opened, "pair", most=1)[0])]
    yield f"pair = {run}.sel(pair={name!r})"
    yield f"values = pair[{stored!r}].transpose('i', {opened.along!r})"
    yield f"mean = pair.rankscope.mean_alignment(of={stored!r})"
    yield f"background = pair[{stored + '_background'!r}]"
    yield "print(values.values, mean.values, background.values)"


def _values(query: Query, opened: Opened, quantity: Quantity, run: str) -> Iterator[str]:
    """Yield lines for a number of each row at each time."""
    axis = quantity.axis
    call = f"{run}[{quantity.of!r}]"
    if quantity.metric != VALUE:
        name, options = quantity.metric, f"of={quantity.of!r}"
        if name.startswith("energy_rank_"):
            name, share = "energy_rank", int(name.rpartition("_")[2]) / 100
            options = f"fraction={share}, {options}"
        call = f"{run}.rankscope.{name}({options})"
    yield f"values = {call}"
    if any(query.has(name) for name in CHOICES):
        rows = rows_together(query, opened, axis)
        names = repr([opened.names[axis][row] for row in rows])
        yield f"values = values.sel({_argument(axis, names)})"
    elif query.text("parts", "0") == "0" and len(opened.whole(axis)) < opened.ds.sizes[axis]:
        whole = f"({run}['part_of'] == '').values"
        yield f"values = values.isel({_argument(axis, whole)})"


def _argument(name: str, value: str) -> str:
    """Return a named argument; a name that a file chose stays a string if it is no identifier."""
    plain = name.isidentifier() and not keyword.iskeyword(name)
    return f"{name}={value}" if plain else f"**{{{name!r}: {value}}}"
