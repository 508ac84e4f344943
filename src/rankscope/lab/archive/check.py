"""`rankscope results check`: judge the archive again and compare the numbers."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rankscope.lab.archive.documents import outdated_documents
from rankscope.lab.archive.paths import VERDICTS, archive_path, is_archive
from rankscope.lab.catalogue import load_studies
from rankscope.lab.experiment import Study
from rankscope.lab.judging.available_runs import load_runs, stored_part
from rankscope.lab.judging.study import judge_study, read_json, verdicts_json
from rankscope.lab.running.identity import declaration
from rankscope.lab.running.stored_run import seeds_on_disk, stored_runs
from rankscope.store.archive import SUFFIX

NOISE = 1e-4  # relative; another machine computes in single precision again


def problems(archive: Path, *, studies: tuple[Study, ...] | None = None) -> list[str]:
    """Return a sentence on everything that is not as it should be."""
    if not is_archive(archive):
        raise ValueError(f"{archive} has no archived runs; rankscope results keep makes them")
    studies = studies or load_studies("paper")
    wrong_files = [*_files(studies, archive)]
    if wrong_files:
        return [*wrong_files, "verdicts were not compared, since files are not as declared"]
    reports, wrong = [], list[str]()
    for declared in studies:
        study = stored_part(declared, archive)
        report = judge_study(study, load_runs(study.experiments, archive))
        wrong += [f"{study.name}: {fault}" for fault in report.faults]
        if report.empty:
            continue
        reports.append(report)
        path = archive / study.name / VERDICTS
        if not path.exists():
            wrong.append(f"{path} is missing; run rankscope results keep {archive}")
            continue
        stored, now = _numbers(read_json(path)), _numbers(verdicts_json(report))
        wrong += [f"{path}, {line}" for line in _differences(stored, now)]
    return [*wrong, *outdated_documents(archive, reports)]


def _files(studies: tuple[Study, ...], archive: Path) -> Iterator[str]:
    """Whether every file is that of a run as it is declared now."""
    known: set[Path] = set()
    for study in studies:
        for experiment in study.experiments:
            compaction = declaration(experiment.compaction)
            seeds = tuple(sorted(seeds_on_disk(experiment, archive)))
            for stored in stored_runs(experiment, archive, seeds=seeds):
                if not stored.path.exists():
                    continue
                known.add(archive_path(archive, stored.key, stored.seed))
                if stored.state != "whole":
                    changes = "; ".join(stored.changes()[:3])
                    yield f"{stored.path} is not of the run as declared now ({changes})"
                elif stored.attrs.get("compaction") != compaction:
                    yield f"{stored.path} was compacted by another declaration"
    for path in sorted(set(archive.rglob(f"*{SUFFIX}")) - known):
        yield f"{path} belongs to no declared run"


def _numbers(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return every number and outcome in verdicts.json by its place; words are left out."""
    numbers: dict[str, Any] = {}
    for verdict in content["verdicts"]:
        for network in verdict["networks"]:
            variant = ", ".join(f"{name} {value}" for name, value in network["variant"].items())
            names = (network["experiment"], network["network"], variant, network["part"])
            place = ", ".join(filter(None, (verdict["claim"], *names)))
            numbers[place] = network["verdict"]
            for outcome in network["seeds"]:
                numbers[f"{place}, seed {outcome['seed']}"] = (outcome["value"], outcome["met"])
        for number_of_table, table in enumerate(verdict["tables"]):
            for number_of_row, row in enumerate(table["rows"]):
                cells = tuple(cell for cell in row if isinstance(cell, int | float))
                numbers[f"{verdict['claim']}, table {number_of_table}, row {number_of_row}"] = cells
    return numbers


def _differences(stored: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for place in {**stored, **now}:
        before, after = stored.get(place), now.get(place)
        if not _alike(before, after):
            yield f"{place}: stored is {before}, the runs say {after}"


def _alike(one: Any, two: Any) -> bool:
    if isinstance(one, tuple) and isinstance(two, tuple):
        return len(one) == len(two) and all(map(_alike, one, two))
    if isinstance(one, float) and isinstance(two, float):
        return math.isclose(one, two, rel_tol=NOISE, abs_tol=1e-9)
    return bool(one == two)
