import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from findings import __main__ as command
from findings import losses
from rankscope.lab.judging.verdict import Table


@pytest.fixture(scope="module")
def tables(table) -> dict[str, Table]:
    """Of every finding without data, by its sentence."""
    found = [finding for of_claim in command.FINDINGS.values() for finding in of_claim]
    return {command.sentence(finding): table(finding) for finding in found}


def test_every_finding_is_a_whole_table_under_a_sentence(tables) -> None:
    assert len(tables) == len({each for found in command.FINDINGS.values() for each in found})
    for sentence, made in tables.items():
        assert sentence.endswith(".") and made.rows and made.title
        assert {len(row) for row in made.rows} == {len(made.columns)}
        numbers = [cell for row in made.rows for cell in row if isinstance(cell, float)]
        assert np.isfinite(numbers).all(), sentence


def test_no_number_is_cut_on_a_narrow_terminal(tables, monkeypatch, capsys) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    console = command.wide_console()
    for sentence, made in tables.items():
        command.print_table(sentence, made, console)
    printed = capsys.readouterr().out
    assert "conv13 > head" in printed and "\u2026" not in printed


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["findings", *arguments])
    command.main()


def refused(monkeypatch, capsys, *arguments: str) -> str:
    """What is said."""
    with pytest.raises(SystemExit, match="2"):
        run(monkeypatch, *arguments)
    return " ".join(capsys.readouterr().err.split())


def test_without_a_claim_it_lists_them(monkeypatch, capsys) -> None:
    run(monkeypatch)
    printed = capsys.readouterr().out
    places = [printed.index(f" {claim} ") for claim in command.FINDINGS]
    assert all(one < other for one, other in pairwise(places))


def test_a_claim_prints_its_tables_and_says_what_data_would_add(monkeypatch, capsys, table) -> None:
    run(monkeypatch, "Y7")
    printed = capsys.readouterr().out
    assert "--data FOLDER" in " ".join(printed.split())
    for row in table(losses.norms).rows:
        assert f"{row[4]:.4g}" in printed


def test_what_cannot_be_shown_is_refused_with_what_can(monkeypatch, capsys) -> None:
    said = refused(monkeypatch, capsys, "Y99")
    assert "nothing on Y99; choose from Y1" in said
    assert "--all shows every claim: leave out Y5" in refused(monkeypatch, capsys, "--all", "Y5")


def test_a_folder_without_the_data_is_named(monkeypatch, capsys, tmp_path: Path) -> None:
    assert "nowhere does not exist" in refused(
        monkeypatch, capsys, "Y7", "--data", str(tmp_path / "nowhere")
    )
    assert "Salesforce/wikitext" in refused(monkeypatch, capsys, "Y7", "--data", str(tmp_path))
