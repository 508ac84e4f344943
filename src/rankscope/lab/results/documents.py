"""Tables in README.md and docs/results.md that are made from the verdicts, between two markers.

<!-- claims:begin --> every claim and its verdict <!-- claims:end -->
<!-- results:begin --> the same by every rule, in every experiment <!-- results:end -->
<!-- runs:begin --> where the runs come from <!-- runs:end -->
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path

from rankscope.lab.findings import Subject, joint_subject, subject_of
from rankscope.lab.paper import Paper
from rankscope.lab.results import ledger as program
from rankscope.lab.results.judging import read_verdicts, subjects
from rankscope.lab.results.ledger import Done, Key, Ledger, run_command
from rankscope.lab.tables import duration, number, span
from rankscope.lab.verdict import NetworkVerdict, Verdict

# Beside the folder of results, if that lies in a repository: which tables each has.
DOCUMENTS = {"README.md": ("claims",), "docs/results.md": ("results", "runs")}
CLAIM_COLUMNS = ("claim", "the paper says", "measured", "verdict", "command")
RUN_COLUMNS = ("experiment", "runs", "seeds", "together", "speed of a run", "device", "commit")
NOT_RUN = "not run yet"
LOST = "without "  # begins a sentence on what a verdict lacks
OF_SEED = " of seed"  # in it, unless that is a whole network

SAYS = {
    "Y1": "large singular values grow faster than small ones",
    "Y2": "effective rank falls in nearly all matrices",
    "Y3": "neighbouring layers align weakly, not from the start, in the top ranks only",
    "Y3b": "alignment peaks early, then diffuses",
    "Y4": "more weight decay, lower rank",
    "Y5": "more weight decay, stronger alignment, most in the Transformer",
    "Y6": "the top half of each SVD stands for the network, the more so with decay",
    "Y7": "high decay still trains, but for the VGG",
    "Y8": "true labels give lower rank in the middle than random ones, and alignment that stays",
    "Y9": "rank drops as a network groks",
    "Y10": "queries and keys align best",
    "Y11": "filters align best at their centre",
    "Y12": "seeds agree",
    "B1": "the loss falls in stages, sharper as alpha falls",
    "B2": "one coordinate per stage",
    "B3": "times converge to Algorithm 1's like 1 / log(1/alpha)",
    "B4": "u² - v² is conserved",
    "B5": "assumptions 4.2-4.4 hold",
    "B6": "with full matrices, singular values appear in turn",
    "B7": "in ViTs the rank of the change from the start grows gradually",
    "B8": "a smaller start gives a change of lower rank",
    "B9": "the change is far lower in rank than the product it starts from",
}


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
    first = [row for of_paper in shown for row in _first_rows(of_paper)]
    return {
        "claims": markdown(CLAIM_COLUMNS, first),
        "results": markdown(CLAIM_COLUMNS, every),
        "runs": markdown(RUN_COLUMNS, _runs(ledger)),
    }


Shown = tuple[str, Verdict | None, Subject]  # a claim, and what its runs say if there are any


def _first_rows(shown: Sequence[Shown]) -> Iterator[tuple[str, ...]]:
    """A row for each claim: of the experiment due first, with what second rules say of its runs."""
    due = {batch.experiment: i for i, batch in reversed([*enumerate(program.PROGRAM)])}
    by_time = sorted(shown, key=lambda each: due.get(each[2].name, len(due)), reverse=True)
    firsts = {each[0]: each for each in by_time if not second_rule(each[0])}
    for claim, verdict, subject in sorted(firsts.values(), key=_order):
        *row, said, command = _claim_row(claim, verdict, subject)
        seconds = [
            f"{other}: {again.holds}"
            for other, again, of in shown
            if again and of.name == subject.name and other != claim == first_rule(other)
        ]
        yield *row, ". ".join([said, *seconds]), command


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


def says(claim: str) -> str:
    """Of "Y3-median" what is said of Y3, and that the rule is a second one."""
    phrase = SAYS.get(first_rule(claim), "")
    return f"{phrase} (second rule)" if second_rule(claim) and phrase else phrase


def first_rule(claim: str) -> str:
    """ "Y3" of "Y3-median", and of "Y3"."""
    return claim.partition("-")[0]


def second_rule(claim: str) -> bool:
    return first_rule(claim) != claim


def measured(verdict: Verdict) -> str:
    """What the value is, its range over seeds for each network, the bound, and what is missing.

    Networks whose values are of another kind have none here.
    """
    alike = [each for each in verdict.networks if each.network not in verdict.apart]
    if values := "; ".join(filter(None, map(_network_value, alike))):
        values = f"{verdict.quantity}: {values}" if verdict.quantity else values
        values += f"; bound {verdict.bound}" if verdict.bound else ""
    shown = "; ".join(filter(None, (values, _lost(verdict))))
    return shown or "; ".join(verdict.evidence[:1]) or "-"


def _lost(verdict: Verdict) -> str:
    """ "without unet, lm and vgg/decay-0, decay-0.1 of seed 1": whole networks first; or ""."""
    lost = [each.partition(":")[0] for each in verdict.evidence if each.startswith(LOST)]
    names = [each.removeprefix(LOST) for each in lost]
    parts = [name for name in names if OF_SEED in name]
    whole = ", ".join(name for name in names if OF_SEED not in name)
    return f"{LOST}{' and '.join(filter(None, (whole, *parts)))}" if names else ""


def _network_value(network: NetworkVerdict) -> str:
    if network.interval is None:
        return ""
    low, high = network.interval
    value = number(low) if number(low) == number(high) else span(network.interval)
    return f"{network.network} {value}"


def outcome(verdict: Verdict) -> str:
    """The verdict; what each network says where they differ, and seeds where they are too few."""
    parts = {each.network: _of_network(each) for each in verdict.networks}
    if set(parts.values()) <= {verdict.holds}:
        return verdict.holds
    return f"{verdict.holds}: {'; '.join(f'{name} {said}' for name, said in parts.items())}"


def _of_network(network: NetworkVerdict) -> str:
    if network.holds != "undecided":
        return network.holds
    mets = [seed.met for seed in network.seeds]
    told = len(mets) - mets.count(None)
    said = [f"met in {mets.count(True)} of {told}"] if told else []
    said += [f"cannot tell in {mets.count(None)}"] if mets.count(None) else []
    return ", ".join(said)


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
