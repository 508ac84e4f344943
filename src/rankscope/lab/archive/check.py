"""`rankscope results check`: judge the archive again and compare the numbers."""

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rankscope.lab.archive.archived_files import VERDICTS, is_archive
from rankscope.lab.archive.documents import outdated_documents
from rankscope.lab.catalogue import load_studies
from rankscope.lab.experiment import Study
from rankscope.lab.judging.available_runs import load_runs, stored_part
from rankscope.lab.judging.study import judge_study, read_json
from rankscope.lab.judging.verdict import Verdict
from rankscope.lab.running.identity import declaration
from rankscope.lab.running.stored_run import seeds_on_disk, stored_runs
from rankscope.store.archive import SUFFIX

NOISE = 1e-4  # relative; another machine computes in single precision again


def problems(archive: Path, *, studies: tuple[Study, ...] | None = None) -> list[str]:
    """Return a sentence on everything that is not as it should be."""
    if not is_archive(archive):
        raise ValueError(f"{archive} has no archived runs; rankscope results keep makes them")
    studies = studies or load_studies("paper")
    if wrong := [*_files(studies, archive)]:
        return [*wrong, "verdicts were not compared, since files are not as declared"]
    reports = []
    for study in (stored_part(study, archive) for study in studies):
        report = judge_study(study, load_runs(study.experiments, archive))
        wrong += [f"{study.name}: {fault}" for fault in report.faults]
        path = archive / study.name / VERDICTS
        if not report.runs.empty and not path.exists():
            wrong.append(f"{path} is missing; run rankscope results keep {archive}")
        elif not report.runs.empty:
            reports.append(report)
            stored = numbers(map(Verdict.from_json, read_json(path)["verdicts"]))
            now = numbers(report.verdicts)
            wrong += [
                f"{path}, {place}: stored is {stored.get(place)}, the runs say {now.get(place)}"
                for place in {**stored, **now}
                if not _alike(stored.get(place, ()), now.get(place, ()))
            ]
    return [*wrong, *outdated_documents(archive, reports)]


def _files(studies: Iterable[Study], archive: Path) -> Iterator[str]:
    """Yield a sentence on each file that is not of a run as it is declared now."""
    known: set[Path] = set()
    for experiment in (experiment for study in studies for experiment in study.experiments):
        compaction = declaration(experiment.compaction)
        seeds = tuple(sorted(seeds_on_disk(experiment, archive)))
        for stored in stored_runs(experiment, archive, seeds=seeds):
            known.add(stored.path)
            if stored.path.exists() and stored.state != "whole":
                changes = "; ".join(stored.changes()[:3])
                yield f"{stored.path} is not of the run as declared now ({changes})"
            elif stored.path.exists() and stored.attrs.get("compaction") != compaction:
                yield f"{stored.path} was compacted by another declaration"
    for path in sorted(set(archive.rglob(f"*{SUFFIX}")) - known):
        yield f"{path} belongs to no declared run"


def numbers(verdicts: Iterable[Verdict]) -> dict[str, tuple[Any, ...]]:
    """Return every value, outcome and number of evidence by its place; words are left out."""
    places: dict[str, tuple[Any, ...]] = {}
    for verdict in verdicts:
        for network in verdict.networks:
            place = f"{verdict.claim}, {network.experiment}, {network.label}"
            for outcome in network.seeds:
                places[f"{place}, seed {outcome.seed}"] = (outcome.value, outcome.met)
        for number_of_table, table in enumerate(verdict.tables):
            cells = [cell for row in table.rows for cell in row if isinstance(cell, int | float)]
            places[f"{verdict.claim}, table {number_of_table}"] = tuple(cells)
    return places


def _alike(one: Any, two: Any) -> bool:
    if isinstance(one, tuple) and isinstance(two, tuple):
        return len(one) == len(two) and all(map(_alike, one, two))
    if isinstance(one, float) and isinstance(two, float):
        return math.isclose(one, two, rel_tol=NOISE, abs_tol=1e-9)
    return bool(one == two)
