"""Whatever is changed by hand is noticed, and named."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lab.results.test_rules import TOY, rewrite
from lab.results.toy_results import NAME, PROGRAM, kept, use_toys
from lab.toy_experiments.paper2000.slow_decay import experiment
from lab.toy_runs import Decay
from rankscope.lab.results.checking import disagreements, problems
from rankscope.lab.results.program import Batch


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as monkeypatch:
        use_toys(monkeypatch)
        return kept(tmp_path_factory.mktemp("made"), 0, 1, 2).parent


@pytest.fixture
def results(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy that a test may spoil."""
    use_toys(monkeypatch)
    copy = tmp_path / "copy"
    shutil.copytree(made, copy, ignore=shutil.ignore_patterns("runs"))
    return copy / "results"


def replaced(before: str, after: str) -> Callable[[Path], None]:
    def act(path: Path) -> None:
        assert before in path.read_text()
        path.write_text(path.read_text().replace(before, after, 1))

    return act


def flip_last_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


RUN = f"{NAME}/rates/fast/seed-0.zarr.zip"
FIGURE = "paper2000/figures/figure-1.png"


def test_all_is_well(results: Path) -> None:
    assert problems(results) == []


@pytest.mark.parametrize(
    ("name", "act", "sentence"),
    [
        (
            "paper2000/verdicts.json",
            replaced('"value": 0.0', '"value": 0.1'),
            "paper2000/verdicts.json, P1, value: written is 0.1",
        ),
        (
            f"{NAME}/verdicts.json",
            replaced('"bound": "< 0.2"', '"bound": "< 0.3"'),
            f'{NAME}/verdicts.json, P1, bound: written is "< 0.3", the runs say "< 0.2"',
        ),
        (
            "paper2000/verdicts.json",
            replaced('"holds": "no"', '"holds": "yes"'),
            'P2, holds: written is "yes", the runs say "no"',
        ),
        ("paper2000/verdicts.json", Path.unlink, "paper2000/verdicts.json is missing"),
        (RUN, flip_last_byte, f"{RUN} is not the file that was kept"),
        (RUN, Path.unlink, f"{RUN} is missing"),
        (FIGURE, flip_last_byte, f"{FIGURE} is not the figure that was drawn"),
        (FIGURE, Path.unlink, f"{FIGURE} is missing"),
        (
            "../README.md",
            replaced("| yes |", "| YES |"),
            "README.md: the table of results is not the one that the verdicts give",
        ),
        (
            "../docs/results.md",
            replaced("<!-- results:end -->", ""),
            "results.md has no <!-- results:begin --> and <!-- results:end -->",
        ),
        ("ledger.json", replaced('"due": "yes"', '"due": "no"'), "ledger.json: its runs are not"),
        (
            "ledger.json",
            replaced('"inputs": "', '"inputs": "0'),
            f"{FIGURE} was drawn of other runs than are kept now",
        ),
        (
            "rules.json",
            replaced('"sha256": "', '"sha256": "0'),
            "the rules of P1 (paper2000) have changed since they were judged",
        ),
    ],
)
def test_tampering(results: Path, name: str, act: Callable[[Path], None], sentence: str) -> None:
    act(results / name)
    found = problems(results)
    assert any(sentence in line for line in found), found


def test_files_that_nobody_kept(results: Path) -> None:
    for name in (f"{NAME}/rates/fast/seed-9.zarr.zip", "paper2000/figures/figure-9.png"):
        (results / name).write_bytes(b"made elsewhere")
        assert f"{name} is not in the ledger" in problems(results)


def test_a_rule_that_changed(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rewrite(monkeypatch, TOY, "part < 0.2", "part < 0.3")
    (line,) = problems(results)
    assert line.startswith("the rules of P1 (paper2000), P2 (paper2000), P1 (paper2000/slow-decay)")


def test_a_declaration_that_changed(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = replace(experiment("paper"), runs={"rates/fast": Decay(2.5)})
    monkeypatch.setattr(f"{TOY}.experiment", lambda scale: changed)
    found = problems(results)
    title = f"{NAME}, rates/fast, seed 0"
    assert f"{title} is declared otherwise now (rate: 2.0 -> 2.5); run and keep it again" in found
    assert f"{NAME}, rates/slow, seed 2 is no longer declared" in found


def test_more_is_due(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = (*PROGRAM, Batch(NAME, (3,)))
    monkeypatch.setattr("rankscope.lab.results.program.PROGRAM", program)
    (line,) = problems(results)
    assert line.startswith("ledger.json: its runs are not those that are due")


def test_a_folder_without_a_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_toys(monkeypatch)
    with pytest.raises(ValueError, match=r"has no ledger.json; rankscope results keep makes one"):
        problems(tmp_path)


def test_numbers_may_differ_by_rounding() -> None:
    stored = {"value": 0.1, "rows": [["fast", 3, None, True]]}
    assert not [*disagreements(stored, {**stored, "value": 0.1 * (1 + 1e-9)})]
    assert [*disagreements(stored, {**stored, "value": 0.10001})] == [("value", 0.1, 0.10001)]
    other = {**stored, "rows": [["fast", 3, 0.0, True]]}
    assert [*disagreements(stored, other)] == [("rows[0][2]", None, 0.0)]
    assert [*disagreements(stored, {**stored, "rows": []})] == [("rows", stored["rows"], [])]
    assert [*disagreements({"met": True}, {"met": False})] == [("met", True, False)]
