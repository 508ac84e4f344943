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
from rankscope.lab.kept_run import COMPACTIONS, Compaction
from rankscope.lab.results.checking import problems
from rankscope.lab.results.ledger import Batch, read_ledger, write_ledger


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
            "paper2000/verdicts.json, verdicts[P1].value: written is 0.1",
        ),
        (
            f"{NAME}/verdicts.json",
            replaced('"bound": "< 0.2"', '"bound": "< 0.3"'),
            f'{NAME}/verdicts.json, verdicts[P1].bound: written is "< 0.3", the runs say "< 0.2"',
        ),
        (
            "paper2000/verdicts.json",
            replaced('"holds": "no"', '"holds": "yes"'),
            'verdicts[P2].holds: written is "yes", the runs say "no"',
        ),
        ("paper2000/verdicts.json", Path.unlink, "paper2000/verdicts.json is missing"),
        (RUN, flip_last_byte, f"{RUN} is not the file that was kept"),
        (RUN, Path.unlink, f"{RUN} is missing"),
        (FIGURE, flip_last_byte, f"{FIGURE} is not the figure that was drawn"),
        (FIGURE, Path.unlink, f"{FIGURE} is missing"),
        (
            "../README.md",
            replaced("| yes |", "| YES |"),
            "README.md: the table of claims is not what the verdicts give",
        ),
        (
            "../docs/results.md",
            replaced("<!-- runs:end -->", ""),
            "results.md has no <!-- runs:begin --> and <!-- runs:end -->",
        ),
        ("../docs/results.md", Path.unlink, "results.md has no <!-- results:begin -->"),
        (
            "paper2000/verdicts.json",
            replaced('"scale": "paper"', '"scale": "small"'),
            'verdicts.json, scale: written is "small", the runs say "paper"',
        ),
        (
            "ledger.json",
            replaced('"device": "', '"device": "a better '),
            f"{RUN} says otherwise where it comes from than the ledger",
        ),
        ("ledger.json", replaced('"due": "yes"', '"due": "no"'), "ledger.json: its runs are not"),
        (
            "ledger.json",
            replaced('"inputs": "', '"inputs": "0'),
            f"{FIGURE} was drawn of other runs than are kept now",
        ),
        (
            "ledger.json",
            replaced('"code": "', '"code": "0'),
            f"{FIGURE} was drawn by other code than there is now",
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


def test_nothing_is_made_of_files_that_are_not_as_they_were(results: Path) -> None:
    """One fault, one finding: tables made of other files would differ too."""
    path = results / RUN
    path.write_bytes(path.read_bytes()[:-30])
    (results.parent / "README.md").write_text("No tables.")
    first, second = problems(results)
    assert first.startswith(f"{RUN} is not the file that was kept")
    assert second.startswith("verdicts and tables were not made again")


def test_files_that_nobody_kept(results: Path) -> None:
    names = (f"{NAME}/rates/fast/seed-9.zarr.zip", "paper2000/figures/figure-9.png", "notes.txt")
    for name in names:
        (results / name).write_bytes(b"made elsewhere")
    (results / "report-paper").mkdir()
    (results / "report-paper/index.html").write_text("a report is no result")
    found = problems(results)
    assert {f"{name} is not in the ledger" for name in names} <= {*found} and len(found) == 4


def test_two_files_that_changed_places(results: Path) -> None:
    """The ledger with them; what they are says each file itself."""
    fast, slow = (results / f"{NAME}/rates/{rate}/seed-0.zarr.zip" for rate in ("fast", "slow"))
    one, two = fast.read_bytes(), slow.read_bytes()
    fast.write_bytes(two), slow.write_bytes(one)
    ledger = read_ledger(results)
    keys = [(NAME, f"rates/{rate}", 0) for rate in ("fast", "slow")]
    done = dict(zip(keys, (ledger.done[keys[1]], ledger.done[keys[0]]), strict=True))
    write_ledger(replace(ledger, done={**ledger.done, **done}), results)
    assert any(
        f"{RUN} is not of that run as it is declared now (rate: 1.0 -> 2.0)" in e
        for e in problems(results)
    )


def test_a_file_that_was_compacted_otherwise(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(COMPACTIONS, NAME, Compaction(bits={"loss": 3}))
    assert f"{RUN} was compacted otherwise than is declared; keep the run again" in problems(
        results
    )


@pytest.mark.parametrize("forgotten", [True, False])
def test_a_figure_that_could_be_there(results: Path, forgotten: bool) -> None:
    ledger = read_ledger(results)
    (results / FIGURE).unlink()
    figures = {**ledger.figures, FIGURE: replace(ledger.figures[FIGURE], sha256="")}
    if forgotten:
        del figures[FIGURE]
    write_ledger(replace(ledger, figures=figures), results)
    (line,) = problems(results)
    assert line == (
        f"{FIGURE} is a figure that the ledger does not know; keep it again"
        if forgotten
        else f"{FIGURE} can be drawn, and is not there; keep it again"
    )


def test_a_rule_that_changed(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here figures are drawn by the same module."""
    rewrite(monkeypatch, TOY, "part < 0.2", "part < 0.3")
    line, *figures = problems(results)
    assert line.startswith("the rules of P1 (paper2000), P2 (paper2000), P1 (paper2000/slow-decay)")
    assert all("was drawn by other code" in each for each in figures) and len(figures) == 2


def test_a_declaration_that_changed(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = replace(experiment("paper"), runs={"rates/fast": Decay(2.5)})
    monkeypatch.setattr(f"{TOY}.experiment", lambda scale: changed)
    found = problems(results)
    why = "is not of that run as it is declared now (rate: 2.0 -> 2.5); run and keep it again"
    assert f"{RUN} {why}" in found
    gone = f"{NAME}/rates/slow/seed-2.zarr.zip"
    assert f"{gone} is of a run that is no longer declared" in found


def test_more_is_due(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = (*PROGRAM, Batch(NAME, (3,)))
    monkeypatch.setattr("rankscope.lab.results.ledger.PROGRAM", program)
    (line,) = problems(results)
    assert line.startswith("ledger.json: its runs are not those that are due")


def test_a_folder_without_a_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_toys(monkeypatch)
    with pytest.raises(ValueError, match=r"has no ledger.json; rankscope results keep makes one"):
        problems(tmp_path)


def test_a_file_that_was_cut_short_is_named(results: Path) -> None:
    path = results / "paper2000/verdicts.json"
    path.write_text(path.read_text()[:100])
    with pytest.raises(ValueError, match=r"paper2000/verdicts.json is not whole .*; restore it"):
        problems(results)
