import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lab.toy_runs import Decay, Log
from lab.toy_study import FALLS, FAST, experiment
from rankscope.lab.archive.archived_files import is_archive
from rankscope.lab.archive.check import problems
from rankscope.lab.archive.compaction import Compaction
from rankscope.lab.archive.documents import archive_table
from rankscope.lab.archive.keep import keep
from rankscope.lab.experiment import Study, study_of
from rankscope.lab.judging.rule import Measured
from rankscope.lab.judging.selected_runs import runs_of
from rankscope.lab.judging.study import read_json, write_json
from rankscope.lab.reporting.markdown import NO_BREAK
from rankscope.lab.running.processes import execute
from rankscope.lab.running.stored_run import stored_runs
from rankscope.store import open as open_run

FILE = "paper2000/slow-decay/fast/rate-2/seed-0.zarr.zip"
VERDICTS = "paper2000/slow-decay/verdicts.json"
MARKS = f"fast{NO_BREAK}✔ · slow{NO_BREAK}✔"


def toy(**changes) -> Study:
    return study_of(replace(experiment("paper"), **changes))


def run(out: Path, study: Study, seeds: tuple[int, ...] = (0, 1, 2)) -> Path:
    for declared in study.experiments:
        execute(stored_runs(declared, out, seeds=seeds), jobs=1, watcher=Log())
    return out


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    runs = run(tmp_path / "runs", toy())
    (tmp_path / "README.md").write_text("# Toy\n<!-- begin: claims -->\n<!-- end: claims -->\n")
    assert keep(runs, tmp_path / "results", studies=(toy(),))
    return tmp_path / "results"


def test_whole_runs_become_files_verdicts_and_tables(archive: Path) -> None:
    assert is_archive(archive) and len(list(archive.rglob("*.zarr.zip"))) == 6
    ds = open_run(archive / FILE)
    assert ds.attrs["whole"] and ds.attrs["compaction"] and ds.attrs["wall_seconds"] >= 0
    words = [n["verdict"] for v in read_json(archive / VERDICTS)["verdicts"] for n in v["networks"]]
    assert words == ["holds", "holds", "fails"]
    assert f"| P1 the loss falls | {MARKS} |" in (archive.parent / "README.md").read_text()
    assert problems(archive, studies=(toy(),)) == []


def test_the_archive_lists_runs_and_cost(archive: Path) -> None:
    _, (row,) = archive_table([toy()], archive)
    assert row[:3] == ("paper2000/slow-decay", "6", "0, 1, 2")


def test_keeping_again_changes_nothing(archive: Path) -> None:
    before = {path: path.read_bytes() for path in archive.rglob("*") if path.is_file()}
    assert keep(archive.parent / "runs", archive, studies=(toy(),))
    assert keep(archive, archive, studies=(toy(),))
    assert {path: path.read_bytes() for path in archive.rglob("*") if path.is_file()} == before


def test_pages_name_what_a_seed_lacks(tmp_path: Path) -> None:
    runs = run(tmp_path / "runs", toy())
    (gone,) = runs.glob("paper2000/slow-decay/paper/fast/*/seed-2")
    shutil.rmtree(gone)
    page = tmp_path / "docs/papers/paper2000/slow-decay.md"
    page.parent.mkdir(parents=True)
    page.write_text("# Toy\n<!-- begin: claim P1 -->\n<!-- end: claim P1 -->\n")
    assert keep(runs, tmp_path / "results", studies=(toy(),))
    assert "Fast, seed 2, at rate 2 was not run." in page.read_text()
    assert problems(tmp_path / "results", studies=(toy(),)) == []


def own_study() -> Study:
    """A study of our own; its second experiment has never been run."""
    first, second = (
        replace(experiment("paper"), name=f"beyond/{name}", claims=(), figures=())
        for name in ("first", "second")
    )
    claims = tuple(
        replace(FALLS, claim=claim, needs=runs_of(experiment=part.name), ours=True)
        for claim, part in (("Q1", first), ("Q2", second))
    )
    return Study("beyond", "Beyond", "paper", (first, second), claims=claims, ours=True)


def test_claims_of_our_own_study_stand_there_before_their_runs(tmp_path: Path) -> None:
    runs = run(tmp_path / "runs", toy())
    pages = tmp_path / "docs/beyond"
    pages.mkdir(parents=True)
    for claim, name in (("Q1", "first"), ("Q2", "second")):
        text = f"<!-- begin: claim {claim} -->\n<!-- end: claim {claim} -->\n"
        (pages / f"{name}.md").write_text(text)
    readme = tmp_path / "README.md"
    readme.write_text("<!-- begin: claims -->\n<!-- end: claims -->\n")
    studies, archive = (toy(), own_study()), tmp_path / "results"
    assert keep(runs, archive, studies=studies)
    assert "Q1" not in readme.read_text() and "Q2" not in readme.read_text()
    assert "| fast | – no data |" in (pages / "first.md").read_text()
    assert problems(archive, studies=studies) == []
    run(tmp_path / "runs", replace(own_study(), experiments=own_study().experiments[:1]))
    assert keep(tmp_path / "runs", archive, studies=studies)
    assert "✔ holds (3 seeds)" in (pages / "first.md").read_text()
    assert f"| Q1 the loss falls | {MARKS} | [evidence](docs/beyond/first.md#q1) |" in (
        readme.read_text()
    )
    assert "✔" not in (pages / "second.md").read_text()
    assert "Missing" not in (pages / "second.md").read_text()
    assert problems(archive, studies=studies) == []
    (archive / "beyond/verdicts.json").unlink()
    assert any(
        "beyond/verdicts.json is missing" in line for line in problems(archive, studies=studies)
    )


def test_an_image_appears_on_a_page_with_the_runs_of_its_figure(tmp_path: Path) -> None:
    first, second = own_study().experiments
    (drawn,) = experiment("paper").figures
    figures = tuple(
        replace(drawn, name=part.name.partition("/")[2], needs=runs_of(experiment=part.name))
        for part in (first, second)
    )
    study, archive = replace(own_study(), figures=figures), tmp_path / "results"
    page = tmp_path / "docs/beyond/first.md"
    page.parent.mkdir(parents=True)
    page.write_text(
        "".join(
            f"<!-- begin: figure {name} -->\nNot run.\n<!-- end: figure {name} -->\n"
            for name in ("first", "second")
        )
    )
    for part, shown in ((first, ["first"]), (second, ["first", "second"])):
        runs = run(tmp_path / "runs", replace(study, experiments=(part,)))
        assert keep(runs, archive, studies=(study,))
        text = page.read_text()
        for name in shown:
            assert f"](../papers/figures/beyond/{name}.png)" in text
            assert (tmp_path / f"docs/papers/figures/beyond/{name}.png").exists()
        assert text.count("Not run.") == 2 - len(shown)
        assert problems(archive, studies=(study,)) == []


def test_more_seeds_than_declared_are_kept_from_another_archive(archive: Path) -> None:
    elsewhere = archive.parent / "elsewhere"
    runs = run(archive.parent / "more", toy(), seeds=(3, 11))
    assert keep(runs, elsewhere / "results", studies=(toy(),))
    (elsewhere / "results" / "ledger.json").write_text("{}")  # an older version's; it is ignored
    assert keep(elsewhere / "results", archive, studies=(toy(),))
    seeds = [
        s["seed"] for s in read_json(archive / VERDICTS)["verdicts"][1]["networks"][0]["seeds"]
    ]
    assert seeds == [0, 1, 2, 3, 11]


def test_a_file_that_says_something_else_than_its_run_is_refused(tmp_path: Path) -> None:
    runs = run(tmp_path / "runs", toy())
    coarse = toy(compaction=Compaction(bits={"loss": 1}))

    def measure(whole):
        for key in whole:
            for seed, ds in whole[key].items():
                one_bit = np.frexp(float(ds["loss"][1]))[0] in (0.5, 0.75)
                yield Measured(met=one_bit).at(key, seed)

    study = replace(coarse, claims=(replace(coarse.claims[0], measure=measure),))
    with pytest.raises(
        ValueError, match="the run says False, its archived file True; declare more"
    ):
        keep(runs, tmp_path / "results", studies=(study,))
    assert not (tmp_path / "results").exists()


def test_a_run_declared_differently_is_refused_by_name(archive: Path, tmp_path: Path) -> None:
    changed = toy(runs={FAST: Decay(rate=3.0)})
    assert not keep(archive.parent / "runs", tmp_path / "other", studies=(changed,))
    lines = problems(archive, studies=(changed,))
    assert any("rate: 2.0 -> 3.0" in line for line in lines)
    assert any("belongs to no declared run" in line for line in lines)


def test_nothing_to_keep_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a folder"):
        keep(tmp_path / "none", tmp_path / "results", studies=(toy(),))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="has no whole run of scale paper"):
        keep(tmp_path / "empty", tmp_path / "results", studies=(toy(),))
    with pytest.raises(ValueError, match="has no archived runs"):
        problems(tmp_path / "empty", studies=(toy(),))


def test_check_compares_numbers_and_not_sentences(archive: Path) -> None:
    content = read_json(archive / VERDICTS)
    content["verdicts"][0]["sentence"] = "other words"
    content["verdicts"][0]["networks"][0]["seeds"][0]["value"] *= 1 + 1e-6
    write_json(content, archive / VERDICTS)
    assert problems(archive, studies=(toy(),)) == []
    content["verdicts"][0]["networks"][0]["seeds"][0]["value"] *= 1.01
    write_json(content, archive / VERDICTS)
    (line,) = problems(archive, studies=(toy(),))
    assert "P1, paper2000/slow-decay, fast, seed 0: stored is" in line


def test_check_finds_stale_tables_and_other_compactions(archive: Path) -> None:
    readme = archive.parent / "README.md"
    readme.write_text(readme.read_text().replace("✔", "✘"))
    assert problems(archive, studies=(toy(),)) == [
        f"README.md: its tables are out of date; run rankscope results keep {archive}"
    ]
    other = toy(compaction=Compaction(bits={"loss": 20}))
    assert "compacted by another declaration" in problems(archive, studies=(other,))[0]


def test_an_experiment_without_archived_runs_has_no_marks(archive: Path) -> None:
    declared = experiment("paper")
    other = replace(declared, name="paper2000/other")
    study = replace(toy(), experiments=(declared, other))
    assert keep(archive, archive, studies=(study,))
    assert f"| P1 the loss falls | {MARKS} |" in (archive.parent / "README.md").read_text()
    assert problems(archive, studies=(study,)) == []
