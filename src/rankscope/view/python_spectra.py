"""The lines of Python that compute the spectra of one matrix and what follows from them."""

import keyword
from collections.abc import Iterator

from rankscope.view.opened import Opened
from rankscope.view.quantities import LEADING
from rankscope.view.query import Query
from rankscope.view.spectra import LEVELS, norm_of, spectrum_of
from rankscope.view.spectrum import SHARES, change_of


def ranks_lines(query: Query, opened: Opened) -> Iterator[str]:
    """Yield lines for the ranks of one spectrum, at the start and now, and of the change."""
    yield from _parts(query, opened)
    yield "ranks = {}"
    yield "for name, (part, of) in parts.items():"
    stored, _ = spectrum_of(query, opened)
    known = ["stable"] if norm_of(stored) else ["effective", "stable", "numerical"]
    for rank in known:
        yield f"    {rank} = part.rankscope.{rank}_rank(of=of).item()"
    shares = [share / 100 for share in SHARES]
    yield f"    energy = [part.rankscope.energy_rank(of=of, fraction=f).item() for f in {shares}]"
    yield f"    ranks[name] = [{', '.join(known)}, *energy]"
    yield "print(ranks)"


def _parts(query: Query, opened: Opened) -> Iterator[str]:
    """Yield lines that name one matrix now and at the start, and the spectra of each part."""
    stored, axis = spectrum_of(query, opened)
    row = query.row(opened, axis)
    changed = change_of(opened, stored) if row in opened.whole(axis) else None
    whole, change = (
        name and name.replace(LEADING, "singular_values") for name in (stored, changed)
    )
    yield f"chosen = run.sel({argument(axis, repr(opened.names[axis][row]))})"
    yield f"now = chosen.{_at_cursor(query, opened)}"
    yield f"start = chosen.isel({argument(opened.along, '0')})"
    yield f"parts = {{'start': (start, {whole!r}), 'now': (now, {whole!r})}}"
    if change:
        yield f"parts['change'] = (now, {change!r})"


def _at_cursor(query: Query, opened: Opened) -> str:
    """Return the selection of the snapshot that is asked for, or nearest to it."""
    wanted, end = query.number("step"), max(0, len(opened.x) - 1)
    if wanted is not None:
        return f"sel({argument(opened.along, str(wanted))}, method='nearest')"
    position = str(query.integer("at", end, most=end))
    return f"isel({argument(opened.along, position)})"


def spectrum_lines(query: Query, opened: Opened) -> Iterator[str]:
    """Yield lines for one spectrum now and at the start, of the change, and of chance."""
    yield from _parts(query, opened)
    yield "spectra, norms, energy = {}, {}, {}"
    yield "for name, (part, of) in parts.items():"
    yield "    spectra[name] = part.rankscope.largest(of=of).values"
    yield "    norms[name] = part.rankscope.frobenius_norm(of=of).item()"
    yield "    energy[name] = np.cumsum(spectra[name] ** 2) / np.square(norms[name])"
    yield "print(spectra, energy)"
    if "m" in opened.ds and spectrum_of(query, opened)[1] == "matrix":
        yield "from rankscope.view.chance import expected_values"
        yield "chance = expected_values(now['m'].item(), now['n'].item(), norms['now'])"
        yield "print(chance)"


def spectra_lines(query: Query, opened: Opened) -> Iterator[str]:
    """Yield lines for the spectra of one matrix over time, and their percentiles."""
    stored, axis = spectrum_of(query, opened)
    name = opened.names[axis][query.row(opened, axis)]
    shares = [level / 100 for level in LEVELS]
    yield f"spectra = run[{stored!r}].sel({argument(axis, repr(name))})"
    yield f"known = spectra.dropna({opened.along!r}, how='all')"
    length = str(opened.ds[stored].dims[2])
    yield f"percentiles = known.quantile({shares}, {length!r}, method='nearest')"
    yield "print(spectra.values, percentiles.values)"


def argument(name: str, value: str) -> str:
    """Return a named argument; a name that a file chose stays a string if it is no identifier."""
    plain = name.isidentifier() and not keyword.iskeyword(name)
    return f"{name}={value}" if plain else f"**{{{name!r}: {value}}}"
