"""A paper: its experiments, and what their runs show when they are looked at together.

Each lives in `lab/papers/<paper>.py`, whose one function is `paper(scale) -> Paper`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

from rankscope.lab.experiment import Claim, Experiment, FigureMaker, Scale


@dataclass(frozen=True)
class Paper:
    """Experiments of one scale, and claims and figures that are made of the runs of all of them.

    name: "yunis2024". title: as printed. With no claims and figures of its own, a paper is what
    its experiments say, each for itself.
    """

    name: str
    title: str
    scale: Scale
    experiments: tuple[Experiment, ...]
    claims: Mapping[str, Claim] = field(default_factory=dict)
    figures: Mapping[str, FigureMaker] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for experiment in self.experiments:
            paper, _, name = experiment.name.partition("/")
            if paper != self.name or experiment.scale != self.scale or name.startswith("report-"):
                raise ValueError(
                    f"paper {self.name!r} at scale {self.scale!r} cannot have the experiment "
                    f"{experiment.name!r} at scale {experiment.scale!r}"
                )
        names = list(chain.from_iterable(experiment.runs for experiment in self.experiments))
        if self.joint and len(set(names)) < len(names):
            raise ValueError(f"paper {self.name!r}: two experiments have a run of the same name")

    @property
    def joint(self) -> bool:
        """Whether the runs of all experiments are judged together."""
        return bool(self.claims or self.figures)


def cut(paper: Paper, runs: Mapping[str, tuple[str, ...]], *, seeds: tuple[int, ...]) -> Paper:
    """The part of a paper that has only `runs` (by experiment) and `seeds`.

    Figures that none of its experiments draws, as those of networks that it lacks, are left out.
    """
    kept = [experiment for experiment in paper.experiments if experiment.name in runs]
    drawn = set(chain.from_iterable(experiment.figures for experiment in kept))
    return replace(
        paper,
        experiments=tuple(_cut(each, runs[each.name], seeds) for each in kept),
        figures={name: maker for name, maker in paper.figures.items() if name in drawn},
    )


def _cut(experiment: Experiment, runs: tuple[str, ...], seeds: tuple[int, ...]) -> Experiment:
    seconds = experiment.expected_seconds
    share = len(runs) * len(seeds) / (len(experiment.runs) * len(experiment.seeds))
    return replace(
        experiment,
        runs={name: experiment.runs[name] for name in runs},
        seeds=seeds,
        expected_seconds=None if seconds is None else seconds * share,
    )
