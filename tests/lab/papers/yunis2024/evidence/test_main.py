from lab.papers.archived import RESULTS, check_tables, table
from rankscope.lab.papers.yunis2024 import study
from rankscope.lab.papers.yunis2024.evidence.__main__ import MEASURES, WITH_DATA
from rankscope.lab.papers.yunis2024.evidence.losses import norms
from rankscope.lab.reporting.evidence import main, print_table, wide_console


def test_tables_are_whole() -> None:
    check_tables(MEASURES)


def test_claims_are_those_of_the_study() -> None:
    claims = [rule.claim for rule in study("paper").claims]
    assert set(WITH_DATA) <= set(MEASURES) <= set(claims)


def test_no_number_is_cut_on_a_narrow_terminal(monkeypatch, capsys) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    console = wide_console()
    for measure in dict.fromkeys(measure for group in MEASURES.values() for measure in group):
        print_table("heading", table(measure), console)
    printed = capsys.readouterr().out
    assert "conv13 > head" in printed and "\u2026" not in printed


def test_the_command_reads_the_archive(capsys) -> None:
    main(study("paper"), MEASURES, with_data=WITH_DATA, arguments=["Y7", "--results", str(RESULTS)])
    printed = capsys.readouterr().out
    assert "MNIST, by pixel and by image. Pass --data FOLDER." in " ".join(printed.split())
    for row in table(norms).rows:
        assert f"{row[4]:.4g}" in printed
