"""Setup of a tracker: what it measures and where, from a model and a user's options."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import nn

from rankscope import snapshot
from rankscope.matrices import Views, views
from rankscope.measures import Measure, Subject
from rankscope.measures.protocol import Warn
from rankscope.pairs import Pair
from rankscope.tracker.budget import Budget
from rankscope.tracker.defaults import (
    MeasurerKind,
    cut_to_leading,
    default_pairs,
    measuring_device,
    without_refuted,
)
from rankscope.tracker.gauging import Gauges
from rankscope.tracker.probe import Probe
from rankscope.tracker.reference import Reference, describe_reference
from rankscope.tracker.schedules import Schedule
from rankscope.tracker.watch import Watch
from rankscope.verification import verified_manifest


@dataclass(frozen=True)
class Setup:
    """A plan and the tensors it needs.

    home: device on which the model trains.
    device: device that decomposes.
    """

    chosen: Views
    plan: snapshot.Plan
    watch: Watch
    home: torch.device
    device: torch.device
    gauges: Gauges

    def facts(
        self, *, schedule: Schedule, reference: Reference, budget: Budget | None
    ) -> dict[str, Any]:
        """Return the attributes of the run."""
        return {
            "schedule": repr(schedule),
            "spectrum": self.plan.leading or "full",
            **({} if budget is None else {"budget": budget.share}),
            "reference": describe_reference(reference),
            "coverage": str(self.chosen.coverage),
            "manifest": self.chosen.manifest.to_json(),
            **self.gauges.attrs,
        }


def set_up(
    model: nn.Module,
    *,
    include: str | Sequence[str] | None,
    exclude: str | Sequence[str] | None,
    raw: bool,
    example: Any,
    pairs: Sequence[Pair] | None,
    products: bool,
    top: int,
    spectrum: int | Literal["auto", "full"],
    probe: Probe | None,
    device: torch.device | str | None,
    beside: MeasurerKind | None,
    measures: Sequence[Measure],
    warn: Warn,
) -> Setup:
    """Return the setup for these options of `Tracker`; ValueError if there is nothing to track."""
    like = verified_manifest(model, example, raw=raw)
    chosen = views(model, like=like, include=include, exclude=exclude, raw=raw)
    plan = snapshot.plan(
        chosen,
        pairs=default_pairs(model, chosen)
        if pairs is None
        else without_refuted(pairs, chosen.manifest),
        products=products,
        top=top,
        directions={} if probe is None else probe.directions,
    )
    plan = cut_to_leading(plan, spectrum)
    subject = Subject(model, plan, chosen.manifest.attentions, warn)
    gauges = Gauges(measures, subject)
    asked = {
        name: max(rank, plan.directions.get(name, 0)) for name, rank in gauges.directions.items()
    }
    plan = replace(plan, directions={**plan.directions, **asked})
    watch = Watch(model, plan, raw=raw, everything=probe is not None)
    if not plan.readings:
        raise ValueError(
            "the model has no matrix to track: no parameter that is chosen and can be read has two "
            "or more axes; print rankscope.views(model).coverage to see what it has"
        )
    tensors = watch.tensors()
    home = tensors.behind(plan.readings[0].parameter)[0].device
    measured_on = measuring_device(home, plan) if device is None else torch.device(device)
    if beside == "process" and measured_on.type != "cpu":
        raise ValueError('a process measures on the host; pass device="cpu" or beside="thread"')
    return Setup(chosen, plan, watch, home, measured_on, gauges)


def check_options(
    model: object, *, when_full: str, beside: str | None, places: int, top: int
) -> None:
    """Raise ValueError if an argument of `Tracker` has a value it does not take."""
    if not isinstance(model, nn.Module):
        raise ValueError(
            f"model: expected a torch.nn.Module, got {type(model).__name__}; rankscope.views() "
            "reads state dicts"
        )
    for name, value, choices in (
        ("when_full", when_full, ("block", "skip")),
        ("beside", beside, (None, "thread", "process")),
    ):
        if value not in choices:
            known = ", ".join(map(repr, choices))
            raise ValueError(f"{name}: expected one of {known}, got {value!r}")
    if min(places, top) < 1:
        raise ValueError(f"places and top must be at least 1, got {places} and {top}")
