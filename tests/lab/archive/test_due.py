from dataclasses import replace
from pathlib import Path

from lab.toy_runs import Log
from lab.toy_study import SLOW, experiment
from rankscope.lab.archive.archived_files import archive_path
from rankscope.lab.archive.due import due_runs, due_table, expected_seconds
from rankscope.lab.archive.keep import keep
from rankscope.lab.experiment import study_of
from rankscope.lab.running.processes import execute
from rankscope.lab.running.stored_run import StoredRun, stored_runs


def test_what_is_due_is_what_the_archive_lacks(tmp_path: Path) -> None:
    declared, archive, out = experiment("paper"), tmp_path / "results", tmp_path / "runs"
    (slow,) = (key for key in declared.runs if key.variant == SLOW.variant)
    for seed in (0, 1, 7):  # 7 is not declared, and the archive has one of its two runs
        file = archive_path(archive, slow, seed)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    places = [
        (run.key.network, run.seed) for run in due_runs(study_of(declared), declared, archive, out)
    ]
    assert sorted(places) == [*(("fast", seed) for seed in (0, 1, 2, 7)), ("slow", 2)]
    assert [
        run.seed for run in due_runs(study_of(declared), declared, archive, out, seeds=(1,))
    ] == [1]
    assert [
        run.seed for run in due_runs(study_of(declared), declared, archive, out, seeds=(9,))
    ] == [9, 9]
    assert all(
        out in run.path.parents for run in due_runs(study_of(declared), declared, archive, out)
    )
    assert len(due_runs(study_of(declared), declared, tmp_path / "none", out)) == 2 * len(
        declared.seeds
    )


def test_the_time_of_due_runs_is_their_share_of_the_experiments(tmp_path: Path) -> None:
    declared = replace(experiment("paper"), expected_seconds=60)
    runs = due_runs(study_of(declared), declared, tmp_path, tmp_path)
    assert expected_seconds(declared, tmp_path, runs) == 60
    assert expected_seconds(declared, tmp_path, runs[:2]) == 60 * 2 / len(runs)
    assert expected_seconds(replace(declared, expected_seconds=None), tmp_path, runs) is None


def test_runs_that_took_longer_count_for_more(tmp_path: Path, monkeypatch) -> None:
    declared, archive = replace(experiment("paper"), expected_seconds=90), tmp_path / "results"
    execute(stored_runs(declared, tmp_path / "runs", seeds=(0,)), jobs=1, watcher=Log())
    assert keep(tmp_path / "runs", archive, studies=(study_of(declared),))
    runs = due_runs(study_of(declared), declared, archive, tmp_path)
    fast, slow = ([run for run in runs if run.key.network == name] for name in ("fast", "slow"))
    assert [run.seed for run in slow] == [1, 2]
    times = {"fast": 1.0, "slow": 9.0}
    monkeypatch.setattr(
        StoredRun, "attrs", property(lambda run: {"wall_seconds": times[run.key.network]})
    )
    seconds = [expected_seconds(declared, archive, part) for part in (fast, slow)]
    assert seconds == [6, 54]


def test_the_table_of_what_is_due(tmp_path: Path) -> None:
    declared = replace(experiment("paper"), expected_seconds=600)
    _, (row,) = due_table([study_of(declared)], tmp_path)
    assert row == ("paper2000/slow-decay", "6", "0, 1, 2", "10 min, 2 cores")
    _, (row,) = due_table([study_of(replace(declared, expected_seconds=None))], tmp_path)
    assert row[-1] == "not measured"


def test_a_seed_that_no_claim_counts_is_not_due(tmp_path: Path) -> None:
    """Seeds 0 and 1 had been seen, so only seed 2 decides; a run that no claim reads has all."""
    declared = experiment("paper")
    (slow,) = (key for key in declared.runs if key.variant == SLOW.variant)
    rule = replace(declared.claims[0], needs=lambda keys: [slow], changed=True)
    study = replace(study_of(declared), claims=(rule,), seen={declared.name: (0, 1)})
    due = [(run.key.network, run.seed) for run in due_runs(study, declared, tmp_path, tmp_path)]
    assert sorted(due) == [*(("fast", seed) for seed in (0, 1, 2)), ("slow", 2)]
    first = replace(rule, claim="first", headline=rule.claim, changed=False)
    both = replace(study, claims=(rule, first))
    assert len(due_runs(both, declared, tmp_path, tmp_path)) == 6
    asked = due_runs(study, declared, tmp_path, tmp_path, seeds=(0,))
    assert [run.seed for run in asked] == [0, 0]
