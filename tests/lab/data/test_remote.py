from pathlib import Path
from types import SimpleNamespace

import pytest
from huggingface_hub.errors import (
    DryRunError,
    GatedRepoError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
)

from lab.data.parquet import write
from rankscope.lab.data import hub, remote
from rankscope.lab.data.remote import HubShard, LocalShard, row_group_sizes, split_shards


class Planned:
    def __init__(self, filename: str) -> None:
        self.filename = filename
        self.commit_hash = "abc"


def raising(error: Exception) -> object:
    def call(*_: object, **__: object) -> object:
        raise error

    return call


@pytest.fixture(autouse=True)
def no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANKSCOPE_DATA", raising=False)


def test_folder_wins_over_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "snapshot_download", raising(AssertionError("the hub was asked")))
    path = write(tmp_path / "some/set/data/train-00000-of-00001.parquet", 4, row=range(10))
    (shard,) = split_shards("some/set", "data", "train", folder=tmp_path)
    assert shard == LocalShard(path) and shard.path() == path
    assert row_group_sizes([shard, shard]) == [[4, 4, 2], [4, 4, 2]]


def test_hub_is_listed_and_nothing_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"data/train-0000{index}-of-00002.parquet" for index in (1, 0)]
    asked: list[dict[str, object]] = []

    def plan(repo: str, **options: object) -> list[Planned]:
        asked.append({"repo": repo, **options})
        return [Planned(name) for name in names]

    monkeypatch.setattr(remote, "snapshot_download", plan)
    expected = [HubShard("some/set", name, "abc") for name in sorted(names)]
    assert split_shards("some/set", "data", "train") == expected
    patterns = ["data/train-*.parquet", "data/train/*.parquet"]
    assert asked == [
        {"repo": "some/set", "repo_type": "dataset", "allow_patterns": patterns, "dry_run": True}
    ]
    names.pop()
    with pytest.raises(ValueError, match="'train' has 2 shards, missing: 0"):
        split_shards("some/set", "data", "train")


def test_without_a_network_what_was_fetched_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The network may be back by then: what is asked for after the first answer is on the disk."""
    refused = RepositoryNotFoundError.__new__(RepositoryNotFoundError)
    missing: Exception | None = None
    cause: Exception | None = None

    def offline(repo: str, *, dry_run: bool = False, **options: object) -> str:
        if dry_run:
            raise DryRunError("the repository cannot be accessed") from cause
        assert options["local_files_only"]
        if missing is not None:
            raise missing
        return str(tmp_path)

    monkeypatch.setattr(remote, "snapshot_download", offline)
    monkeypatch.setattr(hub, "snapshot_download", raising(AssertionError("the hub was asked")))
    path = write(tmp_path / "data/train-00000-of-00001.parquet", row=range(3))
    assert split_shards("some/set", "data", "train") == [LocalShard(path)]
    missing = LocalEntryNotFoundError("nothing here")
    with pytest.raises(ValueError, match=r"cannot be downloaded, is there a network\? \(nothing"):
        split_shards("some/set", "data", "train")
    cause = refused
    with pytest.raises(ValueError, match="the hub has no data set 'some/set'"):
        split_shards("some/set", "data", "train")


def test_terms_that_were_not_accepted_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = GatedRepoError.__new__(GatedRepoError)  # it wants a response, which is not looked at
    monkeypatch.setattr(remote, "hf_hub_download", raising(refused))
    with pytest.raises(ValueError, match=r"the hub's terms for 'some/set'; .*`hf auth"):
        HubShard("some/set", "data/train-00000-of-00001.parquet", "abc").path()


def test_damaged_footers_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.parquet", row=range(3))
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(ValueError, match=r"a\.parquet is not a complete Parquet file .*; delete"):
        LocalShard(path).footer()
    opened = SimpleNamespace(open=lambda *_, **__: path.open("rb"))
    monkeypatch.setattr(remote, "HfFileSystem", lambda: opened)
    with pytest.raises(
        ValueError, match=r"^a\.parquet of the hub data set some/set is not a complete"
    ):
        HubShard("some/set", "a.parquet", "abc").footer()
