"""A run: something that is computed once and stored, and the key that identifies it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

Value = float | int | str
LOG10 = "log10_"


@dataclass(frozen=True)
class RunKey:
    """Key of one run of an experiment. Paths and titles derive from it.

    network: what is trained or simulated, "resnet".
    variant: the parameters in which runs of a network differ, {"decay": 0.001}.
    kind: names a run beside the variants, "algorithm".
    experiment: the experiment's name; `Experiment` fills it in.
    """

    network: str
    variant: Mapping[str, Value] = field(default_factory=dict)
    kind: str = ""
    experiment: str = ""

    def __hash__(self) -> int:
        return hash((self.network, tuple(sorted(self.variant.items())), self.kind, self.experiment))

    @property
    def name(self) -> str:
        """Path below the experiment's folder: "resnet/decay-0.001", "teacher/algorithm"."""
        return "/".join(filter(None, (self.network, self.kind, variant_name(self.variant))))

    @property
    def title(self) -> str:
        """Title as people read it: "resnet, decay 0.001"."""
        return ", ".join(filter(None, (self.network, self.kind, variant_title(self.variant))))


def variant_name(variant: Mapping[str, Value]) -> str:
    """File name of a variant.

    {"decay": 0.1} gives "decay-0.1", {"labels": "true"} "true-labels" and {"log10_alpha": -8.0}
    "alpha-1e-8", since alphas of 1e-1000 are no floats.
    """
    return ",".join("-".join(_words(name, value)) for name, value in variant.items())


def variant_title(variant: Mapping[str, Value]) -> str:
    """A variant in words: "decay 0.1", "true labels", "alpha 1e-8"."""
    return ", ".join(" ".join(_words(name, value)) for name, value in variant.items())


def _words(name: str, value: Value) -> tuple[str, str]:
    if isinstance(value, str):
        return value, name
    if name.startswith(LOG10):
        return name.removeprefix(LOG10), f"1e{value:g}"
    return name, f"{value:g}"


def with_experiment(text: str, experiment: str, network: str) -> str:
    """Return the text after the last word of the experiment's name, unless the network has it.

    Networks of two experiments may have the same name: "toy-small: head" and "toy-large: head".
    """
    name = experiment.rpartition("/")[2]
    return text if name in ("", network) else f"{name}: {text}"


@runtime_checkable
class Progress(Protocol):
    """Takes the finished fraction, 0 to 1, any number of times, and a short note."""

    def __call__(self, fraction: float, note: str = "") -> None: ...


@runtime_checkable
class Run(Protocol):
    """Something that can be computed and stored: a flow, a training, an algorithm.

    Implementations are frozen dataclasses. Their fields are the run's identity: a run is computed
    again only if they or the seed change. Declare `field(compare=False)` for a field that does not
    matter. Runs are sent to other processes, so build large objects in `execute`.
    """

    def execute(self, path: Path, *, seed: int, progress: Progress) -> None:
        """Write one store at `path`, which is free, and close it.

        The laboratory adds declaration, seed, versions and wall time to the store's attributes.
        An exception is recorded as the run's failure; other runs go on.
        """


@runtime_checkable
class ResumableRun(Run, Protocol):
    """A run that can continue from what an interrupted execution left at `path`."""

    def forget(self, path: Path) -> None:
        """Remove the files beside the store that only serve to resume."""
