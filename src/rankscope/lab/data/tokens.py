"""Text as tokens: WikiText with byte-pair encoding, the standard library by character."""

import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import torch
from huggingface_hub import hf_hub_download
from huggingface_hub.errors import HfHubHTTPError
from jaxtyping import Int32, UInt8
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer
from torch import Tensor

from rankscope.lab.data.cache import cached
from rankscope.lab.data.hub import DOWNLOAD_AGAIN, data_folder, parquet_files, read_shards

REPOSITORY = "Salesforce/wikitext"


@dataclass(frozen=True)
class Tokens:
    """Training and held-out text as tokens from 0 to `vocabulary` - 1."""

    train: Int32[Tensor, " train"]
    validation: Int32[Tensor, " validation"]
    vocabulary: int


@runtime_checkable
class TokenData(Protocol):
    """The declaration of a text."""

    def build(self, *, folder: Path | None) -> Tokens:
        """Read the text from `folder` (None: the hub)."""


@dataclass(frozen=True)
class WikiText:
    """Lower-cased Wikipedia articles as byte-level BPE, with the published splits.

    vocabulary: number of tokens of an encoding that is trained on the training text.
    tokenizer: a hub repository whose tokenizer.json is used instead, such as
        "EleutherAI/pythia-160m"; the data folder is searched first. The paper does not name its
        tokenizer. Its number of steps fits a vocabulary of about 50,000.
    """

    config: Literal["wikitext-2-v1", "wikitext-103-v1"] = "wikitext-103-v1"
    vocabulary: int = 50_000
    tokenizer: str | None = None

    def __post_init__(self) -> None:
        if self.vocabulary < 256:
            raise ValueError(f"a byte-level vocabulary has at least 256, got {self.vocabulary}")

    def build(self, *, folder: Path | None) -> Tokens:
        """Read the tokens, which are encoded on first use and cached."""
        train, validation = (
            parquet_files(REPOSITORY, self.config, part, folder=folder)
            for part in ("train", "validation")
        )
        files = [*train, *validation]
        encoding: Path | None = None
        if self.tokenizer is not None:
            encoding = tokenizer_file(self.tokenizer, folder=folder)
            files.append(encoding)
        stored = cached(
            f"{self.config}-{'hub' if encoding else self.vocabulary}",
            files,
            lambda: self.arrays(train, validation, encoding),
        )
        return Tokens(
            torch.from_numpy(np.array(stored["train"])),
            torch.from_numpy(np.array(stored["validation"])),
            int(stored["vocabulary"]),
        )

    def arrays(
        self, train: Sequence[Path], validation: Sequence[Path], encoding: Path | None
    ) -> dict[str, np.ndarray]:
        texts = {"train": lines(train), "validation": lines(validation)}
        known = (
            train_tokenizer(texts["train"], self.vocabulary)
            if encoding is None
            else read_tokenizer(encoding)
        )
        arrays = {part: encode(known, text) for part, text in texts.items()}
        return {**arrays, "vocabulary": np.array(known.get_vocab_size())}


def lines(files: Sequence[Path]) -> list[str]:
    """Read the lower-cased rows of the files, without the empty ones between paragraphs."""
    texts = []
    for file, table in read_shards(files, ["text"]):
        for row, text in enumerate(table["text"].to_pylist()):
            if not isinstance(text, str):
                raise ValueError(f"{file}, row {row}: expected text, got {text}; {DOWNLOAD_AGAIN}")
            if text.strip():
                texts.append(text.lower())
    if not texts:
        raise ValueError(
            f"{files[0]}: no text, nor in any other shard of its split; download the split again"
        )
    return texts


def train_tokenizer(texts: Sequence[str], vocabulary: int) -> Tokenizer:
    """Train a byte-level BPE, which can encode any text; the same texts give the same tokens."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=vocabulary, initial_alphabet=sorted(ByteLevel.alphabet()), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def encode(tokenizer: Tokenizer, texts: Sequence[str]) -> np.ndarray:
    """Encode all texts into one array."""
    encoded = tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
    return np.concatenate([np.array(encoding.ids, dtype=np.int32) for encoding in encoded])


def tokenizer_file(repo: str, *, folder: Path | None) -> Path:
    """Return tokenizer.json of a hub repository, from the data folder if possible."""
    folder = data_folder(folder)
    if folder is not None and (folder / repo / "tokenizer.json").is_file():
        return folder / repo / "tokenizer.json"
    try:
        return Path(hf_hub_download(repo, "tokenizer.json"))
    except (HfHubHTTPError, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"the tokenizer of {repo!r} cannot be downloaded ({reason}); put its tokenizer.json "
            f"into the data folder as {repo}/tokenizer.json, or train one: tokenizer=None"
        ) from error


def read_tokenizer(path: Path) -> Tokenizer:
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # from_file raises nothing more special
        raise ValueError(
            f"{path} is not a complete tokenizer ({error}); {DOWNLOAD_AGAIN}"
        ) from error


@dataclass(frozen=True)
class StandardLibraryTokens:
    """The source of the standard library by character: lower-cased ASCII, 128 tokens.

    Other characters become "?". The text ends after `size` characters; its last tenth is held out.
    Text and losses differ a little between Python versions.
    """

    size: int = 1_000_000

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"expected size >= 1, got {self}")

    def build(self, *, folder: Path | None = None) -> Tokens:
        """Build the tokens; `folder` is ignored."""
        text = characters(source_text(Path(sysconfig.get_path("stdlib")), self.size))
        split = len(text) - int(len(text) * 0.1)
        return Tokens(text[:split], text[split:], 128)


def source_text(folder: Path, size: int) -> UInt8[Tensor, " length"]:
    """Return the first bytes of the Python files in a folder, in order of name.

    `_sysconfigdata...` differs between machines and is left out.
    """
    files = [path for path in folder.glob("*.py") if not path.name.startswith("_sysconfigdata")]
    text = b"".join(path.read_bytes() for path in sorted(files))[:size]
    if not text:
        raise ValueError(
            f"no Python source files in {folder}; this Python's standard library is zipped, "
            "frozen or stripped: use a Python installed with its sources"
        )
    return torch.frombuffer(bytearray(text), dtype=torch.uint8)


def characters(text: UInt8[Tensor, " length"]) -> Int32[Tensor, " length"]:
    """Lower-case A-Z, and replace bytes above 127 by "?"."""
    upper = (text >= ord("A")) & (text <= ord("Z"))
    lower = torch.where(upper, text + 32, text)
    return torch.where(text < 128, lower, ord("?")).int()
