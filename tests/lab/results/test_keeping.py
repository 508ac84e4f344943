import json
from dataclasses import replace
from pathlib import Path

import pytest
import xarray as xr

from lab.results.test_rules import TOY, rewrite
from lab.results.toy_results import NAME, content, kept, make, use_toys
from lab.toy_experiments.paper2000.slow_decay import experiment
from lab.toy_runs import Decay
from rankscope import store
from rankscope.lab.results.archive import archive_path, open_archive
from rankscope.lab.results.checking import problems
from rankscope.lab.results.compaction import Compaction, compact
from rankscope.lab.results.keeping import keep
from rankscope.lab.results.ledger import read_ledger
from rankscope.lab.stored_run import stored_runs


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    use_toys(monkeypatch)


def test_what_is_kept(tmp_path: Path) -> None:
    results = kept(tmp_path, 0)
    assert sorted(content(results)) == [
        "README.md",
        "docs/results.md",
        "results/ledger.json",
        "results/paper2000/figures/figure-1.png",
        "results/paper2000/slow-decay/figures/figure-1.png",
        "results/paper2000/slow-decay/rates/fast/seed-0.zarr.zip",
        "results/paper2000/slow-decay/rates/slow/seed-0.zarr.zip",
        "results/paper2000/slow-decay/verdicts.json",
        "results/paper2000/verdicts.json",
        "results/rules.json",
    ]
    assert str(tmp_path).encode() not in b"".join(content(results).values())
    found = open_archive(results / NAME / "rates/fast/seed-0.zarr.zip")
    whole = store.open(tmp_path / "runs" / NAME / "paper/rates/fast/seed-0")
    xr.testing.assert_equal(found, whole.load())
    verdicts = json.loads((results / "paper2000/verdicts.json").read_text())["verdicts"]
    assert [verdict["holds"] for verdict in verdicts] == ["undecided", "undecided"]


def test_the_ledger(tmp_path: Path) -> None:
    runs = json.loads((kept(tmp_path, 0) / "ledger.json").read_text())["runs"]
    assert [(run["run"], run["seed"], run["due"], bool(run["done"])) for run in runs] == [
        ("rates/fast", 0, "yes", True),
        ("rates/slow", 0, "yes", True),
        ("rates/fast", 1, "optional", False),
        ("rates/slow", 1, "optional", False),
        ("rates/fast", 2, "optional", False),
        ("rates/slow", 2, "optional", False),
    ]
    assert runs[3]["command"] == f"rankscope run {NAME} --scale paper --seed 1"
    attrs = store.open(tmp_path / "runs" / NAME / "paper/rates/fast/seed-0").attrs
    done = runs[0]["done"]
    assert (done["identity"], done["device"]) == (attrs["identity"], attrs["device"])
    assert (done["started"], done["stride"], done["speed"]) == (attrs["started"], 1, "")


def test_keeping_again_changes_nothing(tmp_path: Path) -> None:
    results = kept(tmp_path, 0)
    before = content(results)
    assert keep(tmp_path / "runs", results)
    assert content(results) == before
    assert keep(tmp_path / "nothing", results)  # runs that were kept need not stay
    assert content(results) == before


def test_another_seed_rewrites_no_run(tmp_path: Path) -> None:
    results = kept(tmp_path, 0)
    before = content(results)
    make(tmp_path / "more", 1, 2)
    assert keep(tmp_path / "more", results)
    after = content(results)
    assert (
        {name for name in after if name.endswith(".zip")}
        > {name for name in before if name.endswith(".zip") and after[name] == before[name]}
        == {name for name in before if name.endswith(".zip")}
    )
    verdicts = json.loads(after["results/paper2000/verdicts.json"])["verdicts"]
    assert [verdict["holds"] for verdict in verdicts] == ["yes", "no"]
    name = "results/paper2000/figures/figure-1.png"
    assert after[name] != before[name]  # three seeds are drawn
    assert b"| yes |" in after["README.md"] and b"| yes |" not in before["README.md"]


def test_runs_of_another_declaration_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    results = kept(tmp_path, 0)
    before = content(results)
    make(tmp_path / "more", 1)
    changed = replace(experiment("paper"), runs={"rates/fast": Decay(3.0), "rates/slow": Decay()})
    monkeypatch.setattr(
        "lab.toy_experiments.paper2000.slow_decay.experiment", lambda scale: changed
    )
    assert not keep(tmp_path / "more", results)
    assert (
        "not kept of paper2000/slow-decay: each was run as it was declared before "
        "(rate: 2.0 -> 3.0): rates/fast, seed 1"
    ) in " ".join(capsys.readouterr().err.split())
    assert set(content(results)) - set(before) == {
        "results/paper2000/slow-decay/rates/slow/seed-1.zarr.zip"
    }


def test_a_changed_rule_needs_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = kept(tmp_path, 0)
    before = content(results)
    rewrite(monkeypatch, TOY, "part < 0.2", "part < 0.3")
    with pytest.raises(ValueError, match=r"rules of P1 \(paper2000\), P2 .*--new-rules 'why'"):
        keep(tmp_path / "runs", results)
    assert content(results) == before
    assert keep(tmp_path / "runs", results, new_rules="a fifth was a misprint")
    history = json.loads((results / "rules.json").read_text())["history"]
    assert [entry["reason"] for entry in history] == ["a fifth was a misprint"]
    assert keep(tmp_path / "runs", results)


def test_verdicts_that_differ_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here compaction spoils the loss on purpose."""
    make(tmp_path / "runs", 0)

    def spoilt(ds: xr.Dataset, how: Compaction) -> xr.Dataset:
        return compact(ds, how).assign(loss=ds["loss"] * 0 + 1)

    monkeypatch.setattr("rankscope.lab.results.intake.compact", spoilt)
    assert not keep(tmp_path / "runs", tmp_path / "results")
    said = "P1, rates/fast, seed 0: met by whole runs, not met by kept ones"
    assert f"VERDICTS DIFFER. paper2000: {said}" in " ".join(capsys.readouterr().err.split())
    assert said in read_ledger(tmp_path / "results").thinning["paper2000"]


def test_too_large_for_all_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "runs", 0)
    monkeypatch.setattr("rankscope.lab.results.intake.LIMIT", 1_000)
    with pytest.raises(ValueError, match=r"all seeds of paper2000/slow-decay will take 0.0 MB"):
        keep(tmp_path / "runs", tmp_path / "results")


def test_results_of_another_machine_are_taken_over(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir(), there.mkdir()
    results, other = kept(here, 0), kept(there, 1)
    assert keep(other, results)
    of_seed_1 = archive_path(results, NAME, "rates/fast", 1)
    assert of_seed_1.read_bytes() == archive_path(other, NAME, "rates/fast", 1).read_bytes()
    assert {key[2] for key in read_ledger(results).done} == {0, 1}
    assert not problems(results)


def test_results_are_not_kept_where_they_are(tmp_path: Path) -> None:
    results = kept(tmp_path, 0)
    with pytest.raises(ValueError, match="give the folder that they are from"):
        keep(results, results)
    (run, *_) = stored_runs(experiment("paper"), results)
    assert run.kept and run.state == "whole"
    with pytest.raises(ValueError, match="is where results are kept; choose another --out"):
        run.begin()
