from dataclasses import replace
from pathlib import Path

import pytest

from lab.results.toy_results import DOCUMENT, NAME, seeds, use_toys, verdict
from lab.toy_experiments.paper2000.slow_decay import experiment, losses_fall
from lab.toy_papers.paper2000 import paper
from rankscope.lab.findings import joint_subject, subject_of, verdicts_json, write_json
from rankscope.lab.papers import boix2023, yunis2024
from rankscope.lab.results.documents import command_of, fill, filled, problems, tables
from rankscope.lab.results.ledger import Done, Ledger
from rankscope.lab.results.phrases import SAYS


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
    said, blank, _, _, *firsts = made["claims"].splitlines()
    assert not blank
    assert said == (
        "2 claims: 1 yes, 0 no, 0 undecided with all their runs, "
        "1 undecided until there are more runs."
    )
    assert [row.split(" | ")[0] for row in firsts] == ["| P2", "| P10"]
    assert made["runs"].splitlines()[2:] == [
        f"| {NAME} | 2 | 0, 2 | 3 min | 9 images/s | one H200 | c0ffeec0ff |"
    ]


def test_every_claim_of_what_is_due_has_a_row(tmp_path: Path) -> None:
    made = tables(tmp_path, [yunis2024.paper("paper"), boix2023.paper("paper")], Ledger())
    rows = [row.split(" | ")[0].removeprefix("| ") for row in made["results"].splitlines()[2:]]
    assert {*SAYS} <= {*rows}
    firsts = [row.split(" | ") for row in made["claims"].splitlines()[4:]]
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
    (row,) = made["claims"].splitlines()[4:]
    assert row.split(" | ")[3] == "no. P2-b: yes"


def test_what_another_experiment_says_of_a_claim_is_shown_too(tmp_path: Path) -> None:
    said = {
        "boix2023/toy-diag": [verdict("B1", a=seeds(0.5, 0.5, 0.5)), verdict("B1-saturated")],
        "boix2023/diag-transformer": [verdict("B1", b=seeds(2, 2, 2))],
    }
    for name, verdicts in said.items():
        write_json(verdicts_json(name, "paper", verdicts), tmp_path / name / "verdicts.json")
    made = tables(tmp_path, [boix2023.paper("paper")], Ledger())
    row = next(row for row in made["claims"].splitlines() if row.startswith("| B1 |"))
    assert row.split(" | ")[2:4] == [
        "width: a 0.5; bound < 1",
        "yes. B1-saturated: undecided. boix2023/diag-transformer: no",
    ]


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
    assert problems(*given)[-1] == missing and len(problems(*given)) == 4
    (tmp_path / "docs").mkdir()
    for name in ("README.md", "docs/results.md"):
        (tmp_path / name).write_text(DOCUMENT)
    assert len(problems(*given)) == 4
    assert fill(*given) == problems(*given) == []
    assert "not run yet" in (tmp_path / "README.md").read_text()
