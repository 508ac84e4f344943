"""The command `rankscope results keep`: runs become small files, verdicts, figures and a ledger.

    results/ledger.json                            runs due and done
            rules.json                             hashes of the decision rules
            <paper>/<experiment>/verdicts.json
                                 figures/
                                 <run>/seed-0.zarr.zip
            <paper>/verdicts.json, figures/        of a paper judged as a whole

All is made in a copy first, so that what is refused leaves no trace. What was kept before stays.
"""

import shutil
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console

from rankscope import store
from rankscope.lab.catalogue import load
from rankscope.lab.experiment import Experiment
from rankscope.lab.findings import Findings, Subject, write_json
from rankscope.lab.identity import declaration
from rankscope.lab.kept_run import LEDGER, LIMIT, compact, compaction_of, is_results, kept_path
from rankscope.lab.paper import Paper
from rankscope.lab.procedure import say
from rankscope.lab.results import documents
from rankscope.lab.results.drawing import draw
from rankscope.lab.results.judging import (
    VERDICTS,
    Judged,
    changed_claims,
    content_of,
    inputs_of,
    judge_kept,
    judge_subject,
    keys_of,
    outcomes,
    read_shelves,
    read_verdicts,
    rule_hashes,
    subjects,
)
from rankscope.lab.results.ledger import (
    Done,
    Drawn,
    Key,
    done_of,
    due_papers,
    kept_files,
    read_ledger,
    write_ledger,
)
from rankscope.lab.results.rules import ClaimKey, read_rules, write_rules
from rankscope.lab.shelf import ABSENT, Shelf
from rankscope.lab.stored_run import StoredRun, stored_runs
from rankscope.lab.verdict import Verdict
from rankscope.store.archive import archive_attrs, packed
from rankscope.store.files import replace_file

MADE = ("identity", "started", "commit")  # what tells one life of a run from another

Offers = Mapping[Key, StoredRun]


def keep(runs: Path, results: Path, *, new_rules: str | None = None) -> bool:
    """Keep what is whole in `runs`; True if no run was refused, and no claim or figure raised.

    runs: a folder of runs, or of results that were kept on another machine; `results` itself to
    judge anew what is kept.
    new_rules: why verdicts of files that are the same have changed, or the rules behind them.
    """
    talk, papers = Console(stderr=True), due_papers()
    offers, refusals = _offered(papers, runs, results)
    with TemporaryDirectory() as folder:
        staged = Path(folder) / results.name
        if results.exists():
            shutil.copytree(results, staged, ignore=shutil.ignore_patterns("report-*"))
        before = judge_kept(papers, staged)
        changed = changed_claims(papers, staged, before)
        if changed and not new_rules:
            names = ", ".join(f"{claim} ({subject})" for subject, claim in changed)
            raise ValueError(
                f"{names}: the rule, or what it says of the same files, has changed since it was "
                "judged; if that is meant, give the reason, which is kept with the verdict as it "
                "was: --new-rules 'why'"
            )
        replaced = _verdicts_of(changed, papers, staged)
        taken = _take(offers, staged)
        rules = {subject for subject, _ in changed}
        faults = _judge_and_draw(papers, offers, staged, before=before, changed=rules)
        ledger = read_ledger(staged)
        there = subjects(papers, ledger)
        write_rules(staged, rule_hashes(there), reason=new_rules or "", replaced=replaced)
        _publish(staged, results)
    troubles = [*refusals, *faults, *documents.fill(results, papers, ledger)]
    for line in (*taken, *troubles):
        say(talk, line)
    found = f"{len(offers)} whole runs in {runs}" if offers else "judged anew"
    say(talk, f"{found}, {len(ledger.done)} kept in {results}")
    return not troubles


def _offered(papers: Iterable[Paper], runs: Path, results: Path) -> tuple[Offers, list[str]]:
    """As `offered`; nothing where what is kept is judged anew."""
    if not runs.is_dir():
        raise ValueError(f"{runs} is not a folder; give the one in which the runs are")
    if is_results(results) and runs.resolve() == results.resolve():
        return {}, []
    found, refused = offered([e for paper in papers for e in paper.experiments], runs)
    if not (found or refused):
        place = f"{runs}/<paper>/<experiment>/paper/<run>/seed-<number>"
        raise ValueError(
            f"{runs} has no whole run of scale paper; give a folder as rankscope run writes it, "
            f"with runs at {place}, or {results} to judge anew what is kept"
        )
    return found, refused


def offered(experiments: Iterable[Experiment], runs: Path) -> tuple[Offers, list[str]]:
    """The whole runs in a folder, and sentences on those that were declared otherwise."""
    found: dict[Key, StoredRun] = {}
    refused: dict[str, list[str]] = {}
    for experiment in experiments:
        for stored in stored_runs(experiment, runs):
            state = stored.state
            if state == "whole":
                found[experiment.name, stored.name, stored.seed] = stored
            elif state in ("changed", "foreign"):
                why = f" ({'; '.join(stored.changes()[:3])})" if state == "changed" else ""
                sentence = f"each {ABSENT[state]}{why}"
                refused.setdefault(f"{experiment.name}: {sentence}", []).append(stored.title)
    return found, [f"not kept of {why}: {'; '.join(titles)}" for why, titles in refused.items()]


def _verdicts_of(
    claims: list[ClaimKey], papers: Iterable[Paper], results: Path
) -> list[dict[str, Any]]:
    """What was written of these claims, and by which rule."""
    rules = read_rules(results)["claims"]
    return [
        {
            "of": subject.name,
            "claim": each.claim,
            "holds": each.holds,
            "value": each.value,
            "bound": each.bound,
            "rule": rules.get(subject.name, {}).get(each.claim, {}).get("sha256"),
        }
        for subject in subjects(papers, read_ledger(results))
        for each in read_verdicts(subject, results)
        if (subject.name, each.claim) in claims
    ]


def _take(offers: Offers, results: Path) -> list[str]:
    """Write what is not kept yet, or was made or compacted otherwise; what became of what was."""
    ledger, said = read_ledger(results), []
    done = dict(ledger.done)
    for key, stored in offers.items():
        path, how = kept_path(results, *key), declaration(compaction_of(key[0]))
        before, attrs = archive_attrs(path), stored.attrs
        same = all(before.get(name) == attrs.get(name) for name in MADE)
        if not (same and before.get("compaction") == how):
            if before and not same:
                said.append(f"{key[0]}, {stored.title} was made again and is replaced")
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, _bytes_of(stored, key[0]), durable=False)
        done[key] = done_of(path)
    for name in dict.fromkeys(name for name, _, _ in offers):
        _refuse_too_large(name, done)
    write_ledger(replace(ledger, done=done), results)
    return said


def _bytes_of(stored: StoredRun, experiment: str) -> bytes:
    """Compacted; or as it is, if it was kept on another machine."""
    how = compaction_of(experiment)
    if not stored.kept:
        return packed(compact(store.open(stored.path), how))
    if stored.attrs.get("compaction") != declaration(how):
        raise ValueError(
            f"{stored.path} was kept by a rankscope that declares another compaction; keep the run "
            "itself with this one"
        )
    return stored.path.read_bytes()


def _refuse_too_large(name: str, done: Mapping[Key, Done]) -> None:
    """While one seed is there, not when the last one comes."""
    experiment = load(name, "paper")
    largest = {
        run: max((each.bytes for key, each in done.items() if key[:2] == (name, run)), default=0)
        for run in experiment.runs
    }
    size = len(experiment.seeds) * sum(largest.values())
    if size > LIMIT:
        raise ValueError(
            f"all seeds of {name} will take {size / 1e6:.1f} MB of the {LIMIT / 1e6:.0f} MB they "
            "may; declare fewer bits in rankscope.lab.kept_run"
        )


def _judge_and_draw(
    papers: Iterable[Paper],
    offers: Offers,
    results: Path,
    *,
    before: Mapping[str, Judged],
    changed: Collection[str],
) -> list[str]:
    """Write verdicts and figures of every subject; tracebacks of claims and figures that raised.

    before: what was said of the files that there were; of those that are the same it still is.
    changed: subjects with a claim that is judged otherwise.
    """
    ledger, figures, faults = read_ledger(results), dict[str, Drawn](), list[str]()
    itself = {key: stored for key, stored in offers.items() if not stored.kept}
    for paper in papers:
        shelves = read_shelves(paper, results)
        whole = {name: _with_whole(shelf, name, itself) for name, shelf in shelves.items()}
        for subject in subjects([paper], ledger):
            known = _known(before.get(subject.name), inputs_of(subject, ledger))
            findings = known or judge_subject(subject, shelves)
            new = known is None or subject.name in changed
            if new and not itself.keys().isdisjoint(keys_of(subject)):
                by_whole = judge_subject(subject, whole)
                _refuse_difference(subject, by_whole.verdicts, findings.verdicts)
            write_json(content_of(subject, findings), results / subject.name / VERDICTS)
            drawn, raised = draw(subject, shelves, ledger, results)
            figures |= drawn
            faults += [*findings.faults, *raised]
    for path in ledger.figures.keys() - {path for path, each in figures.items() if each.sha256}:
        (results / path).unlink(missing_ok=True)
    write_ledger(replace(ledger, figures=figures), results)
    return faults


def _known(judged: Judged | None, inputs: str) -> Findings | None:
    """What files with this hash say, if that was found out."""
    return judged.findings if judged and judged.inputs == inputs else None


def _with_whole(shelf: Shelf, experiment: str, runs: Offers) -> Shelf:
    """With the runs themselves in place of what is kept of them."""
    itself = {
        (run, seed): store.open(each.path)
        for (name, run, seed), each in runs.items()
        if name == experiment
    }
    return {
        run: {seed: itself.get((run, seed), kept) for seed, kept in seeds.items()}
        for run, seeds in shelf.items()
    }


def _refuse_difference(subject: Subject, whole: Iterable[Verdict], kept: Iterable[Verdict]) -> None:
    by_whole, by_kept = dict(outcomes(whole)), dict(outcomes(kept))
    for of in {**by_whole, **by_kept}:
        if by_whole.get(of) != by_kept.get(of):
            raise ValueError(
                f"{subject.name}, {of}: {by_whole.get(of)} by the runs, {by_kept.get(of)} by what "
                "would be kept of them; declare more bits in rankscope.lab.kept_run"
            )


def _publish(staged: Path, results: Path) -> None:
    """Put what differs where it belongs, and take away what is no more; the ledger last."""
    new, old = ({path.relative_to(of): path for path in kept_files(of)} for of in (staged, results))
    for name, path in sorted(new.items(), key=lambda item: item[0] == Path(LEDGER)):
        if name not in old or old[name].read_bytes() != path.read_bytes():
            (results / name).parent.mkdir(parents=True, exist_ok=True)
            replace_file(results / name, path.read_bytes(), durable=False)
    for name in old.keys() - new.keys():
        old[name].unlink()
