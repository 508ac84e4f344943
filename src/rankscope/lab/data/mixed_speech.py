"""Speech data sets joined into one."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn.utils.rnn import pad_sequence

from rankscope.lab.data.speech import Speech, SpeechData, Utterances


@dataclass(frozen=True)
class MixedSpeech:
    """All utterances of all `parts`, in order; each part holds out its own.

    longest: largest number of frames. Longer utterances are left out, since padding follows the
        longest one.
    """

    parts: tuple[SpeechData, ...]
    longest: int | None = None

    def __post_init__(self) -> None:
        if not self.parts or (self.longest is not None and self.longest < 1):
            raise ValueError(f"expected one part or more and longest >= 1 or None, got {self}")

    def build(self, *, folder: Path | None, seed: int) -> Speech:
        speeches = [part.build(folder=folder, seed=seed) for part in self.parts]
        trains, validations = zip(*speeches, strict=True)
        return Speech(self._joined(trains), self._joined(validations))

    def _joined(self, parts: Sequence[Utterances]) -> Utterances:
        return joined(
            [part if self.longest is None else upto(part, self.longest) for part in parts]
        )


def upto(utterances: Utterances, frames: int) -> Utterances:
    """Select the utterances of at most `frames` frames."""
    short = (utterances.frame_lengths <= frames).nonzero().flatten()
    if len(short) == 0:
        raise ValueError(
            f"no utterance has at most {frames} frames, the shortest has "
            f"{int(utterances.frame_lengths.min())}; take a larger bound"
        )
    return utterances.pick(short)


def joined(parts: Sequence[Utterances]) -> Utterances:
    """Join utterances in order, padded to the longest."""
    features, frames, targets, lengths = zip(*(part.tensors() for part in parts), strict=True)
    frame_lengths, target_lengths = torch.cat(frames), torch.cat(lengths)
    return Utterances(
        padded(features)[:, : int(frame_lengths.max())],
        frame_lengths,
        padded(targets)[:, : int(target_lengths.max())],
        target_lengths,
    )


def padded(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Join the rows of all parts, padded with zeros to the largest second axis."""
    rows = [row for part in parts for row in part]
    return pad_sequence(rows, batch_first=True)
