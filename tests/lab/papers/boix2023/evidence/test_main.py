from lab.papers.archived import check_tables
from rankscope.lab.papers.boix2023 import study
from rankscope.lab.papers.boix2023.evidence import factors
from rankscope.lab.papers.boix2023.evidence.__main__ import MEASURES


def test_tables_are_whole(monkeypatch) -> None:
    monkeypatch.setattr(factors, "MOMENTS", (2, 4))  # steps; hundreds take seconds
    check_tables(MEASURES)


def test_claims_are_those_of_the_study() -> None:
    assert set(MEASURES) <= {rule.claim for rule in study("paper").claims}
