"""`rankscope results keep`: whole runs of scale paper become small files, verdicts and tables.

Everything is made and judged in a temporary folder first, so a refusal leaves no trace.
"""

from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import xarray as xr
from rich.console import Console

from rankscope import store
from rankscope.lab.archive.archived_files import VERDICTS, archive_path, is_archive
from rankscope.lab.archive.check import outcomes
from rankscope.lab.archive.compaction import compact
from rankscope.lab.archive.documents import write_documents
from rankscope.lab.catalogue import load_studies
from rankscope.lab.experiment import Experiment, Study
from rankscope.lab.judging.available_runs import REASONS, AvailableRuns, load_runs
from rankscope.lab.judging.study import StudyReport, judge_study, verdicts_json, write_json
from rankscope.lab.running.identity import declaration
from rankscope.lab.running.run_key import RunKey
from rankscope.lab.running.stored_run import StoredRun, runs_on_disk
from rankscope.store.archive import archive_attrs, packed
from rankscope.store.files import replace_file

ORIGIN = ("identity", "started", "commit")  # tells one execution of a run from another


def keep(source: Path, archive: Path, *, studies: tuple[Study, ...] | None = None) -> bool:
    """Archive the whole runs of scale paper in `source`; judge everything; write the tables.

    Return True if no run was refused and no claim raised.
    source: a folder of runs, another archive, or `archive` itself to judge it again.
    """
    talk = Console(stderr=True)
    studies = studies or load_studies("paper")
    experiments = [experiment for study in studies for experiment in study.experiments]
    if not source.is_dir():
        raise ValueError(f"{source} is not a folder; give the one that holds the runs")
    same = archive.is_dir() and source.resolve() == archive.resolve()
    offered, refused = ([], []) if same else _offered(experiments, source)
    if not (same or offered or refused):
        raise ValueError(
            f"{source} has no whole run of scale paper; give a folder that rankscope run wrote, "
            f"or {archive} to judge it again"
        )
    with TemporaryDirectory() as folder:
        staged = Path(folder)
        new = _stage(offered, experiments, archive, staged)
        reports = [_judge(study, source, archive, staged) for study in studies]
        for path in new:
            replace_file(_with_parent(archive / path), (staged / path).read_bytes(), durable=False)
    judged = [report for report in reports if report.study.ours or not report.runs.empty]
    for report in judged:
        write_json(verdicts_json(report), archive / report.study.name / VERDICTS)
    troubles = [*refused, *(fault for report in judged for fault in report.faults)]
    troubles += write_documents(archive, judged, studies)
    for line in (*troubles, f"{len(new)} new files in {archive}"):
        talk.print(line, markup=False, highlight=False, soft_wrap=True)
    return not troubles


def _offered(experiments: Iterable[Experiment], source: Path) -> tuple[list[StoredRun], list[str]]:
    """The whole runs in a folder, and a sentence on each that was declared differently."""
    whole, refused = list[StoredRun](), list[str]()
    for stored in (run for experiment in experiments for run in runs_on_disk(experiment, source)):
        state = stored.state
        if state == "whole":
            whole.append(stored)
        elif state in ("changed", "foreign"):
            changes = "; ".join(stored.changes()[:3])
            refused.append(f"not archived: {stored.title} {REASONS[state]} ({changes})")
    return whole, refused


def _stage(
    offered: Iterable[StoredRun], experiments: Iterable[Experiment], archive: Path, staged: Path
) -> list[Path]:
    """Write the files that the archive lacks, or has from another execution, to `staged`."""
    compactions = {experiment.name: experiment.compaction for experiment in experiments}
    new: list[Path] = []
    for stored in offered:
        path = archive_path(Path(), stored.key, stored.seed)
        how = compactions[stored.key.experiment]
        wanted = {name: stored.attrs.get(name) for name in ORIGIN} | {
            "compaction": declaration(how)
        }
        if wanted.items() <= archive_attrs(archive / path).items():
            continue
        if not stored.is_archived:
            content = packed(compact(store.open(stored.path), how))
        elif wanted.items() <= stored.attrs.items():
            content = stored.path.read_bytes()
        else:
            raise ValueError(
                f"{stored.path} was compacted by another declaration; archive the run itself"
            )
        _with_parent(staged / path).write_bytes(content)
        new.append(path)
    return new


def _judge(study: Study, source: Path, archive: Path, staged: Path) -> StudyReport:
    """Judge a study on its archived files; refuse if the runs themselves say something else."""
    files = _joined(*(load_runs(study.experiments, folder) for folder in (archive, staged)))
    archived = {key.experiment for key, seeds in files.entries.items() if seeds}
    if not study.ours:
        study = study.restrict(part for part in study.experiments if part.name in archived)
    files = AvailableRuns({key: files.entries[key] for key in study.keys})
    report = judge_study(study, files)
    if not is_archive(source):
        runs = _joined(files, load_runs(study.experiments, source))
        by_files, by_runs = (outcomes(r.verdicts) for r in (report, judge_study(study, runs)))
        for place, (_, met) in by_runs.items():
            if met != by_files[place][1]:
                raise ValueError(
                    f"{study.name}, {', '.join(place)}: the run says {met}, its archived file "
                    f"{by_files[place][1]}; declare more bits in the experiment's compaction"
                )
    return report


def _joined(*sources: AvailableRuns) -> AvailableRuns:
    """Return the runs that are whole in some source, of which the last counts.

    Where a seed has a whole run in its experiment, the others have the reason why they are absent.
    """
    whole: dict[RunKey, dict[int, xr.Dataset | str]] = {key: {} for key in sources[0].entries}
    absent: dict[RunKey, dict[int, str]] = {key: {} for key in whole}
    for key, seed, entry in _entries(sources, whole):
        if isinstance(entry, str):
            absent[key][seed] = entry
        else:
            whole[key][seed] = entry
    begun = {(key.experiment, seed) for key, by_seed in whole.items() for seed in by_seed}
    for key, by_seed in absent.items():
        for seed, reason in by_seed.items():
            if (key.experiment, seed) in begun:
                whole[key].setdefault(seed, reason)
    return AvailableRuns(whole)


def _entries(
    sources: Iterable[AvailableRuns], keys: Iterable[RunKey]
) -> Iterator[tuple[RunKey, int, xr.Dataset | str]]:
    for runs, key in product(sources, keys):
        for seed, entry in runs.entries.get(key, {}).items():
            yield key, seed, entry


def _with_parent(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
