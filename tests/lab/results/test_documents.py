from pathlib import Path

import pytest

from lab.results.toy_results import NAME
from lab.toy_experiments.paper2000.slow_decay import experiment
from lab.toy_papers.paper2000 import paper
from rankscope.lab.catalogue import paper_names
from rankscope.lab.papers import boix2023, yunis2024
from rankscope.lab.results.documents import (
    command_of,
    documents,
    filled,
    has_markers,
    measured,
    outcome,
    tables,
)
from rankscope.lab.results.judging import Place
from rankscope.lab.results.ledger import Done, Ledger
from rankscope.lab.results.program import PROGRAM
from rankscope.lab.results.says import SAYS, says
from rankscope.lab.verdict import Outcome, Verdict, judge


def verdict(claim: str, **networks: dict[int, Outcome]) -> Verdict:
    return judge(claim, "", networks, bound="< 1", quantity="width")


def seeds(*values: float) -> dict[int, Outcome]:
    return {seed: (value, value < 1) for seed, value in enumerate(values)}


def test_what_was_measured() -> None:
    assert measured(verdict("Y1", vgg=seeds(0.5, 0.25, 0.25))) == "width: 0.25 to 0.5; bound < 1"
    both = verdict("Y1", vgg=seeds(0.5, 0.5, 0.5), lm=seeds(2, 3, 4))
    assert measured(both) == "width: vgg 0.5; lm 2 to 4; bound < 1"
    assert measured(verdict("Y1")) == "nothing that it speaks of was run"


@pytest.mark.parametrize(
    ("networks", "said"),
    [
        ({"vgg": seeds(0.5, 0.5, 0.5)}, "yes"),
        ({"vgg": seeds(0.5, 0.5, 0.5), "lm": seeds(0.5, 0.5, 0.5)}, "yes"),
        ({"vgg": seeds(0.5, 0.5, 0.5), "lm": seeds(2, 2, 2)}, "no: vgg yes; lm no"),
        ({"vgg": seeds(0.5)}, "undecided (met in 1 of 1)"),
        (
            {"vgg": seeds(2), "lm": seeds(0.5, 0.5, 2)},
            "undecided: vgg undecided (met in 0 of 1); lm undecided (met in 2 of 3)",
        ),
    ],
)
def test_what_follows(networks: dict[str, dict[int, Outcome]], said: str) -> None:
    assert outcome(verdict("Y1", **networks)) == said


def test_every_claim_of_the_papers_is_put_in_a_phrase() -> None:
    assert set(paper_names()) == {"boix2023", "yunis2024"}
    due = {batch.experiment for batch in PROGRAM}
    claims = {
        claim for of in boix2023.paper("paper").experiments if of.name in due for claim in of.claims
    }
    claims |= yunis2024.paper("paper").claims.keys()
    assert {claim.partition("-")[0] for claim in claims} == SAYS.keys()
    assert says("Y3-median") == f"{SAYS['Y3']} (second rule)" and says("P1") == ""


def test_the_command_behind_a_claim() -> None:
    one = Place(NAME, (experiment("paper"),), {}, {})
    assert command_of("P1", one) == f"rankscope run {NAME} --scale paper"
    assert command_of("P9", one) == f"rankscope reproduce {NAME} --scale paper"


def test_the_tables() -> None:
    place = Place("paper2000", (experiment("paper"),), {}, {})
    judged = [(place, [verdict(key, a=seeds(0.5, 0.5, 0.5)) for key in ("P10", "P2", "P2-b")])]
    judged += [(Place(NAME, (experiment("paper"),), {}, {}), [verdict("P1", a=seeds(1, 1, 1))])]
    done = Done(
        "id", "c0ffee" * 7, "one H200", "2026-01-01T00:00:00+00:00", 90.0, "9 images/s", 1, "", 5
    )
    ledger = Ledger({(NAME, "rates/fast", seed): done for seed in (0, 2)})
    made = tables(judged, [paper("paper")], ledger)
    head, line, *rows = made["results"].splitlines()
    assert head == "| claim | the paper says | measured | verdict | command |"
    assert line == "| --- | --- | --- | --- | --- |"
    assert [row.split(" | ")[0] for row in rows] == ["| P2", "| P2-b", "| P10"]  # jointly judged
    assert made["runs"].splitlines()[2:] == [
        f"| {NAME} | 2 | 0, 2 | 3 min | 9 images/s | one H200 | c0ffeec0ff |"
    ]


def test_text_around_a_table_stays() -> None:
    text = "a\n<!-- results:begin -->\nold\n<!-- results:end -->\nb\n"
    new = filled(text, {"results": r"| \1 |", "runs": "x"})
    assert new == "a\n<!-- results:begin -->\n| \\1 |\n<!-- results:end -->\nb\n"
    assert filled(new, {"results": r"| \1 |"}) == new
    assert has_markers(text, "results") and not has_markers(text, "runs")


def test_documents_are_beside_the_results(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("")
    assert documents(tmp_path / "results") == [tmp_path / "README.md"]
