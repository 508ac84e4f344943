"""A folder in which a toy paper's runs were made and kept, for tests of what comes after."""

from pathlib import Path

import pytest

from lab.toy_experiments.paper2000.slow_decay import experiment
from lab.toy_runs import Log
from rankscope.lab.execution import execute
from rankscope.lab.results.keeping import keep
from rankscope.lab.results.ledger import Batch
from rankscope.lab.stored_run import stored_runs
from rankscope.lab.verdict import Outcome, Verdict, judge

NAME = "paper2000/slow-decay"
PROGRAM = (Batch(NAME, (0,)), Batch(NAME, (1, 2), optional=True))
MARKERS = "".join(
    f"<!-- {name}:begin -->\n<!-- {name}:end -->\n"
    for name in ("claims", "results", "ends", "runs")
)
DOCUMENT = f"Before.\n{MARKERS}After.\n"


def use_toys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy paper in place of the real ones, and its runs as what is due."""
    monkeypatch.setattr("rankscope.lab.catalogue.PACKAGE", "lab.toy_experiments")
    monkeypatch.setattr("rankscope.lab.catalogue.PAPERS", "lab.toy_papers")
    monkeypatch.setattr("rankscope.lab.results.ledger.PROGRAM", PROGRAM)


def make(runs: Path, *seeds: int) -> None:
    """The toy experiment's runs of the paper's size."""
    wanted = stored_runs(experiment("paper"), runs, seeds=seeds)
    assert not any(ended.failure for ended in execute(wanted, jobs=1, watcher=Log()))


def kept(folder: Path, *seeds: int) -> Path:
    """Results of these seeds, beside documents that show them."""
    (folder / "docs").mkdir(exist_ok=True)
    for name in ("README.md", "docs/results.md"):
        (folder / name).write_text(DOCUMENT)
    make(folder / "runs", *seeds)
    assert keep(folder / "runs", folder / "results")
    return folder / "results"


def content(results: Path) -> dict[str, bytes]:
    """Every file of the results and the documents beside them."""
    files = [*results.rglob("*"), *results.parent.glob("*.md"), *results.parent.glob("docs/*.md")]
    beside = results.parent
    return {p.relative_to(beside).as_posix(): p.read_bytes() for p in files if p.is_file()}


def verdict(claim: str, **networks: dict[int, Outcome]) -> Verdict:
    return judge(claim, "", networks, bound="< 1", quantity="width")


def seeds(*values: float) -> dict[int, Outcome]:
    return {seed: (value, value < 1) for seed, value in enumerate(values)}
