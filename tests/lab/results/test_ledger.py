import json
from pathlib import Path

import pytest

from lab.results.toy_results import NAME, use_toys
from rankscope.lab.results.ledger import Done, Drawn, Ledger, read_ledger, sizes, write_ledger

DONE = Done("id", "c0ffee", "one H200", "2026-01-01T00:00:00+00:00", 9.5, "7 images/s", 2, "ab", 10)


def test_what_is_written_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_toys(monkeypatch)
    ledger = Ledger(
        {(NAME, "rates/slow", 2): DONE, (NAME, "rates/old", 0): DONE},
        {"paper2000/figures/figure-1.png": Drawn("ab", "cd")},
        {"paper2000": ("P1 yes by whole runs, no by kept ones",)},
    )
    write_ledger(ledger, tmp_path)
    assert read_ledger(tmp_path) == ledger
    runs = json.loads((tmp_path / "ledger.json").read_text())["runs"]
    assert [run["due"] for run in runs] == ["yes"] * 2 + ["optional"] * 4 + ["no"]
    assert read_ledger(tmp_path / "nowhere") == Ledger()


def test_the_size_of_an_experiment() -> None:
    done = {("a/b", "x", 0): DONE, ("a/b", "x", 1): DONE, ("a/c", "x", 0): DONE}
    assert sizes(Ledger(done)) == {"a/b": 20, "a/c": 10}
