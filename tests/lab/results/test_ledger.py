import json
from pathlib import Path

import pytest

from lab.results.toy_results import NAME, use_toys
from rankscope.lab.results.ledger import (
    PROGRAM,
    Done,
    Drawn,
    Ledger,
    digest,
    done_of,
    kept_files,
    read_ledger,
    run_command,
    sizes,
    write_ledger,
)

DONE = Done("id", "c0ffee", "one H200", "2026-01-01T00:00:00+00:00", 9.5, "7 images/s", "ab", 10)


def test_the_program_has_every_run_once_and_the_first_seeds_first() -> None:
    keys = [key for batch in PROGRAM for key in batch.keys]
    assert len(keys) == len(set(keys))
    assert [batch.optional for batch in PROGRAM] == sorted(batch.optional for batch in PROGRAM)
    first = {}
    for name, _, seed in keys:
        first.setdefault(name, seed)
    assert set(first.values()) == {0}
    for name in ("yunis2024/mlp", "yunis2024/vgg"):
        due = [b.seeds for b in PROGRAM if b.experiment == name and not b.optional]
        assert {seed for seeds in due for seed in seeds} == {0, 1, 2}


def test_the_command_of_a_batch() -> None:
    command = run_command("yunis2024/vgg", 1, 2)
    assert command == "rankscope run yunis2024/vgg --scale paper --seed 1 --seed 2"


def test_what_is_written_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_toys(monkeypatch)
    ledger = Ledger(
        {(NAME, "rates/slow", 2): DONE, (NAME, "rates/old", 0): DONE},
        {"paper2000/figures/figure-1.png": Drawn("ab", "cd", "ef")},
    )
    write_ledger(ledger, tmp_path)
    assert read_ledger(tmp_path) == ledger
    runs = json.loads((tmp_path / "ledger.json").read_text())["runs"]
    assert [run["due"] for run in runs] == ["yes"] * 2 + ["optional"] * 4 + ["no"]
    assert read_ledger(tmp_path / "nowhere") == Ledger()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"runs": [', "ledger.json is not whole"),
        ("{}", "ledger.json is not a ledger as this rankscope writes it"),
    ],
)
def test_a_ledger_that_cannot_be_read_is_named(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "ledger.json").write_text(text)
    with pytest.raises(ValueError, match=sentence):
        read_ledger(tmp_path)


def test_a_run_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "seed-0.zarr.zip").write_text("half")
    with pytest.raises(ValueError, match=r"seed-0.zarr.zip is not a whole file of a run"):
        done_of(tmp_path / "seed-0.zarr.zip")


def test_the_size_of_an_experiment() -> None:
    done = {("a/b", "x", 0): DONE, ("a/b", "x", 1): DONE, ("a/c", "x", 0): DONE}
    assert sizes(Ledger(done)) == {"a/b": 20, "a/c": 10}


def test_reports_are_no_results(tmp_path: Path) -> None:
    for name in ("a/run.zip", "report-paper/index.html", "a/report-paper/figures/x.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert kept_files(tmp_path) == [tmp_path / "a/run.zip"]
    assert digest(tmp_path / "missing") == "" != digest(tmp_path / "a/run.zip")
