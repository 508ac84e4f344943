"""Speech to be recognised: features and characters, padded; LibriSpeech as the hub has it."""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
from rankscope.lab.data.hub import parquet_files, read_shards
from rankscope.lab.data.splits import split

BLANK = 0  # of CTC
ALPHABET = "_ abcdefghijklmnopqrstuvwxyz'"  # 29 characters; the first stands for the blank
REPOSITORY = "openslr/librispeech_asr"


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


def encode(text: str) -> list[int]:
    """Numbers of the characters; letters are lower-cased, anything outside the alphabet is named.

    >>> encode("A b")
    [2, 1, 3]
    """
    strange = sorted(set(text.lower()) - set(ALPHABET[1:]))
    if strange:
        raise ValueError(f"characters {strange} of {text!r} are not in the alphabet {ALPHABET!r}")
    return [ALPHABET.index(character) for character in text.lower()]


def decode(indices: Sequence[int]) -> str:
    return "".join(ALPHABET[i] for i in indices)


def pad(features: Sequence[Tensor], texts: Sequence[str]) -> Utterances:
    """One `Utterances` of (frames, filters) features and their texts."""
    targets = [torch.tensor(encode(text), dtype=torch.int64) for text in texts]
    return Utterances(
        pad_sequence(list(features), batch_first=True),
        torch.tensor([len(each) for each in features]),
        pad_sequence(targets, batch_first=True),
        torch.tensor([len(each) for each in targets]),
    )


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
        files = parquet_files(REPOSITORY, "all", part, folder=folder)
        mel = f"{self.mel.filters}-{self.mel.window:g}-{self.mel.hop:g}"
        stored = cached(f"librispeech-{part}-{mel}", files, lambda: self.arrays(files))
        features = torch.from_numpy(np.array(stored["features"]))
        texts = bytes(stored["texts"]).decode().split("\n")
        return pad(features.split(stored["frames"].tolist()), texts)

    def arrays(self, files: Sequence[Path]) -> dict[str, np.ndarray]:
        """Frames of all utterances one after another, how many each has, texts by lines."""
        features, texts = zip(*self.utterances(files), strict=True)
        return {
            "features": torch.cat(features).numpy(),
            "frames": np.array([len(each) for each in features]),
            "texts": np.frombuffer("\n".join(texts).encode(), dtype=np.uint8),
        }

    def utterances(self, files: Sequence[Path]) -> Iterator[tuple[Tensor, str]]:
        for file, table in read_shards(files, ["audio", "text"]):
            for row, (audio, text) in enumerate(
                zip(table["audio"].to_pylist(), table["text"].to_pylist(), strict=True)
            ):
                where = f"{file}, row {row}"
                yield self.mel(read_audio(audio["bytes"], self.mel.rate, where=where)), text


def read_audio(data: bytes, rate: int, *, where: str) -> Float[Tensor, " samples"]:
    """The samples of a mono file in memory, -1 to 1; `where` it is from, for messages."""
    try:
        samples, found = soundfile.read(io.BytesIO(data), dtype="float32")
    except soundfile.LibsndfileError as error:
        raise ValueError(
            f"{where}: not readable as audio ({error.error_string}); download the file again"
        ) from error
    if found != rate or samples.ndim != 1:
        channels = 1 if samples.ndim == 1 else samples.shape[1]
        raise ValueError(
            f"{where}: expected one channel at {rate} Hz, got {channels} at {found} Hz; convert it"
        )
    return torch.from_numpy(samples)
