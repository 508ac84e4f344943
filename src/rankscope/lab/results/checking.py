"""The command `rankscope results check`: whether what is committed is what it says to be.

Nothing is believed but the files of the runs: verdicts are computed from them again, and figures,
tables, rules and declarations compared with what was there when they were made.
"""

import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rankscope.lab.paper import Paper
from rankscope.lab.results import documents
from rankscope.lab.results.archive import (
    LEDGER,
    SUFFIX,
    archive_path,
    digest,
    is_results,
)
from rankscope.lab.results.compaction import LIMIT
from rankscope.lab.results.judging import (
    FIGURES,
    VERDICTS,
    Datasets,
    Place,
    by_paper,
    hashes_of,
    inputs_of,
    judge_place,
    places,
    read_kept,
    read_verdicts,
    verdicts_json,
)
from rankscope.lab.results.ledger import Ledger, ledger_json, read_ledger, sizes
from rankscope.lab.results.program import due_papers
from rankscope.lab.results.rules import RULES, changed_rules, read_rules
from rankscope.lab.stored_run import stored_runs

NOISE = 1e-6  # relative, of numbers that another machine computes again


def problems(results: Path) -> list[str]:
    """A sentence on everything that is not as it should be; none if all is well."""
    if not is_results(results):
        raise ValueError(f"{results} has no {LEDGER}; rankscope results keep makes one")
    ledger, papers = read_ledger(results), due_papers()
    there = places(papers, ledger)
    files = list(_files(ledger, results))
    found = [*_ledger(ledger, results), *files, *_declarations(papers, ledger, results)]
    found += [*_rules(there, results), *_figures(there, ledger, results)]
    if files:
        found.append("verdicts were not computed again, since files of runs are not as kept")
    else:
        for group in by_paper(there):
            kept = read_kept(group, ledger, results)
            found += [line for place in group for line in _verdicts(place, kept, results)]
    return [*found, *_tables(there, papers, ledger, results)]


def _ledger(ledger: Ledger, results: Path) -> Iterator[str]:
    """Whether it lists what is due now, and stays small."""
    stored = json.loads((results / LEDGER).read_text())
    if stored["runs"] != ledger_json(ledger)["runs"]:
        yield f"{LEDGER}: its runs are not those that are due; rankscope results keep lists them"
    for name, size in sizes(ledger).items():
        if size > LIMIT:
            yield f"{name} has {size / 1e6:.1f} MB, more than the {LIMIT / 1e6:.0f} MB it may have"


def _files(ledger: Ledger, results: Path) -> Iterator[str]:
    """Whether the files of the runs are those that were kept, and all of them."""
    known = {archive_path(results, *key): done for key, done in ledger.done.items()}
    for path, done in known.items():
        name = path.relative_to(results)
        if not path.exists():
            yield f"{name} is missing"
        elif digest(path) != done.sha256:
            yield f"{name} is not the file that was kept: its SHA-256 is not the ledger's"
    for path in sorted(results.rglob(f"*{SUFFIX}")):
        if path not in known:
            yield f"{path.relative_to(results)} is not in the ledger"


def _declarations(papers: Iterable[Paper], ledger: Ledger, results: Path) -> Iterator[str]:
    """Whether runs are still declared as they were when they were made."""
    experiments = {each.name: each for paper in papers for each in paper.experiments}
    declared = {
        (name, stored.name, stored.seed): stored
        for name, experiment in experiments.items()
        for stored in stored_runs(experiment, results)
    }
    for key, done in ledger.done.items():
        title = f"{key[0]}, {key[1]}, seed {key[2]}"
        if key not in declared:
            yield f"{title} is no longer declared"
        elif done.identity != declared[key].identity:
            changes = "; ".join(declared[key].changes()[:3])
            yield f"{title} is declared otherwise now ({changes}); run and keep it again"


def _rules(there: list[Place], results: Path) -> Iterator[str]:
    """Whether claims are decided by the rules by which they were judged."""
    if changed := changed_rules(results, hashes_of(there)):
        yield (
            f"the rules of {', '.join(changed)} have changed since they were judged; rankscope "
            "results keep judges anew and asks for the reason"
        )
    known = read_rules(results)["claims"]
    for place in there:
        if new := [claim for claim in place.claims if claim not in known.get(place.name, {})]:
            yield f"{RULES} has no rule of {', '.join(new)} ({place.name}); keep it again"


def _figures(there: list[Place], ledger: Ledger, results: Path) -> Iterator[str]:
    """Whether figures are the files that were drawn, and were drawn of these runs."""
    inputs = {place.name: inputs_of(place, ledger) for place in there}
    for name, drawn in ledger.figures.items():
        if not (results / name).exists():
            yield f"{name} is missing"
        elif digest(results / name) != drawn.sha256:
            yield f"{name} is not the figure that was drawn: its SHA-256 is not the ledger's"
        elif drawn.inputs != inputs.get(name.partition(f"/{FIGURES}/")[0]):
            yield f"{name} was drawn of other runs than are kept now"
    for path in sorted(results.rglob(f"{FIGURES}/*.png")):
        name = path.relative_to(results).as_posix()
        if name not in ledger.figures:
            yield f"{name} is not in the ledger"


def _verdicts(place: Place, kept: Datasets, results: Path) -> Iterator[str]:
    """Whether the runs say what was written."""
    path = results / place.name / VERDICTS
    name = path.relative_to(results)
    if not path.exists():
        yield f"{name} is missing"
        return
    judgement = judge_place(place, kept)
    yield from (f"{place.name}: {fault}" for fault in judgement.faults)
    stored, now = json.loads(path.read_text()), verdicts_json(place, judgement.verdicts)
    claims = [each["claim"] for each in stored["verdicts"]]
    if claims != [each["claim"] for each in now["verdicts"]]:
        yield f"{name} has the claims {', '.join(claims)}, not those that are judged now"
        return
    for before, after in zip(stored["verdicts"], now["verdicts"], strict=True):
        for where, was, is_now in disagreements(before, after):
            said = f"{name}, {before['claim']}, {where}"
            yield f"{said}: written is {_short(was)}, the runs say {_short(is_now)}"


def disagreements(one: Any, two: Any, where: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Where two JSON values differ by more than rounding: (place in them, one, the other)."""
    if isinstance(one, dict) and isinstance(two, dict) and one.keys() == two.keys():
        for key in one:
            yield from disagreements(one[key], two[key], f"{where}.{key}" if where else key)
    elif isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        for place, (first, second) in enumerate(zip(one, two, strict=True)):
            yield from disagreements(first, second, f"{where}[{place}]")
    elif not _alike(one, two):
        yield where, one, two


def _alike(one: Any, two: Any) -> bool:
    numbers = all(isinstance(e, int | float) and not isinstance(e, bool) for e in (one, two))
    return math.isclose(one, two, rel_tol=NOISE, abs_tol=1e-12) if numbers else one == two


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _tables(
    there: list[Place], papers: tuple[Paper, ...], ledger: Ledger, results: Path
) -> Iterator[str]:
    """Whether the tables in the documents are those that the verdicts give."""
    written = [place for place in there if (results / place.name / VERDICTS).exists()]
    judged = [(place, read_verdicts(place, results)) for place in written]
    tables = documents.tables(judged, papers, ledger)
    for path in documents.documents(results):
        text = path.read_text()
        if not documents.has_markers(text, "results"):
            yield f"{path.name} has no <!-- results:begin --> and <!-- results:end -->"
        for name, table in tables.items():
            if documents.filled(text, {name: table}) != text:
                yield f"{path.name}: the table of {name} is not the one that the verdicts give"
