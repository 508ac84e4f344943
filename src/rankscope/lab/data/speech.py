"""Speech to be recognised: features and characters, padded; LibriSpeech as the hub has it."""

import io
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import soundfile
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rankscope.lab.data.cache import cached
from rankscope.lab.data.features import LogMel
from rankscope.lab.data.hub import DOWNLOAD_AGAIN, encoded_files, parquet_files, read_shards
from rankscope.lab.data.splits import split

BLANK = 0  # of CTC
ALPHABET = "_ abcdefghijklmnopqrstuvwxyz'"  # 29 characters; the first stands for the blank
REPOSITORY = "openslr/librispeech_asr"
SAMPLE = "train.clean.5"  # of train.clean.100; the hub has no such split


@dataclass(frozen=True)
class Utterances:
    """Features and their transcripts, padded with zeros to the longest of each."""

    features: Float[Tensor, "n frames filters"]
    frame_lengths: Int[Tensor, " n"]
    targets: Int[Tensor, "n characters"]
    target_lengths: Int[Tensor, " n"]

    def __len__(self) -> int:
        return len(self.features)

    def pick(self, indices: Int[Tensor, " some"]) -> "Utterances":
        """Those utterances, padded as before."""
        return Utterances(*(tensor[indices] for tensor in self.tensors()))

    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.features, self.frame_lengths, self.targets, self.target_lengths


class Speech(NamedTuple):
    """What is learnt from and what is held out."""

    train: Utterances
    validation: Utterances


@runtime_checkable
class SpeechData(Protocol):
    """Declared speech."""

    def build(self, *, folder: Path | None, seed: int) -> Speech:
        """Read from `folder` (None: the hub); a split, where one is drawn, follows `seed`."""


def encode(text: str) -> Int[Tensor, " characters"]:
    """Numbers of the characters; letters are lower-cased, anything outside the alphabet is named.

    >>> encode("A b")
    tensor([2, 1, 3])
    """
    strange = sorted(set(text.lower()) - set(ALPHABET[1:]))
    if strange:
        raise ValueError(
            f"characters {strange} of {text!r} are not in the alphabet {ALPHABET[1:]!r}; spell "
            "them out, or leave it out"
        )
    numbers = [ALPHABET.index(character) for character in text.lower()]
    return torch.tensor(numbers, dtype=torch.int64)


def pad(features: Sequence[Tensor], targets: Sequence[Tensor]) -> Utterances:
    """One `Utterances` of (frames, filters) features and what `encode` made of their texts."""
    pairs = list(zip(features, targets, strict=True))
    return Utterances(
        pad_sequence([heard for heard, _ in pairs], batch_first=True),
        torch.tensor([len(heard) for heard, _ in pairs]),
        pad_sequence([said for _, said in pairs], batch_first=True),
        torch.tensor([len(said) for _, said in pairs]),
    )


def too_short(utterances: Utterances) -> list[int]:
    """Those without text, or with fewer frames than CTC needs for it.

    It needs one for each character, and one more between two that are the same.
    """
    targets, lengths = utterances.targets, utterances.target_lengths
    inside = torch.arange(targets.shape[1])[1:] < lengths[:, None]
    repeats = ((targets[:, 1:] == targets[:, :-1]) & inside).sum(1)
    short = (lengths < 1) | (utterances.frame_lengths < lengths + repeats)
    found: list[int] = short.nonzero().flatten().tolist()
    return found


def held_out(utterances: Utterances, *, share: float, seed: int) -> Speech:
    """Hold out a random `share`."""
    train, validation = split(len(utterances), validation_share=share, seed=seed)
    return Speech(utterances.pick(train), utterances.pick(validation))


@dataclass(frozen=True)
class LibriSpeech:
    """Read sentences, 16 kHz, as on the hub; the paper's are train.clean.100, validation.clean.

    validation: the split that is held out; None holds out a random tenth of `split` instead.
    """

    split: str = "train.clean.100"
    validation: str | None = "validation.clean"
    mel: LogMel = LogMel()  # noqa: RUF009

    def build(self, *, folder: Path | None, seed: int) -> Speech:
        train = self.read(self.split, folder=folder)
        if self.validation is None:
            return held_out(train, share=0.1, seed=seed)
        return Speech(train, self.read(self.validation, folder=folder))

    def read(self, part: str, *, folder: Path | None) -> Utterances:
        """One split, decoded on first use and kept in the cache."""
        files = librispeech_files(part, folder=folder)
        mel = "-".join(map(str, astuple(self.mel)))
        stored = cached(f"librispeech-{part}-{mel}", files, lambda: self.arrays(files))
        features, targets = (
            torch.from_numpy(np.array(stored[name])).split(stored[lengths].tolist())
            for name, lengths in (("features", "frames"), ("targets", "characters"))
        )
        return pad(features, targets)

    def arrays(self, files: Sequence[Path]) -> dict[str, np.ndarray]:
        """Frames and characters of all utterances one after another, and how many each has."""
        features, targets = zip(*self.utterances(files), strict=True)
        return {
            "features": torch.cat(features).numpy(),
            "frames": np.array([len(each) for each in features]),
            "targets": torch.cat(targets).numpy(),
            "characters": np.array([len(each) for each in targets]),
        }

    def utterances(self, files: Sequence[Path]) -> Iterator[tuple[Tensor, Tensor]]:
        for file, table in read_shards(files, ["audio", "text"]):
            sounds = encoded_files(table["audio"], file, "audio")
            for row, (audio, text) in enumerate(
                zip(sounds, table["text"].to_pylist(), strict=True)
            ):
                try:
                    utterance = self.utterance(audio, text)
                except ValueError as error:
                    raise ValueError(f"{file}, row {row}: {error}") from error
                yield utterance

    def utterance(self, audio: bytes | None, text: object) -> tuple[Tensor, Tensor]:
        """Features and characters of one row."""
        if not audio:
            raise ValueError(f"no audio; {DOWNLOAD_AGAIN}")
        if not text or not isinstance(text, str):
            raise ValueError(f"expected a transcript, got {text!r}; {DOWNLOAD_AGAIN}")
        features, targets = self.mel(read_audio(audio, self.mel.rate)), encode(text)
        if too_short(pad([features], [targets])):
            raise ValueError(
                f"{len(features)} frames are too few for {text!r}; leave it out, or take a shorter "
                "hop"
            )
        return features, targets


def librispeech_files(part: str, *, folder: Path | None) -> list[Path]:
    """The shards of a split; where the sample is missing, says what there is in its place."""
    try:
        return parquet_files(REPOSITORY, "all", part, folder=folder)
    except ValueError as error:
        if part != SAMPLE:
            raise
        raise ValueError(
            f"{error}; {SAMPLE!r} is a small sample that the hub does not have, the full set is "
            'LibriSpeech("train.clean.100", "validation.clean")'
        ) from error


def read_audio(data: bytes, rate: int) -> Float[Tensor, " samples"]:
    """The samples of a mono file in memory, -1 to 1."""
    try:
        samples, found = soundfile.read(io.BytesIO(data), dtype="float32")
    except soundfile.LibsndfileError as error:
        raise ValueError(
            f"not readable as audio ({error.error_string}); {DOWNLOAD_AGAIN}"
        ) from error
    if found != rate or samples.ndim != 1:
        channels = 1 if samples.ndim == 1 else samples.shape[1]
        raise ValueError(
            f"expected one channel at {rate} Hz, got {channels} at {found} Hz; convert it"
        )
    return torch.from_numpy(samples)
