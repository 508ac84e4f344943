"""Held-out values of a trained network whose attention heads changed in few directions only."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import xarray as xr
from torch import nn

from rankscope.interventions import truncate
from rankscope.lab.training.task import Problem
from rankscope.matrices import Manifest, difference, manifest, views
from rankscope.spectra import Svd, decompose

Cut = Literal["kq", "vo", "both"]
CUTS: tuple[Cut, ...] = get_args(Cut)
ROLES: dict[Cut, str] = {"kq": "qk", "vo": "vo", "both": "qkvo"}
ATTRIBUTE = "head_cuts"  # of a stored run


@dataclass(frozen=True)
class HeadCuts:
    """Values to measure once at the end: those of the network with its heads' changes cut.

    Each head's slices of W_Q, W_K, W_V and W_O become W0 plus the best part of rank r of W - W0.
    K-Q and V-O are cut alone and together; the rest is as trained.

    ranks: the ranks r, ascending. Rank 0, the initial heads, is measured too.
    """

    ranks: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.ranks or self.ranks[0] < 1 or list(self.ranks) != sorted(set(self.ranks)):
            raise ValueError(f"ranks of cuts must ascend from 1 or more, got {self.ranks}")

    def measure(self, problem: Problem, initial: nn.Module) -> dict[str, Any]:
        """Return the held-out values of every cut, at the start and at the end, as plain JSON.

        initial: the network before training. Both networks are in eval mode, without gradients.
        """
        trained, ranks = problem.model, (0, *self.ranks)
        slices = head_slices(manifest(trained))
        known = self._directions(trained, initial, slices["both"])
        measured: dict[str, Any] = {
            "ranks": list(ranks),
            "start": dict(problem.validate(initial)),
            "end": dict(problem.validate(trained)),
        }
        for cut, names in slices.items():
            values = [
                problem.validate(
                    truncate(
                        trained,
                        reference=initial,
                        rank=dict.fromkeys(names, rank),
                        decompositions=known,
                    )
                )
                for rank in ranks
            ]
            measured[cut] = {name: [value[name] for value in values] for name in values[0]}
        return {ATTRIBUTE: measured}

    def _directions(
        self, trained: nn.Module, initial: nn.Module, names: tuple[str, ...]
    ) -> dict[str, Svd]:
        """Return the decompositions of the slices' changes, which all cuts share."""
        now, before = (views(model, include=names, parts=True) for model in (trained, initial))
        changes = {name: difference(now[name].W, before[name].W) for name in names}
        most = {name: min(*change.shape, self.ranks[-1]) for name, change in changes.items()}
        return decompose(changes, ranks=most)


def head_slices(network: Manifest) -> dict[Cut, tuple[str, ...]]:
    """Return the names of the slices of heads that each cut changes."""
    heads = [
        part.name
        for attention in network.attentions
        for part in attention.parts()
        if part.kind == "head"
    ]
    if not heads:
        raise ValueError("cuts of heads are declared, and the network has no attention head")
    return {
        cut: tuple(name for name in heads if name.rpartition(".")[2] in roles)
        for cut, roles in ROLES.items()
    }


@dataclass(frozen=True)
class CutAccuracies:
    """Held-out accuracies that `HeadCuts` stored with a run.

    start, end: of the initial and of the trained network. cuts: by kind, one for each of `ranks`.
    """

    ranks: np.ndarray
    start: float
    end: float
    cuts: Mapping[Cut, np.ndarray]

    @classmethod
    def of_run(cls, ds: xr.Dataset) -> "CutAccuracies | None":
        """Return what a run has stored; None if it has nothing, as when it diverged."""
        stored = ds.attrs.get(ATTRIBUTE)
        if stored is None:
            return None
        return cls(
            ranks=np.array(stored["ranks"]),
            start=float(stored["start"]["validation_accuracy"]),
            end=float(stored["end"]["validation_accuracy"]),
            cuts={cut: np.array(stored[cut]["validation_accuracy"]) for cut in CUTS},
        )

    @property
    def gained(self) -> float:
        """Accuracy at the end minus that at the start."""
        return self.end - self.start

    def kept(self, cut: Cut) -> np.ndarray:
        """Share of the accuracy gained that is kept at each rank; 1 is all, 0 that of the start."""
        return (self.cuts[cut] - self.start) / self.gained

    def needed(self, cut: Cut, share: float) -> float:
        """Return the smallest rank above 0 that keeps a share, or infinity if none does."""
        enough = self.ranks[(self.kept(cut) >= share) & (self.ranks > 0)]
        return float(enough[0]) if len(enough) else math.inf
