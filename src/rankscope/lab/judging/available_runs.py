"""The stored runs of experiments, and what happens where one is missing.

Runs of one network stand or fall together: if a claim needs several runs of a network and a seed
lacks one of them, the claim does not get that seed of the network, and the verdict names it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import xarray as xr

from rankscope import store
from rankscope.lab.experiment import Experiment, Study
from rankscope.lab.judging.selected_runs import Needs, Runs
from rankscope.lab.judging.verdict import Missing
from rankscope.lab.running.run_key import RunKey
from rankscope.lab.running.stored_run import State, StoredRun, runs_on_disk, stored_runs

REASONS: dict[State, str] = {
    "missing": "was not run",
    "interrupted": "was not finished",
    "changed": "was run as it was declared before",
    "foreign": "was not made by an experiment",
}
IN_MEMORY = 2**26  # bytes; smaller runs are read once instead of once per claim


@dataclass(frozen=True)
class AvailableRuns:
    """Run -> seed -> the Dataset, or the reason why it is not there."""

    entries: Mapping[RunKey, Mapping[int, xr.Dataset | str]]

    @property
    def empty(self) -> bool:
        """Whether no run is whole."""
        return all(
            isinstance(entry, str) for seeds in self.entries.values() for entry in seeds.values()
        )

    def select(self, needs: Needs) -> tuple[Runs, tuple[Missing, ...]]:
        """Return the needed runs of every complete seed, and what the other seeds lack."""
        networks: dict[tuple[str, str], list[RunKey]] = {}
        for key in needs(list(self.entries)):
            networks.setdefault((key.experiment, key.network), []).append(key)
        chosen: dict[RunKey, dict[int, xr.Dataset]] = {}
        missing: list[Missing] = []
        for keys in networks.values():
            seeds = sorted({seed for key in keys for seed in self.entries[key]})
            for key in keys:
                chosen[key] = {}
            lacking: dict[tuple[tuple[str, ...], str], list[int]] = {}
            for seed in seeds:
                reasons = {key: reason for key in keys if (reason := self._reason(key, seed))}
                for key in keys if not reasons else ():
                    dataset = self.entries[key][seed]
                    assert not isinstance(dataset, str)
                    chosen[key][seed] = dataset
                for reason in dict.fromkeys(reasons.values()):
                    titles = tuple(key.title for key in reasons if reasons[key] == reason)
                    lacking.setdefault((titles, reason), []).append(seed)
            missing += [
                Missing(keys[0].experiment, keys[0].network, titles, tuple(seeds_without), reason)
                for (titles, reason), seeds_without in lacking.items()
            ]
        whole = {key: seeds for key, seeds in chosen.items() if seeds}
        return Runs(whole), tuple(missing)

    def _reason(self, key: RunKey, seed: int) -> str:
        entry = self.entries[key].get(seed, REASONS["missing"])
        return entry if isinstance(entry, str) else ""


def load_runs(
    experiments: Iterable[Experiment], out: Path, *, seeds: tuple[int, ...] = ()
) -> AvailableRuns:
    """Read the stored runs of experiments below `out`.

    A seed takes part if one of its runs is whole or if it is among `seeds`. Where nothing is
    stored, every declared seed is listed with the reason.
    """
    entries: dict[RunKey, Mapping[int, xr.Dataset | str]] = {}
    for experiment in experiments:
        on_disk = {run.seed for run in runs_on_disk(experiment, out)}
        candidates = sorted({*experiment.seeds, *seeds, *on_disk})
        stored = {
            (run.key, run.seed): run
            for run in stored_runs(experiment, out, seeds=tuple(candidates))
        }
        read = {place: _read(run) for place, run in stored.items()}
        begun = {seed for (_, seed), entry in read.items() if not isinstance(entry, str)}
        listed = [seed for seed in candidates if seed in begun or seed in seeds] or candidates
        for key in experiment.runs:
            entries[key] = {seed: read[key, seed] for seed in listed}
    return AvailableRuns(entries)


def stored_part(study: Study, out: Path) -> Study:
    """Return the study of the experiments of which some run is whole below `out`."""
    return study.restrict(
        experiment
        for experiment in study.experiments
        if any(run.state == "whole" for run in runs_on_disk(experiment, out))
    )


def _read(stored: StoredRun) -> xr.Dataset | str:
    """Return the stored run, or the reason why it is not there."""
    state = stored.state
    if state == "whole":
        ds = store.open(stored.path)
        return ds.load() if ds.nbytes < IN_MEMORY else ds
    return f"failed ({stored.failure})" if stored.failure else REASONS[state]
