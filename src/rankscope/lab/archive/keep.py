"""`rankscope results keep`: whole runs of scale paper become small files, verdicts and tables.

Everything is made and judged in a temporary folder first, so a refusal leaves no trace.
"""

from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from rankscope import store
from rankscope.lab.archive.compaction import compact
from rankscope.lab.archive.documents import write_documents
from rankscope.lab.archive.paths import VERDICTS, archive_path, is_archive
from rankscope.lab.catalogue import load_studies
from rankscope.lab.experiment import Experiment, Study
from rankscope.lab.judging.available_runs import (
    REASONS,
    AvailableRuns,
    load_runs,
    stored_part,
)
from rankscope.lab.judging.study import StudyReport, judge_study, verdicts_json, write_json
from rankscope.lab.judging.verdict import Verdict
from rankscope.lab.running.identity import declaration
from rankscope.lab.running.stored_run import StoredRun, seeds_on_disk, stored_runs
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
        parts = [_archived_part(study, archive, offered) for study in studies]
        reports = [_judge(study, source, archive, staged, offered) for study in parts]
        for path in new:
            replace_file(_made(archive / path), (staged / path).read_bytes(), durable=False)
    for report in reports:
        if not report.empty:
            write_json(verdicts_json(report), archive / report.study.name / VERDICTS)
    troubles = [*refused, *(fault for report in reports for fault in report.faults)]
    troubles += write_documents(archive, [report for report in reports if not report.empty])
    for line in troubles:
        talk.print(line, markup=False, highlight=False, soft_wrap=True)
    talk.print(f"{len(new)} new files in {archive}", highlight=False)
    return not troubles


def _offered(experiments: Iterable[Experiment], source: Path) -> tuple[list[StoredRun], list[str]]:
    """The whole runs in a folder, and a sentence on each that was declared differently."""
    whole, refused = list[StoredRun](), list[str]()
    for experiment in experiments:
        seeds = tuple(sorted(seeds_on_disk(experiment, source)))
        for stored in stored_runs(experiment, source, seeds=seeds):
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
        before, attrs = archive_attrs(archive / path), stored.attrs
        if all(before.get(name) == attrs.get(name) for name in ORIGIN) and before.get(
            "compaction"
        ) == declaration(how):
            continue
        if not stored.is_archived:
            content = packed(compact(store.open(stored.path), how))
        elif attrs.get("compaction") == declaration(how):
            content = stored.path.read_bytes()
        else:
            raise ValueError(
                f"{stored.path} was compacted by another declaration; archive the run itself"
            )
        _made(staged / path).write_bytes(content)
        new.append(path)
    return new


def _archived_part(study: Study, archive: Path, offered: Iterable[StoredRun]) -> Study:
    """Return the study of the experiments that the archive has or is about to have."""
    names = {stored.key.experiment for stored in offered}
    names |= {experiment.name for experiment in stored_part(study, archive).experiments}
    return study.restrict(part for part in study.experiments if part.name in names)


def _judge(
    study: Study, source: Path, archive: Path, staged: Path, offered: list[StoredRun]
) -> StudyReport:
    """Judge a study on the archived files; refuse if the runs themselves say something else."""
    archived = load_runs(study.experiments, archive)
    files = _replaced(archived, load_runs(study.experiments, staged)) if offered else archived
    report = judge_study(study, files)
    if offered and not is_archive(source):
        runs = _replaced(files, load_runs(study.experiments, source))
        by_runs = dict(_outcomes(judge_study(study, runs).verdicts))
        by_files = dict(_outcomes(report.verdicts))
        for place in {**by_runs, **by_files}:
            if by_runs.get(place) != by_files.get(place):
                raise ValueError(
                    f"{study.name}, {place}: the run says {by_runs.get(place)}, its archived file "
                    f"{by_files.get(place)}; declare more bits in the experiment's compaction"
                )
    return report


def _replaced(runs: AvailableRuns, others: AvailableRuns) -> AvailableRuns:
    """Return the runs with those of `others` that are whole in their place."""
    return AvailableRuns(
        {
            key: {
                **seeds,
                **{s: e for s, e in others.entries[key].items() if not isinstance(e, str)},
            }
            for key, seeds in runs.entries.items()
        }
    )


def _outcomes(verdicts: Iterable[Verdict]) -> Iterable[tuple[str, bool | None]]:
    for verdict in verdicts:
        for network in verdict.networks:
            for outcome in network.seeds:
                place = f"{verdict.claim}, {network.experiment}, {network.label}"
                yield f"{place}, seed {outcome.seed}", outcome.met


def _made(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
