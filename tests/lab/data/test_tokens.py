import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from huggingface_hub.errors import LocalEntryNotFoundError

from rankscope.lab.data import tokens as tokens_module
from rankscope.lab.data.tokens import (
    StandardLibraryTokens,
    WikiText,
    characters,
    source_text,
    train_tokenizer,
)

SENTENCES = [" = Valkyria = \n", "", " The game began , the GAME ended . \n", " the café \n"] * 5


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "data/Salesforce/wikitext/wikitext-2-v1"
    place.mkdir(parents=True)
    for split, rows in {"train": SENTENCES, "validation": SENTENCES[2:3]}.items():
        pq.write_table(pa.table({"text": rows}), place / f"{split}-00000-of-00001.parquet")
    return tmp_path / "data"


def lower(rows: list[str]) -> str:
    return "".join(rows).lower()


def test_wikitext_can_be_read_back_from_its_tokens(folder: Path) -> None:
    data = WikiText("wikitext-2-v1", vocabulary=270)
    first, cached = (data.build(folder=folder) for _ in range(2))
    assert torch.equal(first.train, cached.train) and first.vocabulary == cached.vocabulary == 270
    tokenizer = train_tokenizer([row.lower() for row in SENTENCES if row], 270)
    assert tokenizer.decode(first.train.tolist()) == lower(SENTENCES)
    assert tokenizer.decode(first.validation.tolist()) == lower(SENTENCES[2:3])
    # Merges make it shorter than its bytes, and every number is in the vocabulary.
    assert len(first.train) < len(lower(SENTENCES).encode()) and int(first.train.max()) < 270


def test_the_same_text_trains_the_same_tokenizer() -> None:
    texts = [f"word{i % 7} another{i % 5} third{i % 3}" for i in range(200)]
    first, second = (train_tokenizer(texts, 300).to_str() for _ in range(2))
    assert first == second


def test_a_tokenizer_of_the_hub_is_used_from_the_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "someone/model").mkdir(parents=True)
    known = train_tokenizer(["the the the"], 258)
    known.save(str(folder / "someone/model/tokenizer.json"))
    tokens = WikiText("wikitext-2-v1", tokenizer="someone/model").build(folder=folder)
    assert tokens.vocabulary == 258
    assert known.decode(tokens.train.tolist()) == lower(SENTENCES)
    # Of that folder the environment may tell as well.
    monkeypatch.setenv("RANKSCOPE_DATA", str(folder))
    again = WikiText("wikitext-2-v1", tokenizer="someone/model").build(folder=None)
    assert torch.equal(tokens.train, again.train)


def test_a_broken_tokenizer_is_named(folder: Path) -> None:
    (folder / "someone/model").mkdir(parents=True)
    (folder / "someone/model/tokenizer.json").write_text('{"model"')
    with pytest.raises(
        ValueError,
        match=r"someone/model/tokenizer.json is not a complete tokenizer \(.*\); delete it",
    ):
        WikiText("wikitext-2-v1", tokenizer="someone/model").build(folder=folder)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["a", None], r"row 1: expected text, got None; delete it and download it again"),
        ([], r": no rows, nor in any other shard of its split; download the split again"),
        (["", " \n"], r": no text, nor in any other shard of its split; download the split again"),
    ],
)
def test_what_is_no_text_is_named(folder: Path, rows: list[str | None], message: str) -> None:
    name = "validation-00000-of-00001.parquet"
    path = folder / "Salesforce/wikitext/wikitext-2-v1" / name
    pq.write_table(pa.table({"text": pa.array(rows, pa.string())}), path)
    with pytest.raises(ValueError, match=rf"{name}.*{message}"):
        WikiText("wikitext-2-v1", vocabulary=270).build(folder=folder)


def test_a_tokenizer_that_cannot_be_had_is_explained(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def offline(*_: str) -> str:
        raise LocalEntryNotFoundError("no connection")

    monkeypatch.setattr(tokens_module, "hf_hub_download", offline)
    with pytest.raises(ValueError, match=r"'someone/else' cannot be downloaded \(no connection\)"):
        WikiText("wikitext-2-v1", tokenizer="someone/else").build(folder=folder)
    with pytest.raises(ValueError, match="at least 256, got 100"):
        WikiText("wikitext-2-v1", vocabulary=100)


def test_source_text_by_character(tmp_path: Path) -> None:
    for name, content in {"b": "É_9", "a": "Def ", "_sysconfigdata_x": "paths"}.items():
        (tmp_path / f"{name}.py").write_text(content, encoding="utf8")
    (tmp_path / "other.txt").write_text("other")
    text = source_text(tmp_path, 7)  # in order of name
    assert "".join(map(chr, characters(text))) == "def ??_"
    tokens = StandardLibraryTokens(10_000).build()
    assert (len(tokens.train), len(tokens.validation), tokens.vocabulary) == (9_000, 1_000, 128)
    assert "import" in "".join(map(chr, tokens.train))


def test_missing_sources_are_explained(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no Python source files in .* zipped, frozen or strip"):
        source_text(tmp_path, 100)
    with pytest.raises(ValueError, match="size >= 1"):
        StandardLibraryTokens(0)


@pytest.mark.skipif("RANKSCOPE_DATA" not in os.environ, reason="RANKSCOPE_DATA is not set")
def test_the_real_wikitext() -> None:
    tokens = WikiText("wikitext-2-v1", vocabulary=8192).build(
        folder=Path(os.environ["RANKSCOPE_DATA"])
    )
    # 2.05 million words in training, which take at least a token each
    assert 2_000_000 < len(tokens.train) < 4_000_000 and tokens.vocabulary == 8192
