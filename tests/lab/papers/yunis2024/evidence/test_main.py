from lab.papers.archived import RESULTS, check_tables, table
from rankscope.lab.papers.yunis2024 import study
from rankscope.lab.papers.yunis2024.evidence.__main__ import MEASURES, WITH_DATA
from rankscope.lab.papers.yunis2024.evidence.alignment import shown_pairs
from rankscope.lab.reporting.evidence import main


def test_tables_are_whole() -> None:
    check_tables(MEASURES)


def test_claims_are_those_of_the_study() -> None:
    claims = [rule.claim for rule in study("paper").claims]
    assert set(WITH_DATA) <= set(MEASURES) <= set(claims)


def test_no_number_is_cut_on_a_narrow_terminal(monkeypatch, capsys) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    main(study("paper"), MEASURES, with_data=WITH_DATA, arguments=["--all", f"--results={RESULTS}"])
    printed = capsys.readouterr().out
    assert "lstm.l1.ih > lstm.l2.ih [g]" in printed and "\u2026" not in printed
    assert "MNIST, by pixel and by image. Pass --data FOLDER." in " ".join(printed.split())
    for row in table(shown_pairs).rows:
        assert f"{row[3]:.4g}" in printed
