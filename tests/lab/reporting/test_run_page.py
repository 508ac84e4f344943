from pathlib import Path

import pytest
import torch
from torch import nn

import rankscope as rs
from rankscope.lab.commands import report_on_runs, short_titles
from rankscope.lab.reporting.run_page import run_facts, write_run_page


def tracked(path: Path) -> Path:
    net = nn.Sequential(nn.MultiheadAttention(8, 2), nn.Linear(8, 5))
    with rs.Tracker(net, path, schedule=[0, 2]) as tracker:
        for step in range(3):
            tracker.observe(step, loss=1.0 / (step + 1))
            with torch.no_grad():
                net[1].weight[0] += 1
    return path


def test_a_page_shows_ranks_heads_alignments_and_tables(tmp_path: Path) -> None:
    ds = rs.open(tracked(tmp_path / "<first>"))
    text = write_run_page({"<first>": ds}, tmp_path / "page.html", command="make").read_text()
    assert text.count("<img ") == 6 and "<h1>&lt;first&gt;</h1>" in text
    for words in (
        "What moved most",
        "All matrices at the last snapshot",
        "tail exponent",
        "of each head",
    ):
        assert words in text
    assert "Side by side" not in text and "out x in" in text


def test_several_runs_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [tracked(tmp_path / name / "run") for name in ("a", "b")]
    path = report_on_runs(runs, None, command="rankscope report a b")
    assert path == tmp_path / "a" / "run-and-run.html" and str(path) in capsys.readouterr().out
    text = path.read_text()
    assert "Side by side" in text and "<h2>a/run</h2>" in text and "<h2>b/run</h2>" in text


def test_titles_tell_runs_apart() -> None:
    assert short_titles([Path("/x/a"), Path("/x/b")]) == ["a", "b"]
    with pytest.raises(ValueError, match="twice"):
        short_titles([Path("/x/a"), Path("/x/a")])


def test_facts(tmp_path: Path) -> None:
    snapshots, values, cost, beside = run_facts(rs.open(tracked(tmp_path / "run")))
    assert snapshots == "2 snapshots, from step 0 to step 2."
    assert values == "Last values: loss 0.333." and "training waited" in cost
    assert "beside training; copies held" in beside and beside.endswith("MiB.")
