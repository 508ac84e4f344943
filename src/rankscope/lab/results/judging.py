"""What kept runs say, subject by subject: a paper judged as a whole, or one experiment."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from rankscope.lab.findings import (
    Findings,
    Subject,
    examine,
    joint_subject,
    read_json,
    subject_of,
    verdicts_json,
)
from rankscope.lab.paper import Paper
from rankscope.lab.results.ledger import Key, Ledger, digest, read_ledger
from rankscope.lab.results.rules import ClaimKey, Hashes, changed_rules, code_hash
from rankscope.lab.shelf import Shelf, read_shelf
from rankscope.lab.stored_run import stored_runs
from rankscope.lab.verdict import Verdict

VERDICTS = "verdicts.json"
NOISE = 1e-4  # relative, of numbers that another machine computes again in single precision
SPOKEN = 1e-2  # of those in a sentence, which are rounded to three digits
LOOSE = ("evidence", "tables")  # what has such sentences
FRACTION = re.compile(r"(-?\d+\.\d+(?:e[+-]?\d+)?|-?\d+e[+-]?\d+)")

Shelves = dict[str, Shelf]


def subjects_of(paper: Paper) -> list[Subject]:
    """All of a paper together where it is judged so, and each experiment."""
    joint = [joint_subject(paper)] if paper.joint else []
    return joint + [subject_of(experiment) for experiment in paper.experiments]


def keys_of(subject: Subject) -> Iterator[Key]:
    """Every run that takes part in it, with every declared seed."""
    for each in subject.experiments:
        yield from ((each.name, run, seed) for run in each.runs for seed in each.seeds)


def subjects(papers: Iterable[Paper], ledger: Ledger) -> list[Subject]:
    """Those of which some run was kept."""
    found = [subject for paper in papers for subject in subjects_of(paper)]
    return [subject for subject in found if any(key in ledger.done for key in keys_of(subject))]


def read_shelves(paper: Paper, results: Path) -> Shelves:
    """The kept runs of all its experiments."""
    return {each.name: read_shelf(each, results) for each in paper.experiments}


def judge_subject(subject: Subject, shelves: Shelves) -> Findings:
    """What the runs say of every claim of a subject; nothing is drawn."""
    return examine(replace(subject, figures={}), shelves, Path())


def rule_hashes(there: Iterable[Subject]) -> Hashes:
    """The hash of every claim's rule."""
    return {
        subject.name: {key: code_hash(claim) for key, claim in subject.claims.items()}
        for subject in there
    }


def inputs_of(subject: Subject, ledger: Ledger) -> str:
    """A hash of the files of all its runs."""
    files = [f"{key} {ledger.done[key].sha256}" for key in keys_of(subject) if key in ledger.done]
    return sha256("\n".join(sorted(files)).encode()).hexdigest()


def content_of(subject: Subject, findings: Findings) -> dict[str, Any]:
    """What stands in its verdicts.json."""
    return verdicts_json(subject.name, "paper", findings.verdicts)


def read_verdicts(subject: Subject, results: Path) -> list[Verdict]:
    """Those that were written for a subject; none if nothing was."""
    path = results / subject.name / VERDICTS
    return [*map(Verdict.from_json, read_json(path)["verdicts"])] if path.exists() else []


@dataclass(frozen=True)
class Judged:
    """What the files with this hash say of a subject, by the code that there is now."""

    inputs: str
    findings: Findings


def judge_kept(papers: Iterable[Paper], results: Path) -> dict[str, Judged]:
    """Every subject by its name.

    One of which a file is not as it was kept, or a run declared otherwise, is left out.
    """
    ledger, found = read_ledger(results), dict[str, Judged]()
    for paper in papers:
        shelves = read_shelves(paper, results)
        for subject in subjects([paper], ledger):
            if _as_kept(subject, ledger, results):
                findings = judge_subject(subject, shelves)
                found[subject.name] = Judged(inputs_of(subject, ledger), findings)
    return found


def changed_claims(
    papers: Iterable[Paper], results: Path, judged: Mapping[str, Judged]
) -> list[ClaimKey]:
    """Claims with another rule than before, and those whose files now say something else."""
    there = subjects(papers, read_ledger(results))
    found = changed_rules(results, rule_hashes(there))
    for subject in there:
        if subject.name in judged:
            now = {v.claim: v.to_json() for v in judged[subject.name].findings.verdicts}
            found += [
                (subject.name, each.claim)
                for each in read_verdicts(subject, results)
                if any(disagreements(each.to_json(), now.get(each.claim)))
            ]
    return list(dict.fromkeys(found))


def _as_kept(subject: Subject, ledger: Ledger, results: Path) -> bool:
    return all(
        stored.state == "whole" and digest(stored.path) == ledger.done[key].sha256
        for each in subject.experiments
        for stored in stored_runs(each, results)
        if (key := (each.name, stored.name, stored.seed)) in ledger.done
    )


def outcomes(verdicts: Iterable[Verdict]) -> Iterator[tuple[str, str]]:
    """What is said of each claim, and by each seed of each network."""
    for verdict in verdicts:
        yield verdict.claim, verdict.holds
        for each in verdict.networks:
            for seed in each.seeds:
                name = f"{verdict.claim}, {each.network}, seed {seed.seed}"
                yield name, {True: "met", False: "not met", None: "cannot tell"}[seed.met]


def disagreements(
    one: Any, two: Any, where: str = "", *, loose: bool = False
) -> Iterator[tuple[str, Any, Any]]:
    """Where two JSON values differ by more than noise: (place in them, one, the other)."""
    if isinstance(one, dict) and isinstance(two, dict) and one.keys() == two.keys():
        for key in one:
            said = f"{where}.{key}" if where else key
            yield from disagreements(one[key], two[key], said, loose=loose or key in LOOSE)
    elif isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        for number, (first, second) in enumerate(zip(one, two, strict=True)):
            name = first.get("claim", number) if isinstance(first, dict) else number
            yield from disagreements(first, second, f"{where}[{name}]", loose=loose)
    elif not _alike(one, two, loose=loose):
        yield where, one, two


def _alike(one: Any, two: Any, *, loose: bool) -> bool:
    if isinstance(one, float) and isinstance(two, float):
        return math.isclose(one, two, rel_tol=NOISE, abs_tol=1e-9)
    if loose and isinstance(one, str) and isinstance(two, str):
        return _say_the_same(one, two)
    return type(one) is type(two) and bool(one == two)


def _say_the_same(one: str, two: str) -> bool:
    """Whether two sentences differ by no more than the last digit of numbers in them."""
    first, second = (FRACTION.split(text) for text in (one, two))
    words, numbers = ((first[part::2], second[part::2]) for part in (0, 1))
    return words[0] == words[1] and all(
        math.isclose(float(a), float(b), rel_tol=SPOKEN) for a, b in zip(*numbers, strict=True)
    )
