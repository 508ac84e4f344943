"""The command `rankscope results keep`: runs become small files, verdicts, figures and a ledger.

    results/ledger.json                            runs due and done
            rules.json                             hashes of the decision rules
            <paper>/<experiment>/verdicts.json
                                 figures/
                                 <run>/seed-0.zarr.zip
            <paper>/verdicts.json, figures/        of a paper judged as a whole

What was kept before stays; nothing changes when nothing is new.
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from rankscope import store
from rankscope.lab.findings import write_json
from rankscope.lab.procedure import say
from rankscope.lab.results import documents
from rankscope.lab.results.archive import digest
from rankscope.lab.results.drawing import draw_place
from rankscope.lab.results.intake import Offer, keep_files, offered
from rankscope.lab.results.judging import (
    FIGURES,
    VERDICTS,
    Datasets,
    Judgement,
    Place,
    by_paper,
    differences,
    hashes_of,
    inputs_of,
    judge_place,
    places,
    read_kept,
    verdicts_json,
)
from rankscope.lab.results.ledger import Done, Drawn, Ledger, read_ledger, write_ledger
from rankscope.lab.results.program import due_papers
from rankscope.lab.results.rules import changed_rules, write_rules


def keep(runs: Path, results: Path, *, new_rules: str | None = None) -> bool:
    """Keep what is whole in `runs`; True if nothing was refused, raised or said otherwise.

    runs: a folder of runs, or of results that were kept on another machine.
    new_rules: why rules of claims that were judged before have changed.
    """
    talk, papers = Console(stderr=True), due_papers()
    if runs.resolve() == results.resolve():
        raise ValueError(f"{runs} is where results are kept; give the folder that they are from")
    offers, refusals = offered([e for paper in papers for e in paper.experiments], runs)
    before, theirs = read_ledger(results), read_ledger(runs)
    before = replace(before, thinning={**before.thinning, **theirs.thinning})
    _refuse_changed_rules(results, places(papers, _as_if_kept(before, offers)), new_rules)
    for line in refusals:
        say(talk, line)
    ledger = replace(before, done=keep_files(offers, before, results, talk))
    write_ledger(ledger, results)  # what is done stays done if anything below fails
    there = places(papers, ledger)
    judged, ledger = _judge_and_draw(there, offers, ledger, results, talk)
    write_rules(results, hashes_of(there), reason=new_rules)
    write_ledger(ledger, results)
    verdicts = [(place, judgement.verdicts) for place, judgement in judged]
    _fill_documents(results, documents.tables(verdicts, papers, ledger), talk)
    say(talk, f"{len(offers)} whole runs in {runs}, {len(ledger.done)} kept in {results}")
    trouble = [fault for _, judgement in judged for fault in judgement.faults]
    trouble += [f"VERDICTS DIFFER. {of}: {e}" for of, each in ledger.thinning.items() for e in each]
    for line in trouble:
        say(talk, line)
    return not (refusals or trouble)


def _as_if_kept(ledger: Ledger, offers: Iterable[Offer]) -> Ledger:
    nothing = Done("", "", "", "", 0.0, "", 1, "", 0)
    return replace(ledger, done={**{offer.key: nothing for offer in offers}, **ledger.done})


def _refuse_changed_rules(results: Path, there: list[Place], reason: str | None) -> None:
    changed = changed_rules(results, hashes_of(there))
    if changed and not reason:
        raise ValueError(
            f"the rules of {', '.join(changed)} have changed since they were judged; if that is "
            "meant, give the reason, which is kept beside them: --new-rules 'why'"
        )


def _judge_and_draw(
    there: list[Place], offers: list[Offer], ledger: Ledger, results: Path, talk: Console
) -> tuple[list[tuple[Place, Judgement]], Ledger]:
    """Write verdicts and figures of every place; the ledger then knows them."""
    whole = {o.key: store.open(o.stored.path) for o in offers if not o.stored.kept}
    judged, figures, thinning = [], dict[str, Drawn](), dict(ledger.thinning)
    for group in by_paper(there):
        kept = read_kept(group, ledger, results)
        for place in group:
            judgement = judge_place(place, kept)
            judged.append((place, judgement))
            content = verdicts_json(place, judgement.verdicts)
            write_json(content, results / place.name / VERDICTS)
            figures |= _draw(place, kept, ledger, results, talk)
            if any(key in whole for key in place.keys):
                by_whole = judge_place(place, {**kept, **whole})
                thinning[place.name] = tuple(differences(by_whole.verdicts, judgement.verdicts))
    for path in ledger.figures.keys() - figures.keys():
        (results / path).unlink(missing_ok=True)
    said = {name: lines for name, lines in thinning.items() if lines}
    return judged, replace(ledger, figures=figures, thinning=said)


def _draw(
    place: Place, kept: Datasets, ledger: Ledger, results: Path, talk: Console
) -> dict[str, Drawn]:
    """Its figures, drawn anew unless all are there and were drawn of the same files."""
    inputs = inputs_of(place, ledger)
    wanted = {f"{place.name}/{FIGURES}/{name}.png" for name in place.figures}
    before = {path: drawn for path, drawn in ledger.figures.items() if path in wanted}
    if before.keys() == wanted and all(
        drawn.inputs == inputs and _is_file(results / path, drawn.sha256)
        for path, drawn in before.items()
    ):
        return before
    found = {}
    for path, remark in draw_place(place, kept, results):
        if remark:
            say(talk, remark)
        else:
            found[path] = Drawn(digest(results / path), inputs)
    return found


def _is_file(path: Path, sha256: str) -> bool:
    return path.exists() and digest(path) == sha256


def _fill_documents(results: Path, tables: dict[str, str], talk: Console) -> None:
    for path in documents.documents(results):
        text = path.read_text()
        if not documents.has_markers(text, "results"):
            say(talk, f"{path.name} has no <!-- results:begin --> and <!-- results:end -->")
        elif (new := documents.filled(text, tables)) != text:
            path.write_text(new)
