"""Shards that are fetched from the hub when they are first read.

Training can start before all of a large data set is here. Fetched shards stay in the hub's cache.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import pyarrow.parquet as pq
from huggingface_hub import HfFileSystem, hf_hub_download, snapshot_download
from huggingface_hub.errors import DryRunError, HfHubHTTPError, LocalEntryNotFoundError

from rankscope.lab.data.hub import (
    REMEDY,
    data_folder,
    explained,
    files_in,
    parquet_files,
    shard_patterns,
    shards,
    whole,
)

FOOTER_BYTES = 2**17  # first request, which covers the footer of a few hundred row groups
AT_ONCE = 16  # footers requested in parallel


@runtime_checkable
class Shard(Protocol):
    """One Parquet file of a split, local or on the hub."""

    def path(self) -> Path:
        """Return the path of the local file, after fetching it if necessary."""

    def footer(self) -> pq.FileMetaData:
        """Read the metadata without fetching the file."""


@dataclass(frozen=True)
class LocalShard:
    """A local file."""

    file: Path

    def __str__(self) -> str:
        return str(self.file)

    def path(self) -> Path:
        return self.file

    def footer(self) -> pq.FileMetaData:
        with whole(self):
            return pq.read_metadata(self.file)


@dataclass(frozen=True)
class HubShard:
    """A file on the hub. revision: a commit, the same for all shards of a split."""

    repo: str
    name: str
    revision: str

    def __str__(self) -> str:
        return f"{self.name} of the hub data set {self.repo}"

    def path(self) -> Path:
        with explained(self.repo):
            return Path(
                hf_hub_download(self.repo, self.name, repo_type="dataset", revision=self.revision)
            )

    def footer(self) -> pq.FileMetaData:
        place = f"datasets/{self.repo}@{self.revision}/{self.name}"
        with (
            whole(self, remedy=REMEDY),
            explained(self.repo),
            HfFileSystem().open(place, block_size=FOOTER_BYTES) as file,
        ):
            return pq.read_metadata(file)


def split_shards(
    repo: str, config: str, split: str, *, folder: Path | None = None
) -> Sequence[Shard]:
    """Return the shards of a split, in order, without fetching any.

    folder: see `parquet_files`.
    """
    if data_folder(folder) is None:
        hub_shards = _on_hub(repo, config, split)
        if hub_shards:
            return hub_shards
    # If the hub has no such split, this raises an error that lists the splits.
    return [LocalShard(path) for path in parquet_files(repo, config, split, folder=folder)]


def _on_hub(repo: str, config: str, split: str) -> Sequence[Shard]:
    """List the shards on the hub, or cached ones if offline; empty if there is no such split."""
    patterns = shard_patterns(config, split)
    with explained(repo):
        try:
            planned = snapshot_download(
                repo, repo_type="dataset", allow_patterns=patterns, dry_run=True
            )
        except DryRunError as error:
            fetched = _fetched(repo, patterns, refusal=error.__cause__)
            return [LocalShard(path) for path in files_in(fetched, config, split)]
    revisions = {file.filename: file.commit_hash for file in planned}
    names = shards(revisions, config, split, origin=f"hub data set {repo}") if revisions else []
    return [HubShard(repo, name, revisions[name]) for name in names]


def _fetched(repo: str, patterns: list[str], *, refusal: BaseException | None) -> Path:
    """Return the hub's local snapshot; asking the hub could download the whole split at once.

    refusal: the error with which the hub did not answer.
    """
    try:
        return Path(
            snapshot_download(
                repo, repo_type="dataset", allow_patterns=patterns, local_files_only=True
            )
        )
    except LocalEntryNotFoundError:
        if isinstance(refusal, HfHubHTTPError):
            raise refusal from None
        raise


def row_group_sizes(files: Sequence[Shard]) -> list[list[int]]:
    """Read the number of rows of every row group of every shard, from the footers alone."""

    def sizes(file: Shard) -> list[int]:
        footer = file.footer()
        return [footer.row_group(i).num_rows for i in range(footer.num_row_groups)]

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(sizes, files))
