from dataclasses import replace
from pathlib import Path

import pytest

from lab.results.toy_results import DOCUMENT, NAME, use_toys
from lab.toy_experiments.paper2000.slow_decay import experiment, losses_fall
from lab.toy_papers.paper2000 import paper
from rankscope.lab.catalogue import paper_names
from rankscope.lab.findings import joint_subject, subject_of, verdicts_json, write_json
from rankscope.lab.papers import boix2023, yunis2024
from rankscope.lab.results.documents import (
    SAYS,
    command_of,
    fill,
    filled,
    measured,
    outcome,
    problems,
    says,
    tables,
)
from rankscope.lab.results.ledger import PROGRAM, Done, Ledger
from rankscope.lab.verdict import Outcome, Verdict, judge


def verdict(claim: str, **networks: dict[int, Outcome]) -> Verdict:
    return judge(claim, "", networks, bound="< 1", quantity="width")


def seeds(*values: float) -> dict[int, Outcome]:
    return {seed: (value, value < 1) for seed, value in enumerate(values)}


def test_what_was_measured() -> None:
    one = verdict("Y1", vgg=seeds(0.5, 0.25, 0.25))
    assert measured(one) == "width: vgg 0.25 to 0.5; bound < 1"
    both = verdict("Y1", vgg=seeds(0.5, 0.5, 0.5), lm=seeds(2, 3, 4))
    assert measured(both) == "width: vgg 0.5; lm 2 to 4; bound < 1"
    assert measured(verdict("Y1")) == "nothing that it speaks of was run"


def test_values_of_another_kind_are_not_shown() -> None:
    found = judge("Y7", "", {"vgg": seeds(0.5), "lm": seeds(2)}, bound="", apart=("vgg",))
    assert measured(found) == "lm 2"


def test_what_was_not_run_is_named_beside_what_was() -> None:
    part = "lm/decay-0, decay-1 of seed 1"
    lost = (f"without {part}: was not run", "without unet: was not run", "without vgg: failed", "e")
    assert measured(replace(verdict("Y1", vgg=seeds(0.5)), evidence=lost)) == (
        f"width: vgg 0.5; bound < 1; without unet, vgg and {part}"
    )
    assert measured(replace(verdict("Y1"), evidence=lost[:1])) == f"without {part}"
    assert measured(replace(verdict("Y1"), evidence=lost[1:])) == "without unet, vgg"


@pytest.mark.parametrize(
    ("networks", "said"),
    [
        ({"vgg": seeds(0.5, 0.5, 0.5)}, "yes"),
        ({"vgg": seeds(0.5, 0.5, 0.5), "lm": seeds(0.5, 0.5, 0.5)}, "yes"),
        ({"vgg": seeds(0.5, 0.5, 0.5), "lm": seeds(2, 2, 2)}, "no: vgg yes; lm no"),
        ({"vgg": seeds(0.5)}, "undecided: vgg met in 1 of 1"),
        (
            {"vgg": seeds(2), "lm": seeds(0.5, 0.5, 2)},
            "undecided: vgg met in 0 of 1; lm met in 2 of 3",
        ),
        ({"vgg": {0: (None, None)}}, "undecided: vgg cannot tell in 1"),
        (
            {"vgg": {0: (0.5, True), 1: (1.0, None)}},
            "undecided: vgg met in 1 of 1, cannot tell in 1",
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


def test_the_command_behind_a_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    use_toys(monkeypatch)
    assert (
        command_of("P1", subject_of(experiment("paper"))) == f"rankscope run {NAME} --scale paper"
    )
    whole = joint_subject(paper("paper"))
    assert command_of("P9", whole) == "rankscope reproduce paper2000 --scale paper"


def test_the_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_toys(monkeypatch)
    many = {key: losses_fall for key in ("P10", "P2", "P2-b")}
    joint = replace(paper("paper"), claims=many)
    done = Done(
        "id", "c0ffee" * 7, "one H200", "2026-01-01T00:00:00+00:00", 90.0, "9 images/s", "", 5
    )
    ledger = Ledger({(NAME, "rates/fast", seed): done for seed in (0, 2)})
    verdicts = [verdict("P2", a=seeds(0.5, 0.5, 0.5))]
    write_json(verdicts_json("paper2000", "paper", verdicts), tmp_path / "paper2000/verdicts.json")
    made = tables(tmp_path, [joint], ledger)
    head, line, *rows = made["results"].splitlines()
    assert head == "| claim | the paper says | measured | verdict | command |"
    assert line == "| --- | --- | --- | --- | --- |"
    assert [row.split(" | ")[0] for row in rows] == ["| P2", "| P2-b", "| P10"]  # jointly judged
    assert [row.split(" | ")[2:4] for row in rows] == [
        ["width: a 0.5; bound < 1", "yes"],
        *[["not run yet", "undecided"]] * 2,
    ]
    firsts = made["claims"].splitlines()[2:]
    assert [row.split(" | ")[0] for row in firsts] == ["| P2", "| P10"]
    assert made["runs"].splitlines()[2:] == [
        f"| {NAME} | 2 | 0, 2 | 3 min | 9 images/s | one H200 | c0ffeec0ff |"
    ]


def test_every_claim_of_what_is_due_has_a_row(tmp_path: Path) -> None:
    made = tables(tmp_path, [yunis2024.paper("paper"), boix2023.paper("paper")], Ledger())
    rows = [row.split(" | ")[0].removeprefix("| ") for row in made["results"].splitlines()[2:]]
    assert {*SAYS} <= {*rows}
    firsts = [row.split(" | ") for row in made["claims"].splitlines()[2:]]
    assert [row[0].removeprefix("| ") for row in firsts] == [*SAYS]
    # B1 is judged in two experiments, of which the paper has one.
    assert [row[4] for row in firsts if row[0] == "| B1"] == [
        "`rankscope run boix2023/toy-diag --scale paper` |"
    ]


def test_a_claim_is_shown_with_what_its_second_rule_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_toys(monkeypatch)
    joint = replace(paper("paper"), claims={key: losses_fall for key in ("P2", "P2-b", "P2-c")})
    verdicts = [verdict("P2", a=seeds(2, 2, 2)), verdict("P2-b", a=seeds(0.5, 0.5, 0.5))]
    write_json(verdicts_json("paper2000", "paper", verdicts), tmp_path / "paper2000/verdicts.json")
    made = tables(tmp_path, [joint], Ledger())
    (row,) = made["claims"].splitlines()[2:]
    assert row.split(" | ")[3] == "no. P2-b: yes"


def test_text_around_a_table_stays() -> None:
    text = "a\n<!-- results:begin -->\nold\n<!-- results:end -->\nb\n"
    new = filled(text, {"results": r"| \1 |", "runs": "x"})
    assert new == "a\n<!-- results:begin -->\n| \\1 |\n<!-- results:end -->\nb\n"
    assert filled(new, {"results": r"| \1 |"}) == new


def test_documents_of_a_repository_must_have_the_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_toys(monkeypatch)
    given = (tmp_path / "results", [paper("paper")], Ledger())
    assert fill(*given) == []  # no repository: nothing is asked for
    (tmp_path / "README.md").write_text("Nothing.\n")
    missing = "results.md has no <!-- runs:begin --> and <!-- runs:end -->"
    assert problems(*given)[-1] == missing and len(problems(*given)) == 3
    (tmp_path / "docs").mkdir()
    for name in ("README.md", "docs/results.md"):
        (tmp_path / name).write_text(DOCUMENT)
    assert len(problems(*given)) == 3
    assert fill(*given) == problems(*given) == []
    assert "not run yet" in (tmp_path / "README.md").read_text()
