import json
from dataclasses import replace
from pathlib import Path

import pytest

from lab.toy_runs import Decay
from lab.toy_study import FAST, SLOW, experiment
from rankscope import store
from rankscope.lab.commands import reproduce, run_experiment
from rankscope.lab.experiment import Study, study_of

TOY = study_of(experiment("small"))
FOLDER = "paper2000/slow-decay/small"
SLOW_FOLDER = f"{FOLDER}/{SLOW.name}"


def with_slow(run: Decay) -> Study:
    (declared,) = TOY.experiments
    return replace(TOY, experiments=(replace(declared, runs={FAST: Decay(rate=2.0), SLOW: run}),))


def written(out: Path) -> list[tuple[str, int]]:
    """When each store was last written, to the nanosecond."""
    return [(str(p.parent), p.stat().st_mtime_ns) for p in sorted(out.glob("**/seed-*/zarr.json"))]


def test_a_whole_experiment_is_run_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_experiment(TOY, tmp_path, jobs=1)
    printed = capsys.readouterr()
    assert "the loss falls" in printed.out and "✔ holds" in printed.out and "✘ fails" in printed.out
    assert "6 of 6 runs" in printed.err and "figure-1.svg" in printed.err
    first = written(tmp_path)
    assert run_experiment(TOY, tmp_path, jobs=1)
    assert written(tmp_path) == first and len(first) == 6
    again = capsys.readouterr()
    assert again.out == printed.out and again.err.startswith("6 of 6 runs are there already.\n")


def test_json_is_all_there_is_on_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_experiment(TOY, tmp_path, seeds=(5, 0), jobs=1, as_json=True)
    shown = json.loads(capsys.readouterr().out)
    assert shown == json.loads((tmp_path / FOLDER / "verdicts.json").read_text())
    (fast,) = shown["verdicts"][1]["networks"]
    assert fast["verdict"] == "fails so far"
    assert [outcome["seed"] for outcome in fast["seeds"]] == [0, 5]
    stores = (tmp_path / FOLDER / FAST.name).iterdir()
    assert sorted(path.name for path in stores) == ["seed-0", "seed-5"]


def test_seeds_run_one_by_one_are_judged_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in (0, 1, 2):
        assert run_experiment(TOY, tmp_path, seeds=(seed,), jobs=1, as_json=True)
    last = json.loads("{" + capsys.readouterr().out.rpartition("\n{\n")[2])
    words = [[n["verdict"] for n in verdict["networks"]] for verdict in last["verdicts"]]
    assert words == [["holds", "holds"], ["fails"]]


def test_failed_runs_are_named_and_the_rest_is_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not run_experiment(with_slow(Decay(fails=(1,))), tmp_path, jobs=1)
    printed = capsys.readouterr()
    file = tmp_path / SLOW_FOLDER / "seed-1.failure.txt"
    assert f"failed: slow-decay: slow, rate 1, seed 1; see {file}" in printed.err
    assert "ArithmeticError: the loss is not a number" in printed.err
    assert "Traceback" in file.read_text()
    assert len(list(tmp_path.glob("**/figures/*"))) == 2
    assert run_experiment(with_slow(Decay(fails=())), tmp_path, jobs=1)
    assert (
        "slow-decay: slow, rate 1, seed 1: failed before "
        "(ArithmeticError: the loss is not a number); starting again\n"
    ) in capsys.readouterr().err


def test_a_changed_declaration_moves_the_earlier_result_aside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_experiment(TOY, tmp_path, seeds=(0,), jobs=1)
    capsys.readouterr()
    assert run_experiment(with_slow(Decay(rate=0.5)), tmp_path, seeds=(0,), jobs=1)
    aside = tmp_path / SLOW_FOLDER / "seed-0.replaced-1"
    assert (
        "slow-decay: slow, rate 1, seed 0 was declared differently before (rate: 1.0 -> 0.5); it "
        f"is run again, and the earlier result moves to {aside}\n"
    ) in capsys.readouterr().err
    assert store.open(aside).attrs["rate"] == 1.0
    assert store.open(tmp_path / SLOW_FOLDER / "seed-0").attrs["rate"] == 0.5


def test_after_an_interruption_the_same_command_continues(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_experiment(with_slow(Decay(interrupted=True)), tmp_path, seeds=(0,), jobs=1)
    printed = capsys.readouterr()
    assert "Stopped. Finished runs stay" in printed.err and printed.out == ""
    assert run_experiment(TOY, tmp_path, seeds=(0,), jobs=1)
    assert capsys.readouterr().err.startswith(
        "1 of 2 runs are there already.\n"
        "slow-decay: slow, rate 1, seed 0: not finished; starting again\n"
    )


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    with pytest.raises(ValueError, match="runs is a file; choose a folder with --out"):
        run_experiment(TOY, tmp_path / "runs", jobs=1)


def test_several_studies_share_one_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "report-small"
    assert reproduce((TOY,), tmp_path, folder, command="rankscope reproduce", seeds=(0,), jobs=1)
    printed = capsys.readouterr().out
    assert "fast ○ · slow ○" in printed and "fast ●" in printed
    assert printed.splitlines()[-1] == f"Report: {folder / 'index.html'}"
    (content,) = json.loads((folder / "verdicts.json").read_text())
    assert [verdict["claim"] for verdict in content["verdicts"]] == ["P1", "P2"]
