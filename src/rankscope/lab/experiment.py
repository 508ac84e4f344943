"""Experiments and studies: declarations of what is run, claimed and drawn. Nothing here runs.

An experiment is a module with one function, `experiment(scale) -> Experiment`. A study puts
experiments together and judges claims on all of their runs; each paper is one.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from rankscope.lab.archive.compaction import Compaction, Way
from rankscope.lab.judging.rule import Rule
from rankscope.lab.judging.selected_runs import Needs, Runs, all_runs
from rankscope.lab.judging.verdict import Table
from rankscope.lab.reporting.page_values import PageText, PageValue
from rankscope.lab.running.run_key import Run, RunKey

Scale = Literal["paper", "small", "smoke"]
SCALES: tuple[Scale, ...] = get_args(Scale)

# Seeds that had been seen when the study's changed rules were made, by experiment.
Seen = Mapping[str, tuple[int, ...]]

FOLDER_NAME = re.compile(r"(?!seed-|report-|figures$|verdicts)[A-Za-z0-9][A-Za-z0-9.,=+_-]*")


class TooFewRuns(ValueError):
    """A figure cannot be drawn from the runs at hand; the message says what it needs."""


@dataclass(frozen=True)
class FigureRule:
    """A figure: its file name, the runs it needs, and the function that draws them.

    draw: returns a matplotlib Figure. Its docstring is the caption: a title line, then a paragraph.
    """

    name: str
    draw: Callable[[Runs], Any]
    needs: Needs = all_runs

    @property
    def caption(self) -> str:
        function: Any = self.draw
        while isinstance(function, partial):
            function = function.func
        return inspect.getdoc(function) or ""


@dataclass(frozen=True)
class PageTable:
    """Tables of a study's page that are made from archived runs.

    name: of the block that they fill. make: gets the runs, and the folder of the archive.
    """

    name: str
    make: Callable[[Runs, Path], Sequence[Table]]
    needs: Needs = all_runs


@dataclass(frozen=True)
class Experiment:
    """Runs, seeds, and optionally claims and figures of the experiment's own.

    name: "paper/experiment"; it is also the folder of the runs.
    runs: started in this order, so list those that take longest first.
    claims, figures: for an experiment outside a study; a paper's are declared by its study.
    expected_seconds: for all runs and seeds together, on `expected_on`; None if not measured.
    compaction: how the archive shortens a run of scale paper.
    """

    name: str
    scale: Scale
    runs: Mapping[RunKey, Run]
    seeds: tuple[int, ...]
    claims: tuple[Rule, ...] = ()
    figures: tuple[FigureRule, ...] = ()
    expected_seconds: float | int | None = None
    expected_on: str = "2 cores"
    compaction: Way = field(default_factory=Compaction)

    def __post_init__(self) -> None:
        for name in (self.name, *(key.name for key in self.runs)):
            if not all(map(FOLDER_NAME.fullmatch, name.split("/"))):
                raise ValueError(
                    f"experiment {self.name!r}: {name!r} cannot name a folder; join words of "
                    "letters, digits and . , = + _ - by '/'; 'figures' and words that begin with "
                    "'seed-' or 'report-' are taken"
                )
        if not self.seeds or len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0:
            raise ValueError(
                f"experiment {self.name!r}: seeds must be different whole numbers from 0 on, at "
                f"least one; got {self.seeds}"
            )
        named = {replace(key, experiment=self.name): run for key, run in self.runs.items()}
        object.__setattr__(self, "runs", named)

    def folder(self, out: Path) -> Path:
        """Folder below `out` that holds its runs."""
        return out / self.name / self.scale


@dataclass(frozen=True)
class Study:
    """Experiments of one scale whose runs are judged together, with claims and figures.

    name: the paper's key, or a name; names of its experiments begin with it: "key/experiment".
    network_titles: how networks are written for people, by experiment and network. The experiment
    is "" where the title holds in all of them.
    page_tables: further tables of the study's page in the documentation.
    page_values: numbers in sentences of the documentation.
    page_texts: sentences of the study's page that wait for runs.
    highlights: names of the figures that a report shows first.
    seen: seeds that had been seen when the changed rules were made. If it is empty, all decide.
    ours: whether the study is our own and no paper's. Its verdicts have a table of their own, in
    which claims without runs stand too, and each experiment has a page of its own.
    """

    name: str
    title: str
    scale: Scale
    experiments: tuple[Experiment, ...]
    claims: tuple[Rule, ...] = ()
    figures: tuple[FigureRule, ...] = ()
    page_tables: tuple[PageTable, ...] = ()
    page_values: tuple[PageValue, ...] = ()
    page_texts: tuple[PageText, ...] = ()
    network_titles: Mapping[tuple[str, str], str] = field(default_factory=dict)
    highlights: tuple[str, ...] = ()
    seen: Seen = field(default_factory=dict)
    ours: bool = False

    def __post_init__(self) -> None:
        for experiment in self.experiments:
            if experiment.scale != self.scale:
                raise ValueError(
                    f"study {self.name!r} at scale {self.scale!r} cannot have the experiment "
                    f"{experiment.name!r} at scale {experiment.scale!r}"
                )
        for kind, names in (
            ("experiment", [experiment.name for experiment in self.experiments]),
            ("claim", [rule.claim for rule in self.claims]),
            ("figure", [figure.name for figure in self.figures]),
        ):
            if len(set(names)) < len(names):
                raise ValueError(f"study {self.name!r}: two {kind}s have the same name")

    @property
    def keys(self) -> list[RunKey]:
        """Every declared run."""
        return [key for experiment in self.experiments for key in experiment.runs]

    def needs(self, key: RunKey, seed: int) -> bool:
        """Return whether some claim counts this run at this seed.

        True for a run that no claim reads: it is there for figures and tables.
        """
        rules = [rule for rule in self.claims if key in rule.needs(self.keys)]
        seen = self.seen.get(key.experiment, ())
        return not rules or any(rule.counts(seed, seen=seen) for rule in rules)

    def network_title(self, experiment: str, network: str) -> str:
        """Return how a network is written for people."""
        titles = self.network_titles
        return titles.get((experiment, network), titles.get(("", network), network))

    def restrict(self, experiments: Iterable[Experiment]) -> "Study":
        """Return the study of these experiments alone.

        Claims and figures that need none of their runs are left out.
        """
        part = replace(self, experiments=tuple(experiments))
        figures = tuple(figure for figure in self.figures if figure.needs(part.keys))
        names = {figure.name for figure in figures}
        return replace(
            part,
            claims=tuple(rule for rule in self.claims if rule.needs(part.keys)),
            figures=figures,
            page_tables=tuple(table for table in self.page_tables if table.needs(part.keys)),
            highlights=tuple(name for name in self.highlights if name in names),
        )


def study_of(experiment: Experiment, title: str = "") -> Study:
    """Return an experiment with claims and figures of its own as a study."""
    return Study(
        experiment.name,
        title or experiment.name,
        experiment.scale,
        (experiment,),
        experiment.claims,
        experiment.figures,
    )


def select_runs(
    experiment: Experiment, keys: Iterable[RunKey], *, seeds: tuple[int, ...]
) -> Experiment:
    """Return the experiment with some of its runs and seeds, and its cost in proportion."""
    runs = {key: experiment.runs[replace(key, experiment=experiment.name)] for key in keys}
    seconds = experiment.expected_seconds
    share = len(runs) * len(seeds) / (len(experiment.runs) * len(experiment.seeds))
    return replace(
        experiment,
        runs=runs,
        seeds=seeds,
        expected_seconds=None if seconds is None else seconds * share,
    )
