"""Stored runs as claims and figures get them: whole, and selected by what they are."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rankscope.lab.running.run_key import RunKey, Value

# Seed -> the xarray Dataset of that run.
Seeds = Mapping[int, Any]

# Chooses from the declared runs those that a claim or figure reads.
Needs = Callable[[Sequence[RunKey]], Collection[RunKey]]


@dataclass(frozen=True)
class Runs:
    """Runs by key and seed. A seed is here only if every run needed of its network is whole.

    `runs.of("resnet").by("decay")[0.001][0]` is the Dataset of seed 0.
    """

    entries: Mapping[RunKey, Seeds] = field(default_factory=dict)

    def of(self, network: str) -> "Runs":
        """Return the runs of one network."""
        return self._where(lambda key: key.network == network)

    def kind(self, kind: str) -> "Runs":
        """Return the runs of one kind, such as "algorithm"."""
        return self._where(lambda key: key.kind == kind)

    def by(self, parameter: str) -> dict[Any, Seeds]:
        """Return value -> seeds for the runs that have this parameter, by ascending value."""
        by_value: dict[Value, Seeds] = {}
        for key, seeds in self.entries.items():
            value = key.variant.get(parameter)
            if value is None:
                continue
            if value in by_value:
                raise ValueError(f"two runs have {parameter} {value}: select one network first")
            by_value[value] = seeds
        return dict(sorted(by_value.items()))

    @property
    def networks(self) -> list[str]:
        """The networks in declared order."""
        return list(dict.fromkeys(key.network for key in self.entries))

    @property
    def seeds(self) -> list[int]:
        """Every seed that some run has, ascending."""
        return sorted({seed for seeds in self.entries.values() for seed in seeds})

    @property
    def only(self) -> Seeds:
        """The seeds of the single run that is left."""
        (seeds,) = self.entries.values()
        return seeds

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[RunKey]:
        return iter(self.entries)

    def __getitem__(self, key: RunKey) -> Seeds:
        return self.entries[key]

    def _where(self, condition: Callable[[RunKey], bool]) -> "Runs":
        return Runs({key: seeds for key, seeds in self.entries.items() if condition(key)})


def all_runs(keys: Sequence[RunKey]) -> Collection[RunKey]:
    """Need every declared run."""
    return keys


def runs_of(*networks: str, parameter: str = "", kind: str = "", experiment: str = "") -> Needs:
    """Return the needs of a claim that reads these networks; all networks if none is named.

    parameter: only runs whose variant has it. kind: only runs of this kind.
    experiment: only runs of this experiment.
    """

    def needs(keys: Sequence[RunKey]) -> Collection[RunKey]:
        return [
            key
            for key in keys
            if (not networks or key.network in networks)
            and (not parameter or parameter in key.variant)
            and (not kind or key.kind == kind)
            and (not experiment or key.experiment == experiment)
        ]

    return needs
