"""Scalars that a training loop passes: which can be stored, and why others cannot."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rankscope import snapshot
from rankscope.store.names import can_name_scalar
from rankscope.tracker.buffers import Number, detached
from rankscope.tracker.notices import Notices


class Scalars:
    """Checks names and values of scalars; what cannot be stored is dropped with one warning."""

    def __init__(
        self,
        plan: snapshot.Plan,
        every_step: str | Sequence[str],
        notices: Notices,
        *,
        taken: Collection[str] = (),
    ) -> None:
        """`taken` are names of variables that measures add to the run."""
        self.every_step = (every_step,) if isinstance(every_step, str) else tuple(every_step)
        self._taken = _names_of(plan) | {f"{name}_every_step" for name in self.every_step}
        self._taken |= set(taken)
        self._notices = notices
        for name in self.every_step:
            if problem := name_problem(name, self._taken):
                raise ValueError(f"every_step: {problem}")

    def usable(self, scalars: Mapping[str, Any]) -> dict[str, Number]:
        """Return copies of the scalars that can be stored."""
        numbers: dict[str, Number] = {}
        for name, value in scalars.items():
            problem = name_problem(name, self._taken) or value_problem(name, value)
            if problem:
                self._notices.once(f"scalar {name}", f"{problem}; the spectra are stored")
            else:
                numbers[name] = detached(value)
        return numbers

    def usable_at_every_step(self, scalars: Mapping[str, Any]) -> dict[str, Number]:
        """Return those of `every_step` among the scalars."""
        return self.usable({name: scalars[name] for name in self.every_step if name in scalars})


def name_problem(name: str, taken: Collection[str]) -> str:
    """Return why `name` cannot name a scalar, or ""."""
    if name in taken or name.startswith("tracker_"):
        return f"the scalar {name!r} has the name of another variable of the run; rename it"
    if not can_name_scalar(name):
        return (
            f"the scalar {name!r} cannot be stored under this name; use letters, digits and "
            "underscores, such as train_loss"
        )
    return ""


def value_problem(name: str, value: object) -> str:
    """Return why `value` is not one number, or ""."""
    if isinstance(value, Tensor | np.ndarray):
        complex_numbers = torch.is_complex(value) if isinstance(value, Tensor) else False
        if complex_numbers or np.prod(value.shape, dtype=int) != 1:
            kind = "complex" if complex_numbers else f"of shape {tuple(value.shape)}"
            return (
                f"the scalar {name!r} is {kind}, not one real number; pass its mean, for instance"
            )
        if isinstance(value, Tensor):
            return "" if not value.is_meta else f"the scalar {name!r} has no value (meta device)"
        value = value.item()
    try:
        float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return f"the scalar {name!r} is {value!r}, not a number; leave it out where it has no value"
    return ""


def _names_of(plan: snapshot.Plan) -> set[str]:
    """Return the names of the coordinates and variables of a run."""
    dtypes = dict.fromkeys(plan.parameters, torch.float32)
    coords, variables = snapshot.layout(plan, dtypes, change=True)
    return {*coords, *variables, "step", "train_step"}
