import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from lab.toy_experiments.paper2000.slow_decay import experiment, loss_over_time, losses_fall
from lab.toy_runs import Decay
from rankscope.lab.experiment import Experiment
from rankscope.lab.paper import Paper
from rankscope.lab.placement import Placement
from rankscope.lab.reproduction import pool, rebuild, reproduce

FAST = replace(
    experiment("small"),
    name="paper2000/a",
    runs={"fast/run": Decay(rate=2.0)},
    expected_seconds=30,
)
SLOW = replace(FAST, name="paper2000/b", runs={"slow/run": Decay(rate=1.0)}, expected_seconds=60)


def joint(*experiments: Experiment) -> Paper:
    claims, figures = {"P1": losses_fall}, {"figure-1": loss_over_time}
    return Paper("paper2000", "Decay", "small", experiments, claims=claims, figures=figures)


def stores(out: Path) -> dict[str, int]:
    """When each store was last written, to the nanosecond."""
    return {str(p): p.stat().st_mtime_ns for p in sorted(out.glob("**/seed-*/zarr.json"))}


def test_the_longest_runs_come_first_and_names_tell_them_apart(tmp_path: Path) -> None:
    same = replace(SLOW, name="paper2000/c", runs=FAST.runs, expected_seconds=None)
    wanted = pool([FAST, SLOW, same], tmp_path, Placement(), seeds=(7,))
    assert [run.title for run in wanted] == [
        "slow/run, seed 7",
        "paper2000/a/fast/run, seed 7",
        "paper2000/c/fast/run, seed 7",
    ]
    assert wanted[1].path == tmp_path / "paper2000/a/small/fast/run/seed-7"


def test_all_networks_are_judged_together_and_nothing_is_run_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    papers, folder = (joint(FAST, SLOW),), tmp_path / "report"
    assert reproduce(papers, tmp_path, folder, command="again", jobs=1)
    first = capsys.readouterr()
    assert re.search(r"P1 +the loss falls +yes", first.out)
    assert first.out.endswith(f"Report: {folder / 'index.html'}\n")
    written, page = stores(tmp_path), (folder / "index.html").read_text()
    assert len(written) == 6
    assert reproduce(papers, tmp_path, folder, command="again", jobs=1)
    again = capsys.readouterr()
    assert stores(tmp_path) == written and "6 of 6 runs are there already" in again.err
    assert again.out == first.out
    drawn = (folder / "figures/paper2000/figure-1.svg").read_bytes()
    time.sleep(1)  # the date within an SVG is one in seconds
    assert rebuild(papers, tmp_path, folder, command="again")
    assert (folder / "figures/paper2000/figure-1.svg").read_bytes() != drawn
    assert (folder / "index.html").read_text() == page
    assert stores(tmp_path) == written


def test_a_failed_run_costs_its_network_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = replace(SLOW, runs={"slow/run": Decay(fails=(0, 1, 2))})
    assert not reproduce((joint(FAST, broken),), tmp_path, tmp_path / "r", command="", jobs=1)
    printed = capsys.readouterr()
    assert "failed: slow/run, seed 0 and 2 more; see" in printed.err
    assert re.search(r"P1 +the loss falls +undecided", printed.out)
    page = (tmp_path / "r" / "index.html").read_text()
    assert "without slow: failed (ArithmeticError: the loss is not a number)" in page
    assert "fast/run <span class='verdict yes'>" in page


def test_a_report_of_a_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Only one network was run, and of that one seed."""
    folder = tmp_path / "r"
    reproduce((joint(FAST),), tmp_path, folder, command="", seeds=(1,), jobs=1)
    other = Paper("paper2001", "", "small", ())
    assert rebuild((joint(FAST, SLOW), other), tmp_path, folder, command="")
    page = (folder / "index.html").read_text()
    assert "without slow: was not run" in page and "paper2001" not in page
    assert "undecided with fewer than the 3 seeds that it takes" in page
    assert capsys.readouterr().err.count("runs") == 1  # the bar of the first command


def test_a_report_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no runs of paper2000 at scale small"):
        rebuild((joint(FAST),), tmp_path, tmp_path / "r", command="")


def test_a_mistake_in_a_figure_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def blank(results: object) -> None:
        """Nothing to see."""
        raise ZeroDivisionError("no area")

    paper = replace(joint(FAST), figures={"figure-1": blank})
    assert not reproduce((paper,), tmp_path, tmp_path / "r", command="", jobs=1)
    assert "ZeroDivisionError: no area" in capsys.readouterr().err
    page = (tmp_path / "r" / "index.html").read_text()
    assert "figure-1 could not be drawn: ZeroDivisionError: no area" in page
    assert not rebuild((paper,), tmp_path, tmp_path / "r", command="")
