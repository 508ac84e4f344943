"""Speech as padded features and characters; LibriSpeech from the hub."""

import io
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
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
SAMPLE = "train.clean.5"  # a sample of train.clean.100 that is not on the hub


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
        """Select utterances, padded as before."""
        return Utterances(*(tensor[indices] for tensor in self.tensors()))

    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.features, self.frame_lengths, self.targets, self.target_lengths


class Speech(NamedTuple):
    """Utterances for training and for validation."""

    train: Utterances
    validation: Utterances


@runtime_checkable
class SpeechData(Protocol):
    """The declaration of a speech data set."""

    def build(self, *, folder: Path | None, seed: int) -> Speech:
        """Read from `folder` (None: the hub); `seed` draws the split, if there is none."""


def encode(text: str) -> Int[Tensor, " characters"]:
    """Return the numbers of the lower-cased characters: [2, 1, 3] for "A b"."""
    strange = sorted(set(text.lower()) - set(ALPHABET[1:]))
    if strange:
        raise ValueError(
            f"characters {strange} of {text!r} are not in the alphabet {ALPHABET[1:]!r}; spell "
            "them out, or leave it out"
        )
    return torch.tensor([ALPHABET.index(c) for c in text.lower()], dtype=torch.int64)


def pad(features: Sequence[Tensor], targets: Sequence[Tensor]) -> Utterances:
    """Pad (frames, filters) features and encoded texts into one `Utterances`."""
    pairs = list(zip(features, targets, strict=True))
    return Utterances(
        pad_sequence([frames for frames, _ in pairs], batch_first=True),
        torch.tensor([len(frames) for frames, _ in pairs]),
        pad_sequence([text for _, text in pairs], batch_first=True),
        torch.tensor([len(text) for _, text in pairs]),
    )


def too_short(utterances: Utterances) -> list[int]:
    """Return the rows of utterances without text, or with too few frames for CTC.

    CTC needs one frame for each character, and one more between two equal characters.
    """
    targets, lengths = utterances.targets, utterances.target_lengths
    inside = torch.arange(targets.shape[1])[1:] < lengths[:, None]
    repeats = ((targets[:, 1:] == targets[:, :-1]) & inside).sum(1)
    short = (lengths < 1) | (utterances.frame_lengths < lengths + repeats)
    rows: list[int] = short.nonzero().flatten().tolist()
    return rows


def held_out(utterances: Utterances, *, share: float, seed: int) -> Speech:
    """Hold out a random `share` of the utterances."""
    train, validation = split(len(utterances), validation_share=share, seed=seed)
    return Speech(utterances.pick(train), utterances.pick(validation))


@dataclass(frozen=True)
class LibriSpeech:
    """Sentences read aloud, at 16 kHz; the defaults are the paper's splits.

    validation: the held-out split; None holds out a random tenth of `split`.
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
        """Read one split, which is decoded on first use and cached."""
        files = librispeech_files(part, folder=folder)
        mel = "-".join(map(str, astuple(self.mel)))
        stored = cached(f"librispeech-{part}-{mel}", files, lambda: self.arrays(files))
        features, targets = (
            torch.from_numpy(np.array(stored[name])).split(stored[lengths].tolist())
            for name, lengths in (("features", "frames"), ("targets", "characters"))
        )
        return pad(features, targets)

    def arrays(self, files: Sequence[Path]) -> dict[str, np.ndarray]:
        """Return the concatenated frames and characters of all utterances, and their lengths."""
        features, targets = zip(*self.utterances(files), strict=True)
        return {
            "features": torch.cat(features).numpy(),
            "frames": np.array([*map(len, features)]),
            "targets": torch.cat(targets).numpy(),
            "characters": np.array([*map(len, targets)]),
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
        """Return the features and characters of one row."""
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
    """Return the shards of a split; if the sample is missing, the error names the full set."""
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
    """Decode a mono file in memory to samples from -1 to 1."""
    import soundfile  # here, so that every other experiment runs without it

    try:
        samples, file_rate = soundfile.read(io.BytesIO(data), dtype="float32")
    except soundfile.LibsndfileError as error:
        raise ValueError(
            f"not readable as audio ({error.error_string}); {DOWNLOAD_AGAIN}"
        ) from error
    if file_rate != rate or samples.ndim != 1:
        channels = 1 if samples.ndim == 1 else samples.shape[1]
        raise ValueError(
            f"expected one channel at {rate} Hz, got {channels} at {file_rate} Hz; convert it"
        )
    return torch.from_numpy(samples)
