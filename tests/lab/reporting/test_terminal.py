from dataclasses import replace
from io import StringIO

from rich.console import Console
from rich.table import Table

from lab.toy_study import experiment
from rankscope.lab.catalogue import Entry
from rankscope.lab.experiment import study_of
from rankscope.lab.judging import verdict
from rankscope.lab.judging.verdict import NetworkVerdict, SeedOutcome, Verdict
from rankscope.lab.reporting.terminal import (
    OWN_CLAIMS,
    experiment_table,
    filled_table,
    mark_tables,
    verdict_table,
)

STUDY = study_of(experiment("small"))


def shown(table: Table, width: int = 80) -> str:
    console = Console(file=StringIO(), width=width)
    console.print(table)
    return console.file.getvalue()  # type: ignore[attr-defined]


def network(name: str, *mets: bool) -> NetworkVerdict:
    return NetworkVerdict(name, tuple(SeedOutcome(s, 0.1 * s, met) for s, met in enumerate(mets)))


VERDICTS = (
    Verdict("P1", "it [falls]", "< 1", "share", (network("a", True), network("b", False, True))),
    Verdict("P2", "it rises", fault="could not be judged: no rate"),
)


def test_a_line_for_every_network() -> None:
    text = shown(verdict_table(VERDICTS), 100)
    assert "it [falls]" in text and "○ holds so far (1 seed) a 0" in text
    assert "◐ mixed so far (2 seeds) b 0 to 0.1" in text
    assert "could not be judged: no rate" in text


def test_marks_fit_one_line() -> None:
    (table,) = mark_tables(STUDY, VERDICTS).values()
    assert "a ○ · b ◐" in shown(table)


def test_claims_of_our_own_stand_in_a_table_of_their_own() -> None:
    first = Verdict("P1-first", "it falls", headline="P1", networks=(network("a", True),))
    own = Verdict("P3", "it stays", ours=True, networks=(network("a", True),))
    tables = mark_tables(STUDY, (*VERDICTS, first, own))
    assert list(tables) == [STUDY.name, OWN_CLAIMS]
    papers, ours = map(shown, tables.values())
    assert "P1" in papers and "P1-first" not in papers + ours and "P3" not in papers
    assert "P3" in ours and "P1" not in ours


def test_a_study_of_our_own_has_one_table_under_its_title() -> None:
    own = Verdict("P3", "it stays", ours=True, networks=(network("a", True),))
    tables = mark_tables(replace(STUDY, title="Beyond", ours=True), (own,))
    assert list(tables) == ["Beyond"] and "P3" in shown(tables["Beyond"])


ABOUT = "A network with a long description that does not fit into eighty columns at all"


def entry(name: str, scale: str, **fields) -> Entry:
    return Entry(name, ABOUT, scale, 90.0, "2 cores", seeds=3, total=6, **fields)


def test_the_list_names_an_experiment_once_and_wraps_what_it_is_about() -> None:
    entries = [
        entry(name, scale, whole=2 * (scale == "small"), archived=5 * (scale == "paper"))
        for name in ("paper/a", "paper/b")
        for scale in ("paper", "small", "smoke")
    ]
    lines = shown(experiment_table(entries)).splitlines()
    assert len([line for line in lines if "paper/" in line]) == 2
    assert all(sum(word in line.split() for line in lines) == 2 for word in ABOUT.split())
    assert "2 here, 5 archived" in lines[3]
    verbose = shown(experiment_table(entries, verbose=True))
    assert verbose.count("2 x 3 seeds") == 6


def test_evidence_is_printed_as_it_is() -> None:
    content = verdict.Table(("a", "b"), ((True, None), (0.123456, "x [y]")))
    text = shown(filled_table(content, title="the [title]"))
    assert "the [title]" in text and "yes" in text and "0.1235" in text and "x [y]" in text
