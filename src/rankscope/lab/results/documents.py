"""Tables in README.md and docs/results.md that are made from the verdicts, between two markers.

<!-- results:begin --> claims and verdicts <!-- results:end -->
<!-- runs:begin --> where the runs come from <!-- runs:end -->
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path

from rankscope.lab.paper import Paper
from rankscope.lab.results.judging import Place
from rankscope.lab.results.ledger import Done, Key, Ledger
from rankscope.lab.results.program import run_command
from rankscope.lab.results.says import says
from rankscope.lab.tables import duration, number, span
from rankscope.lab.verdict import NetworkVerdict, Verdict

DOCUMENTS = ("README.md", "docs/results.md")  # beside the folder of results
CLAIM_COLUMNS = ("claim", "the paper says", "measured", "verdict", "command")
RUN_COLUMNS = ("experiment", "runs", "seeds", "together", "speed of a run", "device", "commit")

Verdicts = Sequence[tuple[Place, Sequence[Verdict]]]


def tables(judged: Verdicts, papers: Iterable[Paper], ledger: Ledger) -> dict[str, str]:
    """Every generated table by the name of its markers."""
    rows = [
        _claim_row(verdict, place)
        for paper in papers
        for place, verdict in sorted(_of_paper(paper, judged), key=_order)
    ]
    return {"results": markdown(CLAIM_COLUMNS, rows), "runs": markdown(RUN_COLUMNS, _runs(ledger))}


def _of_paper(paper: Paper, judged: Verdicts) -> Iterator[tuple[Place, Verdict]]:
    """Those on the paper as a whole where it is judged so, otherwise those of its experiments."""
    for place, verdicts in judged:
        of, _, experiment = place.name.partition("/")
        if of == paper.name and paper.joint == (not experiment):
            yield from ((place, verdict) for verdict in verdicts)


def _order(shown: tuple[Place, Verdict]) -> tuple[int, str, str]:
    """B1, B2 ... B10; a second rule follows the first."""
    place, verdict = shown
    number, rest = re.fullmatch(r"\D*(\d*)(.*)", verdict.claim).groups()  # type: ignore[union-attr]
    return int(number or 0), place.name, rest


def _claim_row(verdict: Verdict, place: Place) -> tuple[str, ...]:
    command = f"`{command_of(verdict.claim, place)}`"
    return verdict.claim, says(verdict.claim), measured(verdict), outcome(verdict), command


def measured(verdict: Verdict) -> str:
    """What the value is, its range over seeds for each network, and the bound."""
    values = [_network_value(each, alone=len(verdict.networks) == 1) for each in verdict.networks]
    if not any(values):
        return "; ".join(verdict.evidence[:1]) or "-"
    what = f"{verdict.quantity}: " if verdict.quantity else ""
    bound = f"; bound {verdict.bound}" if verdict.bound else ""
    return f"{what}{'; '.join(filter(None, values))}{bound}"


def _network_value(network: NetworkVerdict, *, alone: bool) -> str:
    if network.interval is None:
        return ""
    low, high = network.interval
    value = number(low) if number(low) == number(high) else span(network.interval)
    return value if alone else f"{network.network} {value}"


def outcome(verdict: Verdict) -> str:
    """The verdict; what each network says where they differ, and seeds where they are too few."""
    parts = [f"{each.network} {_of_network(each)}" for each in verdict.networks]
    if len(parts) == 1:
        said = _of_network(verdict.networks[0])
        return said if said.startswith(verdict.holds) else f"{verdict.holds}; {said}"
    alike = {_of_network(each) for each in verdict.networks} <= {verdict.holds}
    return verdict.holds if alike else f"{verdict.holds}: {'; '.join(parts)}"


def _of_network(network: NetworkVerdict) -> str:
    if network.holds != "undecided":
        return network.holds
    met = sum(seed.met is True for seed in network.seeds)
    return f"undecided (met in {met} of {len(network.seeds)})"


def command_of(claim: str, place: Place) -> str:
    """What makes the runs that the claim is judged on."""
    having = [each.name for each in place.experiments if claim in each.claims]
    if len(having) == 1:
        return run_command(having[0])
    return f"rankscope reproduce {place.name} --scale paper"


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


def documents(results: Path) -> list[Path]:
    """Those there are beside the folder of results."""
    beside = results.resolve().parent
    return [beside / name for name in DOCUMENTS if (beside / name).exists()]


def filled(text: str, tables: Mapping[str, str]) -> str:
    """The text with each table between its markers, where it has them."""
    for name, table in tables.items():
        text = _between(name).sub(partial(_put, table), text)
    return text


def _put(table: str, found: re.Match[str]) -> str:
    return f"{found[1]}\n{table}\n{found[2]}"


def has_markers(text: str, name: str) -> bool:
    return _between(name).search(text) is not None


def _between(name: str) -> re.Pattern[str]:
    return re.compile(f"(<!-- {name}:begin -->).*?(<!-- {name}:end -->)", re.DOTALL)
