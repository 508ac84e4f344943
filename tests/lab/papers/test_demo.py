import json
from pathlib import Path

import pytest

from rankscope.lab import demo as module
from rankscope.lab.catalogue import load_paper
from rankscope.lab.papers.demo import RUNS, demo, demo_papers
from rankscope.lab.reproduction import chosen, report_folder, reproduce


def test_the_runs_of_the_demo_are_runs_of_the_papers() -> None:
    for paper in demo_papers("small"):
        whole = {each.name: each for each in load_paper(paper.name, "small").experiments}
        assert {each.name for each in paper.experiments} == set(RUNS[paper.name])
        for cut in paper.experiments:
            assert cut.seeds == (0,)
            assert cut.runs.items() <= whole[cut.name].runs.items()


def test_the_demo_has_no_figures_of_networks_that_it_does_not_run() -> None:
    (yunis,) = (paper for paper in demo_papers("small") if paper.name == "yunis2024")
    whole = set(load_paper("yunis2024", "small").figures)
    assert whole - set(yunis.figures) == {"figure-7", "grokking", "samples"}


def test_reproduce_goes_on_from_the_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("rankscope.lab.catalogue.PACKAGE", "lab.toy_experiments")
    monkeypatch.setattr("rankscope.lab.catalogue.PAPERS", "lab.toy_papers")
    monkeypatch.setattr(module, "RUNS", {"paper2000": {"paper2000/slow-decay": ("rates/slow",)}})
    assert demo(tmp_path, jobs=1)
    printed = capsys.readouterr()
    page = tmp_path / "demo" / "index.html"
    assert printed.out.splitlines()[-1] == f"Report: {page}"
    assert "Verdicts take three seeds" in page.read_text()
    verdicts = json.loads((tmp_path / "demo" / "verdicts.json").read_text())["verdicts"]
    assert [verdict["holds"] for verdict in verdicts] == ["undecided", "undecided"]
    assert verdicts[0]["value"] == pytest.approx(2.718281828**-3)  # exp(-rate (steps - 1))
    assert verdicts[1]["evidence"] == ["could not be judged: rates/fast was not run"]
    papers = chosen(None, "small")
    folder = report_folder(None, "small", tmp_path)
    assert reproduce(papers, tmp_path, folder, command="rankscope reproduce", jobs=1)
    assert "1 of 6 runs are there already" in capsys.readouterr().err
