"""The command `rankscope results check`: whether what is committed is what it says to be.

Nothing is believed but the files of the runs: verdicts are computed from them again, and ledger,
tables, rules and declarations compared with what they give. Figures are not drawn again: that they
are those that were drawn, of these runs and by this code, is what the ledger says.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rankscope.lab.findings import Subject, read_json
from rankscope.lab.identity import declaration
from rankscope.lab.kept_run import LEDGER, LIMIT, compaction_of, is_results, kept_path
from rankscope.lab.paper import Paper
from rankscope.lab.results import documents
from rankscope.lab.results.drawing import drawable, origins
from rankscope.lab.results.judging import (
    VERDICTS,
    Shelves,
    content_of,
    disagreements,
    judge_subject,
    read_shelves,
    rule_hashes,
    subjects,
)
from rankscope.lab.results.ledger import (
    Key,
    Ledger,
    digest,
    done_of,
    due_papers,
    kept_files,
    ledger_json,
    read_ledger,
    sizes,
)
from rankscope.lab.results.rules import RULES, changed_rules, read_rules
from rankscope.lab.stored_run import StoredRun, stored_runs


def problems(results: Path) -> list[str]:
    """A sentence on everything that is not as it should be; none if all is well."""
    if not is_results(results):
        raise ValueError(f"{results} has no {LEDGER}; rankscope results keep makes one")
    ledger, papers = read_ledger(results), due_papers()
    there = subjects(papers, ledger)
    files = [*_files(ledger, there, results), *_runs(papers, ledger, results)]
    found = [*files, *_ledger(ledger, results), *_rules(there, results)]
    found += _figures(there, ledger, results)
    if files:
        return [*found, "verdicts and tables were not made again, since files are not as they were"]
    for paper in papers:
        shelves = read_shelves(paper, results)
        for subject in subjects([paper], ledger):
            found += _verdicts(subject, shelves, ledger, results)
    return [*found, *documents.problems(results, papers, ledger)]


def _files(ledger: Ledger, there: list[Subject], results: Path) -> Iterator[str]:
    """Whether there are those files that there should be, and no others."""
    expected = {LEDGER, RULES, *(f"{subject.name}/{VERDICTS}" for subject in there)}
    expected |= {path for path, drawn in ledger.figures.items() if drawn.sha256}
    expected |= {_name(key) for key in ledger.done}
    found = {path.relative_to(results).as_posix() for path in kept_files(results)}
    yield from (f"{name} is missing" for name in sorted(expected - found))
    yield from (f"{name} is not in the ledger" for name in sorted(found - expected))


def _runs(papers: tuple[Paper, ...], ledger: Ledger, results: Path) -> Iterator[str]:
    """Whether files of runs are those that were kept, of runs as they are declared now."""
    declared = {
        (experiment.name, stored.name, stored.seed): stored
        for paper in papers
        for experiment in paper.experiments
        for stored in stored_runs(experiment, results)
    }
    for key, done in ledger.done.items():
        path = results / _name(key)
        if path.exists() and digest(path) != done.sha256:
            yield f"{_name(key)} is not the file that was kept: its SHA-256 is not the ledger's"
        elif path.exists():
            yield from _run(key, declared.get(key))
            if done_of(path) != done:
                yield f"{_name(key)} says otherwise where it comes from than the ledger"


def _run(key: Key, stored: StoredRun | None) -> Iterator[str]:
    if stored is None:
        yield f"{_name(key)} is of a run that is no longer declared"
    elif stored.state != "whole":
        why = f" ({'; '.join(stored.changes()[:3])})" if stored.changes() else ""
        yield f"{_name(key)} is not of that run as it is declared now{why}; run and keep it again"
    elif stored.attrs.get("compaction") != declaration(compaction_of(key[0])):
        yield f"{_name(key)} was compacted otherwise than is declared; keep the run again"


def _name(key: Key) -> str:
    return kept_path(Path(), *key).as_posix()


def _ledger(ledger: Ledger, results: Path) -> Iterator[str]:
    """Whether it lists what is due now, and stays small."""
    if read_json(results / LEDGER) != ledger_json(ledger):
        yield f"{LEDGER}: its runs are not those that are due; rankscope results keep lists them"
    for name, size in sizes(ledger).items():
        if size > LIMIT:
            yield f"{name} has {size / 1e6:.1f} MB, more than the {LIMIT / 1e6:.0f} MB it may have"


def _rules(there: list[Subject], results: Path) -> Iterator[str]:
    """Whether claims are decided by the rules by which they were judged."""
    now = rule_hashes(there)
    if changed := [f"{claim} ({subject})" for subject, claim in changed_rules(results, now)]:
        yield (
            f"the rules of {', '.join(changed)} have changed since they were judged; rankscope "
            "results keep judges anew and asks for the reason"
        )
    known = read_rules(results)["claims"]
    for subject in there:
        if new := [claim for claim in subject.claims if claim not in known.get(subject.name, {})]:
            yield f"{RULES} has no rule of {', '.join(new)} ({subject.name}); keep it again"


def _figures(there: list[Subject], ledger: Ledger, results: Path) -> Iterator[str]:
    """Whether figures are the files that were drawn, of these runs and by this code."""
    now = {path: of for subject in there for path, of in origins(subject, ledger).items()}
    for path in sorted(now.keys() | ledger.figures.keys()):
        drawn, (inputs, code) = ledger.figures.get(path), now.get(path, ("", ""))
        if drawn is None:
            yield f"{path} is a figure that the ledger does not know; keep it again"
        elif not inputs:
            yield f"{path} is a figure that nothing draws; keep it again"
        elif drawn.sha256 and (results / path).exists() and digest(results / path) != drawn.sha256:
            yield f"{path} is not the figure that was drawn: its SHA-256 is not the ledger's"
        elif drawn.inputs != inputs:
            yield f"{path} was drawn of other runs than are kept now; keep it again"
        elif drawn.code != code:
            yield f"{path} was drawn by other code than there is now; keep it again"


def _verdicts(subject: Subject, shelves: Shelves, ledger: Ledger, results: Path) -> Iterator[str]:
    """Whether the runs say what was written, and give no more figures than there are."""
    findings = judge_subject(subject, shelves)
    figures, faults = drawable(subject, shelves, ledger)
    yield from (f"{subject.name}: {fault}" for fault in (*findings.faults, *faults))
    yield from (f"{path} can be drawn, and is not there; keep it again" for path in figures)
    name = f"{subject.name}/{VERDICTS}"
    stored, now = read_json(results / name), content_of(subject, findings)
    for where, was, is_now in disagreements(stored, now):
        yield f"{name}, {where}: written is {_short(was)}, the runs say {_short(is_now)}"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
