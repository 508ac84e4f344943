"""A callback for the Trainer of transformers, and for trainers made from it, such as TRL's."""

from pathlib import Path
from typing import Any

from torch import nn

from rankscope.extras import needed_by
from rankscope.integrations.following import Following, Gates
from rankscope.tracker import Tracker

with needed_by("rankscope.integrations.transformers"):
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments


class RankCallback(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Track a training: `Trainer(..., callbacks=[RankCallback("runs/first")])`.

    A step is an optimizer step, and a snapshot shows the weights before it. The numbers that the
    trainer has logged last, such as loss, learning_rate and grad_norm, are stored with the epoch. A
    training that resumes from a checkpoint continues the run.

    model: the model to follow instead of the trainer's, such as a moving average of it.
    gates: gates that end the training: `StopIf("stable_rank < 2")`.
    options: all others are those of `Tracker`.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        model: nn.Module | None = None,
        gates: Gates = (),
        **options: Any,
    ) -> None:
        self._following = Following(path, model=model, gates=gates, options=options)
        self._logged: dict[str, Any] = {}

    @property
    def tracker(self) -> Tracker | None:
        """The tracker while a training runs."""
        return self._following.tracker

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._logged = {}
        self._following.begin(kwargs["model"], state.global_step)

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._following.observe(state.global_step, lambda: self._scalars(state))

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self._following.reached(state.global_step):
            control.should_training_stop = True

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self._logged |= logs or {}

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        # Here, because at the end the trainer may have loaded the best weights instead.
        if state.global_step >= state.max_steps or control.should_training_stop:
            self._following.snapshot(state.global_step, lambda: self._scalars(state))

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._following.end(state.global_step, lambda: self._scalars(state))

    def _scalars(self, state: TrainerState) -> dict[str, Any]:
        return {**self._logged, "epoch": state.epoch or 0.0}
