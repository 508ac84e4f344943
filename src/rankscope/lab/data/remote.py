"""Shards that are fetched from the hub when they are first read, so that training need not wait for
all of a large data set. What was fetched stays in the hub's own cache."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.parquet as pq
from huggingface_hub import HfFileSystem, hf_hub_download, snapshot_download
from huggingface_hub.errors import DryRunError

from rankscope.lab.data.hub import (
    DOWNLOAD_AGAIN,
    data_folder,
    explained,
    parquet_files,
    shard_patterns,
    shards,
)

FOOTER_BYTES = 2**17  # asked for at once: the footer of a shard with a few hundred row groups
AT_ONCE = 16  # footers under way


@runtime_checkable
class Shard(Protocol):
    """One Parquet file of a split, here or on the hub."""

    def path(self) -> Path:
        """Where it lies; fetched, if it has to be."""

    def footer(self) -> pq.FileMetaData:
        """What it says of itself, without fetching it."""


@dataclass(frozen=True)
class LocalShard:
    """A file that is here."""

    file: Path

    def path(self) -> Path:
        return self.file

    def footer(self) -> pq.FileMetaData:
        try:
            return pq.read_metadata(self.file)
        except (pa.ArrowException, OSError) as error:
            reason = str(error).partition("\n")[0]
            raise ValueError(
                f"{self.file} is no whole Parquet file ({reason}); {DOWNLOAD_AGAIN}"
            ) from error


@dataclass(frozen=True)
class HubShard:
    """A file on the hub. revision: a commit, so that all shards are of one state."""

    repo: str
    name: str
    revision: str

    def path(self) -> Path:
        with explained(self.repo):
            return Path(
                hf_hub_download(self.repo, self.name, repo_type="dataset", revision=self.revision)
            )

    def footer(self) -> pq.FileMetaData:
        place = f"datasets/{self.repo}@{self.revision}/{self.name}"
        with explained(self.repo), HfFileSystem().open(place, block_size=FOOTER_BYTES) as file:
            return pq.read_metadata(file)


def split_shards(
    repo: str, config: str, split: str, *, folder: Path | None = None
) -> Sequence[Shard]:
    """The shards of a split, in order, none of them fetched; `folder` as for `parquet_files`."""
    revisions = _listed(repo, config, split) if data_folder(folder) is None else {}
    if revisions:
        names = shards(revisions, config, split, origin=f"hub data set {repo}")
        return [HubShard(repo, name, revisions[name]) for name in names]
    return [LocalShard(path) for path in parquet_files(repo, config, split, folder=folder)]


def _listed(repo: str, config: str, split: str) -> dict[str, str]:
    """The commit of each file of the split on the hub; {} without a network, or without any."""
    patterns = shard_patterns(config, split)
    with explained(repo):
        try:
            planned = snapshot_download(
                repo, repo_type="dataset", allow_patterns=patterns, dry_run=True
            )
        except DryRunError:
            return {}
    return {each.filename: each.commit_hash for each in planned}


def row_group_sizes(files: Sequence[Shard]) -> list[list[int]]:
    """Rows of every row group of every shard, from the footers alone."""

    def sizes(file: Shard) -> list[int]:
        footer = file.footer()
        return [footer.row_group(i).num_rows for i in range(footer.num_row_groups)]

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(sizes, files))
