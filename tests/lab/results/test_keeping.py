import json
from dataclasses import replace
from pathlib import Path

import pytest
import xarray as xr
from matplotlib.figure import Figure

from lab.results.test_rules import TOY, rewrite
from lab.results.toy_results import NAME, content, kept, make, use_toys
from lab.toy_experiments.paper2000.slow_decay import experiment
from lab.toy_runs import Decay
from rankscope import store
from rankscope.lab.findings import Findings, Subject
from rankscope.lab.kept_run import Compaction, compact, kept_path
from rankscope.lab.results.checking import problems
from rankscope.lab.results.judging import Shelves, judge_subject
from rankscope.lab.results.keeping import keep
from rankscope.lab.results.ledger import read_ledger
from rankscope.lab.stored_run import stored_runs
from rankscope.store.archive import open_archive

FIGURE_CODE = ("figure = Figure()", "figure = Figure(dpi=100)")


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
    assert (done["started"], done["speed"]) == (attrs["started"], "")


def test_keeping_again_changes_nothing(tmp_path: Path) -> None:
    results = kept(tmp_path, 0)
    before = content(results)
    assert keep(tmp_path / "runs", results)
    assert content(results) == before
    assert keep(results, results)  # runs that were kept need not stay
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
    (rule, *_) = rules_of(results)
    rewrite(monkeypatch, TOY, "part < 0.2", "part < 0.3")
    with pytest.raises(ValueError, match=r"^P1 \(paper2000\), P2 .*--new-rules 'why'"):
        keep(tmp_path / "runs", results)
    assert content(results) == before
    assert keep(tmp_path / "runs", results, new_rules="a fifth was a misprint")
    (entry,) = json.loads((results / "rules.json").read_text())["history"]
    assert entry["reason"] == "a fifth was a misprint"
    first = entry["replaced"][0]
    assert (first["of"], first["claim"], first["rule"]) == ("paper2000", "P1", rule)
    assert (first["holds"], first["bound"]) == ("undecided", "< 0.2") and first["value"] < 0.2
    assert rules_of(results)[0] != rule
    assert keep(tmp_path / "runs", results)


def test_what_is_kept_is_judged_anew_by_other_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = kept(tmp_path, 0)
    (rule, *_) = rules_of(results)
    rewrite(monkeypatch, TOY, "part < 0.2", "part < 0.3")
    assert keep(results, results, new_rules="a fifth was a misprint")
    assert rules_of(results)[0] != rule and not problems(results)


@pytest.mark.parametrize(
    ("runs", "of_kept", "times"),
    [("runs", False, 1), ("runs", True, 1), ("more", True, 2), ("more", False, 3)],
)
def test_what_is_the_same_is_judged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: str, of_kept: bool, times: int
) -> None:
    """With what is new once more, and by the runs themselves if these are there."""
    results, offered = kept(tmp_path, 0), tmp_path / runs
    make(tmp_path / "more", 1)
    if of_kept:
        offered = tmp_path / "elsewhere"
        assert keep(tmp_path / runs, offered)
    said = list[str]()

    def counted(subject: Subject, shelves: Shelves) -> Findings:
        said.append(subject.name)
        return judge_subject(subject, shelves)

    for module in ("judging", "keeping"):
        monkeypatch.setattr(f"rankscope.lab.results.{module}.judge_subject", counted)
    assert keep(offered, results)
    assert sorted(said) == sorted(times * ["paper2000", NAME])


def rules_of(results: Path) -> list[str]:
    stored = json.loads((results / "rules.json").read_text())["claims"]["paper2000"]
    return [entry["sha256"] for entry in stored.values()]


def test_a_verdict_that_changes_while_files_do_not_needs_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever code does it; here the one that reads the files."""
    results = kept(tmp_path, 0)
    before = content(results)
    make(tmp_path / "more", 1)

    def other(path: Path) -> xr.Dataset:
        return open_archive(path).assign(loss=open_archive(path)["loss"] * 0 + 1)

    monkeypatch.setattr("rankscope.store.reader.open_archive", other)
    with pytest.raises(ValueError, match=r"P1 \(paper2000\).*has changed since it was judged"):
        keep(tmp_path / "more", results)
    assert content(results) == before


def test_a_run_that_was_made_again_replaces_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = kept(tmp_path, 0)
    make(tmp_path / "again", 0)
    path = kept_path(results, NAME, "rates/fast", 0)
    with store.Writer.resume(tmp_path / "again" / NAME / "paper/rates/fast/seed-0") as writer:
        writer.set_attrs({"started": "2030-01-01T00:00:00+00:00"})
    assert keep(tmp_path / "again", results)
    said = " ".join(capsys.readouterr().err.split())
    assert f"{NAME}, rates/fast, seed 0 was made again and is replaced" in said
    assert open_archive(path).attrs["started"] == "2030-01-01T00:00:00+00:00"
    assert not problems(results)


def test_what_is_kept_must_say_what_the_runs_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here compaction spoils the loss on purpose."""
    make(tmp_path / "runs", 0)

    def spoilt(ds: xr.Dataset, how: Compaction) -> xr.Dataset:
        return compact(ds, how).assign(loss=ds["loss"] * 0 + 1)

    monkeypatch.setattr("rankscope.lab.results.keeping.compact", spoilt)
    sentence = "P1, rates/fast, seed 0: met by the runs, not met by what would be kept of them"
    with pytest.raises(ValueError, match=sentence):
        keep(tmp_path / "runs", tmp_path / "results")
    assert not (tmp_path / "results").exists()


def test_too_large_for_all_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "runs", 0)
    monkeypatch.setattr("rankscope.lab.results.keeping.LIMIT", 1_000)
    with pytest.raises(ValueError, match=r"all seeds of paper2000/slow-decay will take 0.0 MB"):
        keep(tmp_path / "runs", tmp_path / "results")
    assert not (tmp_path / "results").exists()


def test_figures_are_drawn_again_by_other_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = kept(tmp_path, 0)
    path = results / "paper2000/figures/figure-1.png"
    before = read_ledger(results).figures["paper2000/figures/figure-1.png"]
    path.write_bytes(b"typed in")
    assert keep(tmp_path / "runs", results)
    assert read_ledger(results).figures["paper2000/figures/figure-1.png"] == before
    rewrite(monkeypatch, TOY, *FIGURE_CODE)
    (line, *_) = [each for each in problems(results) if "figure" in each]
    assert line.endswith("figure-1.png was drawn by other code than there is now; keep it again")
    assert keep(tmp_path / "runs", results, new_rules="the figure is in the claims' module")
    assert not problems(results)
    assert read_ledger(results).figures["paper2000/figures/figure-1.png"].code != before.code


def test_a_figure_whose_code_raises_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(results: object) -> Figure:
        raise ZeroDivisionError("no width")

    changed = replace(experiment("paper"), figures={"figure-1": broken})
    monkeypatch.setattr(f"{TOY}.experiment", lambda scale: changed)
    make(tmp_path / "runs", 0)
    assert not keep(tmp_path / "runs", tmp_path / "results")
    assert "ZeroDivisionError: no width" in capsys.readouterr().err
    assert any("ZeroDivisionError: no width" in line for line in problems(tmp_path / "results"))


def test_results_of_another_machine_are_taken_over(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir(), there.mkdir()
    results, other = kept(here, 0), kept(there, 1)
    assert keep(other, results)
    of_seed_1 = kept_path(results, NAME, "rates/fast", 1)
    assert of_seed_1.read_bytes() == kept_path(other, NAME, "rates/fast", 1).read_bytes()
    assert {key[2] for key in read_ledger(results).done} == {0, 1}
    assert not problems(results)


def test_folders_that_have_nothing_to_keep(tmp_path: Path) -> None:
    results = kept(tmp_path, 0)
    with pytest.raises(ValueError, match="typo is not a folder; give the one in which"):
        keep(tmp_path / "typo", results)
    make(tmp_path / "whole", 1)
    (tmp_path / "nothing").mkdir()
    for folder in ("nothing", "whole/paper2000", "docs"):
        with pytest.raises(ValueError, match=f"{folder} has no whole run of scale paper; give"):
            keep(tmp_path / folder, results)
    with pytest.raises(ValueError, match="nothing has no whole run"):
        keep(tmp_path / "nothing", tmp_path / "nothing")  # nor are results there
    (run, *_) = stored_runs(experiment("paper"), results)
    assert run.kept and run.state == "whole"
    with pytest.raises(ValueError, match="is where results are kept; choose another --out"):
        run.begin()
