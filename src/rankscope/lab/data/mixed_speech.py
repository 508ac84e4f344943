"""Speech data sets joined into one."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rankscope.lab.data.speech import Speech, SpeechData, Utterances, pad


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
        if self.longest is not None:
            parts = [upto(part, self.longest) for part in parts]
        return joined(parts)


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
    rows = [
        (features[:frames], targets[:characters])
        for part in parts
        for features, frames, targets, characters in zip(*part.tensors(), strict=True)
    ]
    features, targets = zip(*rows, strict=True)
    return pad(features, targets)
