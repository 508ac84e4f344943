"""A run of the perturbation experiment (boix2023, App. C, figs. 9 and 10) with direct checks."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rankscope.lab.papers.boix2023.simulations.algorithm import stage_values, stage_variables
from rankscope.lab.papers.boix2023.simulations.flow import coordinates
from rankscope.lab.papers.boix2023.simulations.task import Task, Toy
from rankscope.store import Variable, Writer
from rankscope.theory import DiagonalNetwork, Stage, incremental
from rankscope.theory.assumptions import (
    check_noise_robustness,
    check_nondegeneracy,
    check_return_to_rest,
    check_strict_minima,
)
from rankscope.theory.perturbation import NOISES, Kind, Noise, Reference, Trial, trial

ACTIVE = 1e-2  # smallest |z| of an active coordinate; non-negligible ones below it are rising

# Details of the direct checks, one number for each stage.
CHECKED = ("relative_margin", "left_drive", "constant", "independent", "tied", "reached")

# A tenth of the work is Algorithm 1, a tenth the unperturbed run and the checks.
BEFORE_TRIALS = 0.2


@dataclass(frozen=True)
class PerturbationRun:
    """Perturb the flow from one alpha, at random times and as coordinates become non-negligible.

    stages: number of stages of Algorithm 1; perturbations happen before the last of them.
    epoch: length of an epoch in units of 1 / max |g(0)|, a weight's first e-folding.
    epochs: number of epochs after a perturbation.
    plateaus: number of random times; their noise is `plateau_std`, that of the others `active_std`.
    draws: noisy starts in each stage of the direct check of Assumption 4.4.

    The direct checks of the assumptions hold for alpha -> 0. They put the same noise on each
    theta^k while nothing else moves.
    """

    task: Task
    log10_alpha: float
    stages: int
    epoch: float = 0.04
    epochs: int = 1000
    plateaus: int = 5
    plateau_std: float = 0.05
    active_std: float = 1e-2
    draws: int = 1

    def execute(self, path: Path, *, seed: int, progress: Callable[[float], None]) -> None:
        toy = self.task.build(seed)
        stages = list(incremental(toy.network, self.stages))
        progress(BEFORE_TRIALS / 2)
        log_alpha = self.log10_alpha * math.log(10)
        epoch = self.epoch / float(toy.network.g(torch.zeros_like(toy.u0)).abs().max())
        until = stages[-1].time + self.epochs * epoch / -log_alpha
        with self._create(path, toy.network) as writer:
            self._write_stages(writer, toy, stages, epoch, seed)
            reference = Reference.run(toy.network, toy.u0, toy.v0, log_alpha, until, epoch=epoch)
            progress(BEFORE_TRIALS)
            planned = list(self._plan(reference, seed))
            for number, (kind, noise, start) in enumerate(planned):
                result = trial(
                    reference,
                    start,
                    kind=kind,
                    noise=noise,
                    std=self.plateau_std if kind == "plateau" else self.active_std,
                    epochs=recorded_epochs(self.epochs),
                    generator=torch.Generator().manual_seed(1000 * seed + number),
                )
                writer.append(number, trial_values(result), along="trial")
                progress(BEFORE_TRIALS + (1 - BEFORE_TRIALS) * (number + 1) / len(planned))

    def _write_stages(
        self, writer: Writer, toy: Toy, stages: Sequence[Stage], epoch: float, seed: int
    ) -> None:
        """Write the stages with the numbers of the checks, and their sentences as attributes."""
        network, generator = toy.network, torch.Generator().manual_seed(seed)
        checks = (
            check_nondegeneracy(network, stages, toy.u0, toy.v0),
            check_strict_minima(network, stages, radius=self.plateau_std),
            check_return_to_rest(
                network, stages, self.epochs * epoch, std=self.plateau_std, generator=generator
            ),
            check_noise_robustness(
                network, stages, std=self.active_std, draws=self.draws, generator=generator
            ),
        )
        details = {name: by_stage for check in checks for name, by_stage in check.details.items()}
        for stage in stages:
            numbers = {f"stage_{name}": details[name][stage.index] for name in CHECKED}
            writer.append(stage.index, {**stage_values(stage, network), **numbers}, along="stage")
        writer.set_attrs({"epoch_time": epoch, "assumptions": [check.sentence for check in checks]})

    def _plan(self, reference: Reference, seed: int) -> Iterator[tuple[Kind, Noise, int]]:
        """Yield the perturbations: those at random epochs, then those of newly active weights."""
        last = len(reference.y) - 1 - self.epochs
        active = [epoch for epoch in reference.newly_active() if epoch <= last]
        generator = torch.Generator().manual_seed(seed)
        shape = (self.plateaus,) if active else (0,)
        random = torch.randint(min(active, default=0), last + 1, shape, generator=generator)
        for start in sorted(random.tolist()):
            yield from (("plateau", noise, start) for noise in NOISES)
        for start in active:
            yield from (("newly active", noise, start) for noise in NOISES)

    def _create(self, path: Path, network: DiagonalNetwork) -> Writer:
        epochs = np.array(recorded_epochs(self.epochs), dtype=np.float64)
        named = coordinates(network)
        del named["kind"]  # here `kind` is that of a trial; the labels hold the coordinate's
        checked = {f"stage_{name}": Variable(("stage",), np.float64) for name in CHECKED}
        return Writer.create(
            path,
            coords={"time": (("time",), epochs), **named},
            variables={**trial_variables(), **stage_variables(), **checked},
            attrs={"log10_alpha": self.log10_alpha},
        )


def recorded_epochs(last: int) -> tuple[int, ...]:
    """Return 0 and about twenty epochs to a decade up to the last."""
    spaced = np.geomspace(1, last, 20 * math.ceil(math.log10(last)) + 1)
    return (0, *sorted({round(epoch) for epoch in spaced}))


def trial_variables() -> dict[str, Variable]:
    """Variables of a trial; `time` counts epochs since the perturbation."""
    along, over_time, whole = ("trial",), ("trial", "time"), ("trial", "time", "coordinate")
    return {
        "kind": Variable(along, str),
        "noise": Variable(along, str),
        "std": Variable(along, np.float64),
        "start_time": Variable(along, np.float64),
        "perturbed": Variable(along, np.int64),
        "rising": Variable(along, np.int64),
        "activated": Variable(along, np.int64),
        "distance": Variable(over_time, np.float64),
        "distance_all": Variable(over_time, np.float64),
        "perturbed_z": Variable(whole, np.float64),
        "unperturbed_z": Variable(whole, np.float64),
    }


def trial_values(result: Trial) -> dict[str, Any]:
    """Return one row of each variable.

    perturbed: number of perturbed coordinates. rising: how many of these were still inactive.
    activated: how many more coordinates became active in the unperturbed run.
    """
    active = result.unperturbed_z.abs() > ACTIVE
    as_they_are = ("kind", "noise", "std", "start_time", "distance", "distance_all")
    return {
        **{name: getattr(result, name) for name in as_they_are},
        "perturbed": int(result.perturbed.sum()),
        "rising": int((result.perturbed & ~active[0]).sum()),
        "activated": int((active[-1] & ~active[0]).sum()),
        "perturbed_z": torch.where(result.perturbed, result.perturbed_z, torch.nan),
        "unperturbed_z": torch.where(result.perturbed, result.unperturbed_z, torch.nan),
    }
