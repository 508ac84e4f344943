"""Tables in README.md and docs/results.md that are made from the verdicts, between two markers.

<!-- claims:begin --> every claim and its verdict <!-- claims:end -->
<!-- results:begin --> the same by every rule, in every experiment <!-- results:end -->
<!-- ends:begin --> what trainings reached <!-- ends:end -->
<!-- runs:begin --> where the runs come from <!-- runs:end -->
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path

from rankscope.lab.findings import Subject, joint_subject, subject_of
from rankscope.lab.paper import Paper
from rankscope.lab.results import ends
from rankscope.lab.results import ledger as program
from rankscope.lab.results.judging import read_verdicts, subjects
from rankscope.lab.results.ledger import Done, Key, Ledger, run_command
from rankscope.lab.results.phrases import measured, outcome, says, summary
from rankscope.lab.tables import duration, first_rule, second_rule
from rankscope.lab.verdict import Verdict

# Beside the folder of results, if that lies in a repository: which tables each has.
DOCUMENTS = {"README.md": ("claims",), "docs/results.md": ("results", "ends", "runs")}
CLAIM_COLUMNS = ("claim", "the paper says", "measured", "verdict", "command")
RUN_COLUMNS = ("experiment", "runs", "seeds", "together", "speed of a run", "device", "commit")
NOT_RUN = "not run yet"


def fill(results: Path, papers: Sequence[Paper], ledger: Ledger) -> list[str]:
    """Write the tables into the documents; sentences on those that have no place for them."""
    made = tables(results, papers, ledger)
    for path, names in _documents(results).items():
        if path.exists():
            text = path.read_text()
            new = filled(text, {name: made[name] for name in names})
            if new != text:
                path.write_text(new)
    return _differences(results, made)


def problems(results: Path, papers: Sequence[Paper], ledger: Ledger) -> list[str]:
    """Whether the tables in the documents are those that the verdicts give."""
    return _differences(results, tables(results, papers, ledger))


def _differences(results: Path, made: Mapping[str, str]) -> list[str]:
    found = list[str]()
    for path, names in _documents(results).items():
        text = path.read_text() if path.exists() else ""
        for name in names:
            if not _between(name).search(text):
                found.append(f"{path.name} has no <!-- {name}:begin --> and <!-- {name}:end -->")
            elif filled(text, {name: made[name]}) != text:
                found.append(f"{path.name}: the table of {name} is not what the verdicts give")
    return found


def _documents(results: Path) -> dict[Path, tuple[str, ...]]:
    beside = results.resolve().parent
    wanted = {beside / name: names for name, names in DOCUMENTS.items()}
    return wanted if (beside / "README.md").exists() else {}


def tables(results: Path, papers: Iterable[Paper], ledger: Ledger) -> dict[str, str]:
    """Every generated table by the name of its markers."""
    shown = [list(_claims(paper, ledger, results)) for paper in papers]
    every = [_claim_row(*each) for of_paper in shown for each in sorted(of_paper, key=_order)]
    firsts = [(each, of_paper) for of_paper in shown for each in _firsts(of_paper)]
    holds = summary([verdict for (_, verdict, _), _ in firsts])
    first = markdown(CLAIM_COLUMNS, [_row_with_others(*each) for each in firsts])
    return {
        "claims": f"{holds}\n\n{first}",
        "results": markdown(CLAIM_COLUMNS, every),
        "ends": markdown(ends.COLUMNS, ends.rows(results, ledger)),
        "runs": markdown(RUN_COLUMNS, _runs(ledger)),
    }


Shown = tuple[str, Verdict | None, Subject]  # a claim, and what its runs say if there are any


def _firsts(shown: Sequence[Shown]) -> list[Shown]:
    """Every claim by its first rule, of the experiment that is due first."""
    due = [batch.experiment for batch in program.PROGRAM]

    def place(each: Shown) -> int:
        name = each[2].name
        return due.index(name) if name in due else len(due)

    late_first = sorted(shown, key=place, reverse=True)
    firsts = {each[0]: each for each in late_first if not second_rule(each[0])}
    return sorted(firsts.values(), key=_order)


def _row_with_others(first: Shown, shown: Sequence[Shown]) -> tuple[str, ...]:
    """With what second rules say of the same runs, and what other experiments of the claim."""
    claim, _, subject = first
    *row, said, command = _claim_row(*first)
    seconds = [
        f"{rule}: {other.holds}"
        for rule, other, of in shown
        if other and of.name == subject.name and rule != claim == first_rule(rule)
    ]
    elsewhere = [
        f"{of.name}: {other.holds}"
        for rule, other, of in shown
        if other and of.name != subject.name and rule == claim
    ]
    return *row, ". ".join([said, *seconds, *elsewhere]), command


def _claims(paper: Paper, ledger: Ledger, results: Path) -> Iterator[Shown]:
    """Of the paper as a whole where it is judged so, otherwise of experiments due or kept."""
    wanted = {batch.experiment for batch in program.PROGRAM}
    wanted |= {subject.name for subject in subjects([paper], ledger)}
    alone = [subject_of(each) for each in paper.experiments if each.name in wanted]
    for subject in [joint_subject(paper)] if paper.joint else alone:
        verdicts = {each.claim: each for each in read_verdicts(subject, results)}
        yield from ((claim, verdicts.get(claim), subject) for claim in subject.claims)


def _order(shown: Shown) -> tuple[int, str, str]:
    """B1, B2 ... B10; a second rule follows the first."""
    claim, _, subject = shown
    number, rest = re.fullmatch(r"\D*(\d*)(.*)", claim).groups()  # type: ignore[union-attr]
    return int(number or 0), subject.name, rest


def _claim_row(claim: str, verdict: Verdict | None, subject: Subject) -> tuple[str, ...]:
    said = (measured(verdict), outcome(verdict)) if verdict else (NOT_RUN, "undecided")
    return claim, says(claim), *said, f"`{command_of(claim, subject)}`"


def command_of(claim: str, subject: Subject) -> str:
    """What makes the runs that the claim is judged on."""
    having = [each.name for each in subject.experiments if claim in each.claims]
    if len(having) == 1:
        return run_command(having[0])
    return f"rankscope reproduce {subject.name} --scale paper"


def _runs(ledger: Ledger) -> list[tuple[str, ...]]:
    """A row for each experiment, machine and commit that runs come from."""

    def origin(entry: tuple[Key, Done]) -> tuple[str, str, str]:
        (experiment, _, _), done = entry
        return experiment, done.device, done.commit

    rows = list[tuple[str, ...]]()
    kept = sorted(ledger.done.items(), key=lambda entry: (origin(entry), entry[0]))
    for (experiment, device, commit), of in groupby(kept, key=origin):
        entries = list(of)
        seeds = ", ".join(map(str, sorted({seed for (_, _, seed), _ in entries})))
        speeds = list(dict.fromkeys(done.speed for _, done in entries if done.speed))
        speed = f"{speeds[0]}" if len(speeds) == 1 else f"{speeds[0]} ..." if speeds else "-"
        together = duration(sum(done.seconds for _, done in entries))
        rows.append(
            (experiment, str(len(entries)), seeds, together, speed, device, commit[:10] or "-")
        )
    return rows


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def filled(text: str, tables: Mapping[str, str]) -> str:
    """The text with each table between its markers, where it has them."""
    for name, table in tables.items():
        text = _between(name).sub(partial(_put, table), text)
    return text


def _put(table: str, found: re.Match[str]) -> str:
    return f"{found[1]}\n{table}\n{found[2]}"


def _between(name: str) -> re.Pattern[str]:
    return re.compile(f"(<!-- {name}:begin -->).*?(<!-- {name}:end -->)", re.DOTALL)
