"""Runs of scale paper that verdicts or figures need and the archive lacks, and their time."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean

from rankscope.lab.experiment import Experiment, Study
from rankscope.lab.reporting.numbers import duration
from rankscope.lab.running.run_key import RunKey
from rankscope.lab.running.stored_run import StoredRun, runs_on_disk, stored_runs


def due_runs(
    study: Study, experiment: Experiment, archive: Path, out: Path, *, seeds: Iterable[int] = ()
) -> list[StoredRun]:
    """Return the runs of one of the study's experiments below `out` that the archive lacks.

    seeds: by default the declared ones and those of which the archive has a run already, as far as
    a claim counts them.
    """
    archived = {(run.key, run.seed) for run in runs_on_disk(experiment, archive)}
    wanted = seeds or sorted({*experiment.seeds, *(seed for _, seed in archived)})
    runs = stored_runs(experiment, out, seeds=tuple(wanted))
    lacking = [run for run in runs if (run.key, run.seed) not in archived]
    return lacking if seeds else [run for run in lacking if study.needs(run.key, run.seed)]


def expected_seconds(
    experiment: Experiment, archive: Path, runs: Iterable[StoredRun]
) -> float | None:
    """Return the expected time of some runs; None if the experiment declares none.

    They get a share of the declared time: in proportion to archived times, or equal if a kind of
    run is not in the archive.
    """
    if experiment.expected_seconds is None:
        return None
    seconds_by_key: dict[RunKey, list[float]] = {key: [] for key in experiment.runs}
    for run in runs_on_disk(experiment, archive):
        seconds_by_key[run.key].append(float(run.attrs["wall_seconds"]))
    known = all(seconds_by_key.values())
    weights = {key: mean(seconds) if known else 1.0 for key, seconds in seconds_by_key.items()}
    share = sum(weights[run.key] for run in runs) / sum(weights.values())
    return float(experiment.expected_seconds / len(experiment.seeds) * share)


def due_table(
    studies: Iterable[Study], archive: Path
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return columns and rows of what is due: experiment, number of runs, seeds and time."""
    columns = ("experiment", "runs due", "seeds", "expected time")
    due = (
        (experiment, due_runs(study, experiment, archive, Path()))
        for study in studies
        for experiment in study.experiments
    )
    return columns, [_row(experiment, archive, runs) for experiment, runs in due if runs]


def _row(experiment: Experiment, archive: Path, runs: Sequence[StoredRun]) -> tuple[str, ...]:
    seconds = expected_seconds(experiment, archive, runs)
    return (
        experiment.name,
        str(len(runs)),
        ", ".join(map(str, sorted({run.seed for run in runs}))),
        f"{duration(seconds)}, {experiment.expected_on}" if seconds else "not measured",
    )
