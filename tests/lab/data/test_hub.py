from pathlib import Path

import pyarrow as pa
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from lab.data.parquet import ENCODED, write
from rankscope.lab.data import hub
from rankscope.lab.data.hub import encoded_files, parquet_files, read_shards, shards


def rows(files: list[Path]) -> list[tuple[Path, list[int]]]:
    return [(path, table["row"].to_pylist()) for path, table in read_shards(files, ["row"])]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two shards of a train split, one of a test split."""
    for index in (1, 0):
        write(tmp_path / f"some/set/plain/train-0000{index}-of-00002.parquet", row=[index])
    write(tmp_path / "some/set/plain/test-00000-of-00001.parquet", row=[7])
    write(tmp_path / "some/set/other/train-00000-of-00001.parquet", row=[8])
    return tmp_path


def test_shards_of_one_split_in_order(data: Path) -> None:
    files = parquet_files("some/set", "plain", "train", folder=data)
    assert [path.name for path in files] == [
        "train-00000-of-00002.parquet",
        "train-00001-of-00002.parquet",
    ]
    assert rows(files) == [(files[0], [0]), (files[1], [1])]


def test_shards_in_a_folder_of_the_split(tmp_path: Path) -> None:
    for index in range(2):
        write(tmp_path / f"some/speech/all/train.clean.5/000{index}.parquet", row=[index])
    write(tmp_path / "some/speech/all/train.clean.50/0000.parquet", row=[9])
    files = parquet_files("some/speech", "all", "train.clean.5", folder=tmp_path)
    assert rows(files) == [(files[0], [0]), (files[1], [1])]


def test_environment_names_the_folder(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKSCOPE_DATA", str(data))
    assert len(parquet_files("some/set", "plain", "test")) == 1
    # An argument wins over it.
    with pytest.raises(ValueError, match=r"folder .*nowhere does not exist; pass --data FOLDER or"):
        parquet_files("some/set", "plain", "test", folder=data / "nowhere")


def test_missing_repository_and_split_are_named(data: Path) -> None:
    with pytest.raises(ValueError, match=r"no data set 'some/other': expected .*; pass --data"):
        parquet_files("some/other", "plain", "train", folder=data)
    with pytest.raises(ValueError, match=r"no split 'valid' of 'plain', there is: test, train;"):
        parquet_files("some/set", "plain", "valid", folder=data)
    with pytest.raises(ValueError, match=r"no split 'train' of 'none', there is: no splits;"):
        parquet_files("some/set", "none", "train", folder=data)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["c/train-00000-of-00003.parquet"], "'train' has 3 shards, missing: 1, 2"),
        (["c/train/0000.parquet", "c/train/0002.parquet"], "has 3 shards, missing: 1"),
        (
            ["c/train-00000-of-00001.parquet", "c/train-00000-of-00002.parquet"],
            "different sets, of 1 and of 2 files; delete those of one set",
        ),
        (["c/train-00000-of-00001.parquet.incomplete", "c/train.csv"], "there is: no splits"),
    ],
)
def test_incomplete_listings(names: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        shards(names, "c", "train", origin="here")


def test_names_with_a_hash_are_shards_too() -> None:
    name = "data/train-00000-of-00001-a09b74b3ef9c3b56.parquet"
    assert shards([name], "data", "train", origin="here") == [name]


@pytest.mark.parametrize("size", [0, 4, 200, -1])
def test_truncated_file_is_named(data: Path, size: int) -> None:
    path = data / "some/set/plain/test-00000-of-00001.parquet"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(
        ValueError, match=r"test-00000.* is not a complete Parquet .*; delete it and down"
    ):
        rows([path])


def test_damaged_page_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", row=list(range(1000)))
    content = bytearray(path.read_bytes())
    content[4:40] = b"\xff" * 36  # the header of the first page; the footer is whole
    path.write_bytes(bytes(content))
    with pytest.raises(ValueError, match=r"a\.parquet is not a complete Parquet file"):
        rows([path])


def test_missing_column_is_named(data: Path) -> None:
    files = parquet_files("some/set", "plain", "test", folder=data)
    with pytest.raises(ValueError, match=r"parquet has no column 'label', it has: row"):
        list(read_shards(files, ["row", "label"]))


def test_split_without_rows_is_named(tmp_path: Path) -> None:
    empty = [write(tmp_path / f"{name}.parquet", row=[]) for name in "ab"]
    with pytest.raises(ValueError, match=r"a\.parquet: no rows, nor in any .*; download the split"):
        rows(empty)
    full = write(tmp_path / "c.parquet", row=[3])
    assert rows([empty[0], full]) == [(empty[0], []), (full, [3])]


def test_encoded_files_may_be_missing_but_not_something_else(tmp_path: Path) -> None:
    column = pa.chunked_array([pa.array([{"bytes": b"x"}, {"bytes": None}, None], ENCODED)])
    assert encoded_files(column, tmp_path, "audio") == [b"x", None, None]
    with pytest.raises(
        ValueError, match=r"column 'audio' holds no encoded files but int64; delete"
    ):
        encoded_files(pa.chunked_array([[1]]), tmp_path, "audio")


@pytest.fixture
def no_folder(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.delenv("RANKSCOPE_DATA", raising=False)
    return monkeypatch


def test_without_a_network_the_message_says_so(no_folder: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> str:
        raise LocalEntryNotFoundError("Name or service not known\nand more")

    no_folder.setattr(hub, "snapshot_download", unreachable)
    with pytest.raises(ValueError, match=r"'some/set' cannot be .* network\? .*known\); .* --data"):
        parquet_files("some/set", "plain", "train")


def test_hub_is_asked_for_the_split_alone(data: Path, no_folder: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def download(repo: str, **options: object) -> str:
        asked.append((repo, options["repo_type"], options["allow_patterns"]))
        return str(data / repo)

    no_folder.setattr(hub, "snapshot_download", download)
    assert len(parquet_files("some/set", "plain", "train")) == 2
    patterns = ["plain/train-*.parquet", "plain/train/*.parquet"]
    assert asked == [("some/set", "dataset", patterns)]


def test_hub_without_the_split_names_those_it_has(
    tmp_path: Path, no_folder: pytest.MonkeyPatch
) -> None:
    class Hub:
        def list_repo_files(self, repo: str, *, repo_type: str) -> list[str]:
            return ["README.md", "plain/test-00000-of-00001.parquet"]

    no_folder.setattr(hub, "snapshot_download", lambda *_, **__: str(tmp_path))
    no_folder.setattr(hub, "HfApi", Hub)
    with pytest.raises(ValueError, match=r"hub data set some/set: no split 'train' .* is: test;"):
        parquet_files("some/set", "plain", "train")
