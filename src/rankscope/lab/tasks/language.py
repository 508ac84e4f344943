"""Prediction of the next token of a text (yunis2024, app. C.4)."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from rankscope.lab.data.tokens import TokenData, Tokens
from rankscope.lab.models.transformer import Transformer, TransformerConfig
from rankscope.lab.tasks.constant import frequency_entropy
from rankscope.lab.training.task import Batch, Machine, Problem

EVALUATION_TOKENS = 32_768  # in one batch


@dataclass(frozen=True)
class LanguageModelling:
    """Cross-entropy of each token given those before it in its window of `model.context` tokens.

    An epoch sees each window of the text once; windows do not overlap. The model gets the
    vocabulary of the text. Text and split are the same for every seed.
    validation_windows: largest number of windows to evaluate, evenly spread over held-out text.
    """

    text: TokenData
    model: TransformerConfig
    validation_windows: int = 128

    def build(self, machine: Machine, *, seed: int) -> "LanguageProblem":
        tokens = self.text.build(folder=machine.data)
        model = replace(self.model, vocabulary=tokens.vocabulary).build(seed)
        return LanguageProblem(
            tokens,
            model,
            device=torch.device(machine.device),
            validation_windows=self.validation_windows,
        )


class LanguageProblem(Problem):
    """Language modelling with the whole text on the device."""

    unit = "windows"

    def __init__(
        self, tokens: Tokens, model: Transformer, *, device: torch.device, validation_windows: int
    ) -> None:
        self._context = model.config.context
        self.model = model.to(device)
        self.shown = model.shown()
        self.constant_loss = frequency_entropy(tokens.train)
        self._train = windows(tokens.train.to(device), self._context)
        held_out = windows(tokens.validation.to(device), self._context)
        self._validation = spread(held_out, validation_windows)
        self.samples = len(self._train)

    def draw(self, indices: Int[Tensor, " batch"], generator: torch.Generator) -> Batch:
        return (self._train[indices.to(self._train.device, non_blocking=True)].long(),)

    def inputs(self, *batch: Tensor) -> tuple[Any, ...]:
        return (batch[0][:, :-1],)

    def loss(self, model: nn.Module, *batch: Tensor) -> Float[Tensor, ""]:
        logits = model(*self.inputs(*batch))  # (batch, context, vocabulary)
        return F.cross_entropy(logits.flatten(0, 1).float(), batch[0][:, 1:].flatten())

    def fixed(self, samples: int) -> Iterable[Batch]:
        return self._batches(spread(self._train, samples))

    def validate(self, model: nn.Module) -> Mapping[str, float]:
        total = sum(
            len(batch[0]) * float(self.loss(model, *batch))
            for batch in self._batches(self._validation)
        )
        return {"validation_loss": total / len(self._validation)}

    def _batches(self, chosen: Int[Tensor, "n length"]) -> Iterator[Batch]:
        parts = -(-chosen.numel() // max(EVALUATION_TOKENS, chosen.shape[1]))
        return ((part.long(),) for part in chosen.tensor_split(parts))


def windows(tokens: Int[Tensor, " length"], context: int) -> Int[Tensor, "n longer"]:
    """Split a text into windows of `context` inputs and the token after them.

    The result is a view, so no token is stored twice. Tokens after the last window are dropped.
    """
    if len(tokens) <= context:
        raise ValueError(
            f"a window of {context} tokens and the next one needs a longer text, got {len(tokens)}"
        )
    return tokens.unfold(0, context + 1, context)


def spread(rows: Int[Tensor, "n length"], most: int) -> Int[Tensor, "some length"]:
    """Return at most `most` rows, evenly spread, since neighbours in a text are alike."""
    count = min(len(rows), most)
    return rows[torch.arange(count, device=rows.device) * len(rows) // count]
