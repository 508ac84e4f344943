"""Judging a study: a verdict for each claim, a file for each figure, from stored runs alone."""

import json
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rankscope.lab.experiment import FigureRule, Seen, Study, TooFewRuns
from rankscope.lab.judging.available_runs import AvailableRuns
from rankscope.lab.judging.rule import Measured, Rule
from rankscope.lab.judging.tally import SeedTally, exception_table
from rankscope.lab.judging.verdict import (
    Cell,
    Missing,
    NetworkVerdict,
    SeedOutcome,
    Table,
    Verdict,
    finite,
    without_nan,
)
from rankscope.store.files import replace_file

# Writes a matplotlib figure below a path without suffix, and returns the files.
SaveFigure = Callable[[Any, Path], tuple[Path, ...]]


@dataclass(frozen=True)
class Drawing:
    """A figure's files, none if it could not be drawn; `remarks` say what it lacks."""

    name: str
    caption: str
    files: tuple[Path, ...]
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class StudyReport:
    """Verdicts and figures of a study, made from its stored runs.

    faults: tracebacks of claims and figures that raised, which are mistakes in their code.
    """

    study: Study
    runs: AvailableRuns
    verdicts: tuple[Verdict, ...]
    drawings: tuple[Drawing, ...]
    faults: tuple[str, ...]


def judge_study(
    study: Study,
    runs: AvailableRuns,
    *,
    figures: Path | None = None,
    save: SaveFigure | None = None,
) -> StudyReport:
    """Judge every claim of a study; draw its figures too if a folder for them is given.

    A mistake in the code of one claim or figure does not cost the others.
    """
    verdicts, faults, drawings = list[Verdict](), list[str](), list[Drawing]()
    for rule in study.claims:
        verdict, fault = _judge_or_fault(rule, runs, study.seen)
        verdicts.append(verdict)
        faults += [fault] if fault else []
    if figures:
        for figure in study.figures:
            drawing, fault = _draw(figure, runs, figures, save or save_figure)
            drawings.append(drawing)
            faults += [fault] if fault else []
    return StudyReport(study, runs, tuple(verdicts), tuple(drawings), tuple(faults))


def judge(rule: Rule, runs: AvailableRuns, *, seen: Seen | None = None) -> Verdict:
    """Return the verdict on one claim.

    seen: seeds that had been seen when changed rules were made, by experiment.
    """
    whole, missing = runs.select(rule.needs)
    measurements = list(rule.measure(whole))
    if rule.changed and seen:
        measurements, missing = _deciding(rule, measurements, missing, seen)
    needed = [(key.experiment, rule.network(key)) for key in rule.needs([*runs.entries])]
    networks = _in_order(_networks(measurements), needed)
    if rule.changed and seen:
        networks = [_with_unseen(network, seen) for network in networks]
    return Verdict(
        rule.claim,
        rule.sentence,
        rule.bound,
        rule.quantity,
        headline=rule.headline,
        reason=rule.reason,
        ours=rule.ours,
        networks=tuple(networks),
        missing=missing,
        remarks=tuple(
            dict.fromkeys(remark for measured in measurements for remark in measured.remarks)
        ),
        tables=tuple(map(without_nan, _tables(rule, measurements))),
    )


def _deciding(
    rule: Rule, measurements: Iterable[Measured], missing: Iterable[Missing], seen: Seen
) -> tuple[list[Measured], tuple[Missing, ...]]:
    """Select the seeds that decide a changed rule.

    A measurement may compare its seed with runs of other networks that had been seen.
    """

    def counts(experiment: str, seed: int) -> bool:
        return rule.counts(seed, seen=seen.get(experiment, ()))

    lacking = (
        replace(lack, seeds=tuple(s for s in lack.seeds if counts(lack.experiment, s)))
        for lack in missing
    )
    deciding = [m for m in measurements if counts(m.experiment, m.seed)]
    return deciding, tuple(lack for lack in lacking if lack.seeds)


def _with_unseen(network: NetworkVerdict, seen: Seen) -> NetworkVerdict:
    known = seen.get(network.experiment, ())
    unseen = (outcome.seed for outcome in network.seeds if outcome.seed not in known)
    return replace(network, unseen=tuple(unseen))


def _judge_or_fault(rule: Rule, runs: AvailableRuns, seen: Seen) -> tuple[Verdict, str]:
    try:
        return judge(rule, runs, seen=seen), ""
    except Exception as error:
        fault = f"could not be judged: {type(error).__name__}: {error}"
        named = Verdict(rule.claim, rule.sentence, rule.bound, rule.quantity, fault=fault)
        verdict = replace(named, headline=rule.headline, reason=rule.reason, ours=rule.ours)
        return verdict, traceback.format_exc()


def _networks(measurements: Iterable[Measured]) -> list[NetworkVerdict]:
    """Put the seeds of each network, variant and part together, in the order they came."""
    together: dict[tuple[object, ...], list[Measured]] = {}
    for measured in measurements:
        variant = tuple(sorted(measured.variant.items()))
        place = (measured.experiment, measured.network, variant, measured.part)
        together.setdefault(place, []).append(measured)
    return [
        NetworkVerdict(
            network=group[0].network,
            seeds=tuple(
                SeedOutcome(
                    measured.seed,
                    finite(measured.value),
                    None if measured.met is None else bool(measured.met),
                )
                for measured in sorted(group, key=lambda measured: measured.seed)
            ),
            experiment=group[0].experiment,
            variant=group[0].variant,
            part=group[0].part,
            quantity=group[0].quantity,
        )
        for group in together.values()
    ]


def _in_order(
    networks: list[NetworkVerdict], needed: Iterable[tuple[str, str]]
) -> list[NetworkVerdict]:
    """Return the networks as they are declared; those of which no seed was measured have none.

    needed: experiment and network.
    """
    by_place: dict[tuple[str, str], list[NetworkVerdict]] = {place: [] for place in needed}
    for network in networks:
        by_place.setdefault((network.experiment, network.network), []).append(network)
    return [
        network
        for (experiment, name), parts in by_place.items()
        for network in parts or [NetworkVerdict(name, (), experiment)]
    ]


def _tables(rule: Rule, measurements: list[Measured]) -> list[Table]:
    """The evidence of all seeds in one table, and every exception in another."""
    rows = [
        {"network": _title(measured), "seed": measured.seed, **row}
        for measured in measurements
        for row in measured.rows
    ]
    columns = list(dict.fromkeys(column for row in rows for column in row))
    cells: list[tuple[Cell, ...]] = [tuple(row.get(column) for column in columns) for row in rows]
    tallies = [
        SeedTally(_title(measured), measured.seed, part, tally)
        for measured in measurements
        for part, tally in measured.tallies.items()
    ]
    tables = [Table(tuple(columns), tuple(cells), rule.table)] if rows else []
    return [*tables, *exception_table(tallies)]


def _title(measured: Measured) -> str:
    return NetworkVerdict(
        measured.network, (), measured.experiment, measured.variant, measured.part
    ).title


def _draw(
    figure: FigureRule, runs: AvailableRuns, folder: Path, save: SaveFigure
) -> tuple[Drawing, str]:
    whole, missing = runs.select(figure.needs)
    drawing = Drawing(figure.name, figure.caption, ())
    lacks = tuple(f"{figure.name} is drawn without {lack}" for lack in missing)
    if not whole:
        reason = f"{figure.name} could not be drawn: no seed has all the runs it needs"
        return replace(drawing, remarks=(reason, *map(str, missing))), ""
    try:
        return replace(
            drawing, files=save(figure.draw(whole), folder / figure.name), remarks=lacks
        ), ""
    except TooFewRuns as lack:
        return replace(drawing, remarks=(f"{figure.name} could not be drawn: {lack}",)), ""
    except Exception as error:
        remark = f"{figure.name} could not be drawn: {type(error).__name__}: {error}"
        return replace(drawing, remarks=(remark,)), traceback.format_exc()


def save_figure(figure: Any, path: Path) -> tuple[Path, ...]:
    """Write a figure as PNG and SVG. The SVG's identifiers are the same at every drawing."""
    from matplotlib import rc_context  # judging needs no plotting

    from rankscope.figures.style import save

    with rc_context({"svg.hashsalt": path.name}):
        return save(figure, path)


def verdicts_json(report: StudyReport) -> dict[str, Any]:
    """Return the content of verdicts.json."""
    return {
        "study": report.study.name,
        "scale": report.study.scale,
        "verdicts": [verdict.to_json() for verdict in report.verdicts],
    }


def write_json(content: Any, path: Path) -> None:
    """Write JSON in one step, so that readers never see half a file."""
    text = json.dumps(content, indent=1, allow_nan=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, f"{text}\n".encode(), durable=False)


def read_json(path: Path) -> Any:
    """Read what `write_json` wrote."""
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}); restore it") from None
