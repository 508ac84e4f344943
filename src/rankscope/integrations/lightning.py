"""A callback for Lightning, whether it is imported as lightning or as pytorch_lightning."""

import sys
import types
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from rankscope.extras import needed_by
from rankscope.integrations.following import Following, Gates
from rankscope.tracker import Tracker

if TYPE_CHECKING:
    from lightning.pytorch import Callback, LightningModule, Trainer
else:
    PACKAGES = ("lightning.pytorch", "pytorch_lightning")
    IMPORTED = [name for name in PACKAGES if sys.modules.get(name)]
    INSTALLED = [name for name in PACKAGES if find_spec(name.partition(".")[0])]
    if not IMPORTED and not INSTALLED:
        with needed_by("rankscope.integrations.lightning"):
            import_module("lightning")
    # Each of the two accepts callbacks of its own base class only.
    BASES = tuple(import_module(name).Callback for name in IMPORTED or INSTALLED)
    Callback = types.new_class("Callback", BASES)


class RankCallback(Callback):
    """Track a training: `Trainer(callbacks=[RankCallback("runs/first")])`.

    A step is an optimizer step, and a snapshot shows the weights before it. The loss of the last
    batch, the learning rate, the epoch and what the module has logged are stored with it. A
    training that resumes from a checkpoint continues the run.

    model: the model to follow instead of the trainer's, such as a moving average of it.
    gates: gates that end the training: `StopIf("stable_rank < 2")`.
    forgiving: warn of a mistake in the options instead of raising it.
    options: all others are those of `Tracker`.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        model: nn.Module | None = None,
        gates: Gates = (),
        forgiving: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        self._path = path
        self._following = Following(
            path, model=model, gates=gates, options=options, forgiving=forgiving
        )
        self._loss: torch.Tensor | None = None

    @property
    def tracker(self) -> Tracker | None:
        """The tracker while a training runs."""
        return self._following.tracker

    @property
    def state_key(self) -> str:
        """Key of this callback, another for each run."""
        return f"RankCallback({str(self._path)!r})"

    def on_train_start(self, trainer: "Trainer", pl_module: "LightningModule") -> None:
        self._loss = None
        self._following.begin(pl_module, trainer.global_step)

    def on_train_batch_start(
        self, trainer: "Trainer", pl_module: "LightningModule", batch: Any, batch_idx: int
    ) -> None:
        self._following.observe(trainer.global_step, lambda: self._scalars(trainer))

    def on_train_batch_end(
        self,
        trainer: "Trainer",
        pl_module: "LightningModule",
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        # Lightning divides the loss by the number of batches that it accumulates itself.
        parts = trainer.accumulate_grad_batches if pl_module.automatic_optimization else 1
        self._loss = loss.detach() * parts if isinstance(loss, torch.Tensor) else None
        if self._following.reached(trainer.global_step):
            trainer.should_stop = True

    def on_train_epoch_end(self, trainer: "Trainer", pl_module: "LightningModule") -> None:
        # Here, because at the end a callback may have put averaged weights into the model.
        is_last = trainer.current_epoch + 1 == trainer.max_epochs
        if is_last or trainer.should_stop or trainer.global_step == trainer.max_steps:
            self._following.snapshot(trainer.global_step, lambda: self._scalars(trainer))

    def on_train_end(self, trainer: "Trainer", pl_module: "LightningModule") -> None:
        self._following.end(trainer.global_step, lambda: self._scalars(trainer))

    def on_exception(
        self, trainer: "Trainer", pl_module: "LightningModule", exception: BaseException
    ) -> None:
        self._following.close()

    def teardown(self, trainer: "Trainer", pl_module: "LightningModule", stage: str) -> None:
        self._following.close()

    def _scalars(self, trainer: "Trainer") -> dict[str, Any]:
        scalars: dict[str, Any] = {"epoch": trainer.current_epoch}
        if self._loss is not None:
            scalars["loss"] = self._loss
        if trainer.optimizers:
            scalars["learning_rate"] = trainer.optimizers[0].param_groups[0]["lr"]
        return {**scalars, **trainer.callback_metrics}
