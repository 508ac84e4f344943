"""The lines of Python that compute what a panel shows; every name in them is a string."""

import keyword
from collections.abc import Iterator

from rankscope.view.compare import rows_together
from rankscope.view.opened import Opened
from rankscope.view.quantities import VALUE, Quantity
from rankscope.view.query import Query
from rankscope.view.spectra import LEVELS
from rankscope.view.theory import FLOW

MOST_RUNS = 24
CHOICES = ("rows", "row", "matrix", "pair", "kind", "block")  # of rows, in an address


def python_lines(query: Query, panel: str) -> str:
    """Return lines that compute what a panel shows."""
    keys = query.texts("run") if panel == "compare" else [query.text("run")]
    lines = ["import rankscope as rs", ""]
    for number, key in enumerate(keys[:MOST_RUNS]):
        opened = query.library.open(key)
        name = "run" if len(keys) == 1 else f"run_{number}"
        lines.append(f"{name} = rs.open({str(opened.place.path)!r})")
        lines += _code(query, opened, panel, name)
    return "\n".join(lines) + "\n"


def _code(query: Query, opened: Opened, panel: str, run: str) -> Iterator[str]:
    first, last = query.number("from"), query.number("to")
    if panel != "spectrum" and (first is not None or last is not None):
        yield f"{run} = {run}.sel({_argument(opened.along, f'slice({first}, {last})')})"
    if panel == "scalars":
        names = query.texts("name") or list(opened.scalars())
        yield f"print({run}[{names!r}].to_dataframe())"
    elif panel == "theory/flow":
        yield f"flow = {run}[{[name for name in FLOW if name in opened.ds]!r}]"
        yield "print(flow)"
    elif panel in ("spectra", "spectrum"):
        yield from _spectra(query, opened, panel, run)
    elif panel == "alignment" and (query.has("row") or query.has("pair")):
        yield from _diagonal(query, opened, run)
    else:
        quantity = query.quantity(opened)
        yield from _values(query, opened, quantity, run)
        if panel == "compare":
            yield f"print(values.mean({quantity.axis!r}).to_series())"
        elif panel == "moved":
            least, most = (f"values.{end}({opened.along!r})" for end in ("min", "max"))
            yield f"print(({most} - {least}).to_series().sort_values())"
        else:
            yield f"print(values.transpose({quantity.axis!r}, {opened.along!r}).values)"


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
    wanted, end = query.number("step"), max(0, len(opened.x) - 1)
    if wanted is not None:
        at = f"sel({_argument(opened.along, str(wanted))}, method='nearest')"
    else:
        position = str(query.integer("at", end, most=end))
        at = f"isel({_argument(opened.along, position)})"
    yield f"spectrum = spectra.{at}"
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
