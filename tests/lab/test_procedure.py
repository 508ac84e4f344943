import json
from dataclasses import replace
from pathlib import Path

import pytest

from lab.toy_experiments.paper2000.slow_decay import experiment
from lab.toy_runs import Decay
from rankscope import store
from rankscope.lab.experiment import Experiment
from rankscope.lab.procedure import conduct

TOY = experiment("small")
FAST, SLOW = (f"paper2000/slow-decay/small/rates/{rate}" for rate in ("fast", "slow"))


def variant(**runs: Decay) -> Experiment:
    return replace(TOY, runs={**TOY.runs, **{f"rates/{name}": run for name, run in runs.items()}})


def started(out: Path) -> list[str]:
    """When each store was last written, to the nanosecond."""
    return [(str(p.parent), p.stat().st_mtime_ns) for p in sorted(out.glob("**/seed-*/zarr.json"))]


def test_a_whole_experiment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert conduct(TOY, tmp_path, jobs=1)
    printed = capsys.readouterr()
    assert "P1" in printed.out and "the loss falls" in printed.out and "yes" in printed.out
    assert "P1: measured at the last [row]" in printed.out
    assert "6 of 6 runs" in printed.err and "figure-1.svg" in printed.err
    first = started(tmp_path)
    assert conduct(TOY, tmp_path, jobs=1)
    assert started(tmp_path) == first and len(first) == 6
    again = capsys.readouterr()
    assert again.out == printed.out and again.err.startswith("6 of 6 runs are there already.\n")


def test_json_is_all_there_is_on_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert conduct(TOY, tmp_path, seeds=(5, 0), jobs=1, as_json=True)
    shown = json.loads(capsys.readouterr().out)
    file = tmp_path / "paper2000/slow-decay/small/verdicts.json"
    assert shown == json.loads(file.read_text())
    assert [verdict["holds"] for verdict in shown["verdicts"]] == ["undecided", "undecided"]
    seeds = [outcome["seed"] for outcome in shown["verdicts"][1]["networks"][0]["seeds"]]
    assert seeds == [0, 5]
    assert sorted(path.name for path in (tmp_path / FAST).iterdir()) == ["seed-0", "seed-5"]


def test_seeds_run_one_by_one_are_judged_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in TOY.seeds:
        assert conduct(TOY, tmp_path, seeds=(seed,), jobs=1, as_json=True)
    shown = capsys.readouterr().out.rpartition("\n{\n")[2]
    assert [v["holds"] for v in json.loads("{" + shown)["verdicts"]] == ["yes", "no"]


def test_failed_runs_are_named_and_the_rest_is_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not conduct(variant(slow=Decay(fails=(1,))), tmp_path, jobs=1)
    printed = capsys.readouterr()
    assert "ArithmeticError: the loss is not a number" in " ".join(printed.out.split())
    file = tmp_path / SLOW / "seed-1.failure.txt"
    assert f"failed: rates/slow, seed 1; see {file}" in printed.err
    assert "Traceback" in file.read_text()
    assert len(list(tmp_path.glob("**/figures/*"))) == 2
    assert conduct(variant(slow=Decay(fails=())), tmp_path, jobs=1)
    before = "failed before (ArithmeticError: the loss is not a number); it begins anew"
    assert f"rates/slow, seed 1 {before}\n" in capsys.readouterr().err


def test_a_changed_declaration_is_said_and_kept_aside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    conduct(TOY, tmp_path, seeds=(0,), jobs=1)
    capsys.readouterr()
    assert conduct(variant(slow=Decay(rate=0.5)), tmp_path, seeds=(0,), jobs=1)
    aside = tmp_path / SLOW / "seed-0.replaced-1"
    assert (
        "rates/slow, seed 0 was declared otherwise before (rate: 1.0 -> 0.5); it is run again, and "
        f"the earlier result is kept as {aside}\n"
    ) in capsys.readouterr().err
    assert store.open(aside).attrs["rate"] == 1.0
    assert store.open(tmp_path / SLOW / "seed-0").attrs["rate"] == 0.5


def test_after_an_interruption_the_same_command_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(KeyboardInterrupt):
        conduct(variant(slow=Decay(interrupted=True)), tmp_path, seeds=(0,), jobs=1)
    printed = capsys.readouterr()
    assert "Stopped. Finished runs stay" in printed.err and printed.out == ""
    assert conduct(TOY, tmp_path, seeds=(0,), jobs=1)
    printed = capsys.readouterr()
    assert printed.err.startswith(
        "1 of 2 runs are there already.\n"
        "rates/slow, seed 0 was begun, not finished; it begins anew\n"
    )


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    with pytest.raises(ValueError, match="runs is a file; choose a folder with --out"):
        conduct(TOY, tmp_path / "runs", jobs=1)
