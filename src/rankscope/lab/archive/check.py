"""`rankscope results check`: judge the archive again and compare the numbers."""

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rankscope.lab.archive.archived_files import VERDICTS, is_archive
from rankscope.lab.archive.documents import outdated_documents
from rankscope.lab.catalogue import load_studies
from rankscope.lab.experiment import Study
from rankscope.lab.judging.available_runs import AvailableRuns, load_runs, stored_part
from rankscope.lab.judging.study import StudyReport, judge_study, read_json
from rankscope.lab.judging.verdict import Verdict
from rankscope.lab.running.identity import declaration
from rankscope.lab.running.stored_run import runs_on_disk
from rankscope.store.archive import SUFFIX

Place = tuple[str, ...]
# Another machine computes in single precision again, and a small number may be the difference of
# two that are near 1.
NOISE, NOISE_NEAR_ONE = 1e-4, 1e-6


def problems(archive: Path, *, studies: tuple[Study, ...] | None = None) -> list[str]:
    """Return a sentence on everything that is not as it should be."""
    if not is_archive(archive):
        raise ValueError(f"{archive} has no archived runs; rankscope results keep makes them")
    studies = studies or load_studies("paper")
    if wrong := [*_files(studies, archive)]:
        return [*wrong, "verdicts were not compared, since files are not as declared"]
    reports = []
    for study in studies:
        report = _judged(study, archive)
        wrong += [f"{study.name}: {fault}" for fault in report.faults]
        path, due = archive / study.name / VERDICTS, study.ours or not report.runs.empty
        if due and not path.exists():
            wrong.append(f"{path} is missing; run rankscope results keep {archive}")
        elif due:
            reports.append(report)
            stored = _numbers(map(Verdict.from_json, read_json(path)["verdicts"]))
            now = _numbers(report.verdicts)
            for place in {**stored, **now}:
                before, after = stored.get(place, ()), now.get(place, ())
                if not _alike(before, after):
                    where = f"{path}, {', '.join(place)}"
                    wrong.append(f"{where}: stored is {before}, the runs say {after}")
    return [*wrong, *outdated_documents(archive, reports, studies)]


def _judged(study: Study, archive: Path) -> StudyReport:
    """Judge what is archived; of a study of our own also claims that have no runs."""
    part = stored_part(study, archive)
    runs = load_runs(part.experiments, archive)
    if study.ours:
        return judge_study(study, AvailableRuns({k: runs.entries.get(k, {}) for k in study.keys}))
    return judge_study(part, runs)


def _files(studies: Iterable[Study], archive: Path) -> Iterator[str]:
    """Yield a sentence on each file that is not of a run as it is declared now."""
    known: set[Path] = set()
    for experiment in (experiment for study in studies for experiment in study.experiments):
        for stored in runs_on_disk(experiment, archive):
            known.add(stored.path)
            if stored.state != "whole":
                changes = "; ".join(stored.changes()[:3])
                yield f"{stored.path} is not of the run as declared now ({changes})"
            elif stored.attrs.get("compaction") != declaration(experiment.compaction):
                yield f"{stored.path} was compacted by another declaration"
    for path in sorted(set(archive.rglob(f"*{SUFFIX}")) - known):
        yield f"{path} belongs to no declared run"


def outcomes(verdicts: Iterable[Verdict]) -> dict[Place, tuple[Any, ...]]:
    """Return value and outcome of every seed by claim, experiment, network and seed."""
    return {
        (verdict.claim, network.experiment, network.label, f"seed {outcome.seed}"): (
            outcome.value,
            outcome.met,
        )
        for verdict in verdicts
        for network in verdict.networks
        for outcome in network.seeds
    }


def _numbers(verdicts: Iterable[Verdict]) -> dict[Place, tuple[Any, ...]]:
    """Return every outcome and every number of evidence by its place; words are left out."""
    listed = [Verdict.from_json(verdict.to_json()) for verdict in verdicts]
    return outcomes(listed) | {
        (verdict.claim, f"table {position}"): tuple(
            cell for row in table.rows for cell in row if isinstance(cell, int | float)
        )
        for verdict in listed
        for position, table in enumerate(verdict.tables)
    }


def _alike(stored: Any, now: Any) -> bool:
    if isinstance(stored, tuple) and isinstance(now, tuple):
        return len(stored) == len(now) and all(map(_alike, stored, now))
    if isinstance(stored, float) and isinstance(now, float):
        return math.isclose(stored, now, rel_tol=NOISE, abs_tol=NOISE_NEAR_ONE)
    return bool(stored == now)
