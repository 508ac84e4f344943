"""Data sets as Parquet files in the Hugging Face hub's layout, from a folder or from the hub.

A split consists of shards, `<repo>/<config>/<split>-00000-of-00002.parquet` or, in older sets,
`<repo>/<config>/<split>/0000.parquet`. An incomplete split is never used.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

ENVIRONMENT = "RANKSCOPE_DATA"
REMEDY = f"pass --data FOLDER or set {ENVIRONMENT}"
DOWNLOAD_AGAIN = "delete it and download it again"

COUNTED = re.compile(r"(?P<split>.+)-(?P<index>\d+)-of-(?P<count>\d+)(-[0-9a-f]+)?\.parquet")
NUMBERED = re.compile(r"(?P<split>[^/]+)/(?P<index>\d+)\.parquet")


def parquet_files(repo: str, config: str, split: str, *, folder: Path | None = None) -> list[Path]:
    """Return the shards of a split, in order.

    folder: parent of the repositories; None for RANKSCOPE_DATA, then the hub and its cache.
    """
    folder = data_folder(folder)
    repository = _downloaded(repo, config, split) if folder is None else _repository(folder, repo)
    return files_in(repository, config, split)


def files_in(repository: Path, config: str, split: str) -> list[Path]:
    """Return the shards of a split in a local repository, in order."""
    names = [path.relative_to(repository).as_posix() for path in repository.rglob("*.parquet")]
    return [repository / name for name in shards(names, config, split, origin=str(repository))]


def data_folder(folder: Path | None) -> Path | None:
    """Return `folder`, or that of the environment variable RANKSCOPE_DATA; None for the hub."""
    if folder is None and os.environ.get(ENVIRONMENT):
        return Path(os.environ[ENVIRONMENT])
    return folder


def shards(names: Iterable[str], config: str, split: str, *, origin: str) -> list[str]:
    """Select a split's shards from a repository's file names, in order; none may be missing.

    origin: the repository's name in messages.
    """
    splits: dict[str, dict[int, str]] = {}
    counts: dict[str, set[int]] = {}
    for name in sorted(names):
        match = _shard(name, config)
        if match:
            splits.setdefault(match["split"], {})[int(match["index"])] = name
            count = match.groupdict().get("count")
            counts.setdefault(match["split"], set()).update([int(count)] if count else [])
    if split not in splits:
        known = ", ".join(sorted(splits)) or "no splits"
        raise ValueError(f"{origin}: no split {split!r} of {config!r}, there is: {known}; {REMEDY}")
    if len(counts[split]) > 1:
        raise ValueError(
            f"{origin}/{config}: shards of {split!r} belong to different sets, of "
            f"{' and of '.join(map(str, sorted(counts[split])))} files; delete those of one set"
        )
    by_index = splits[split]
    expected = max(counts[split], default=max(by_index) + 1)
    missing = [str(index) for index in range(expected) if index not in by_index]
    if missing:
        raise ValueError(
            f"{origin}/{config}: {split!r} has {expected} shards, missing: {', '.join(missing)}; "
            "download the split again"
        )
    return [by_index[index] for index in range(expected)]


def _shard(name: str, config: str) -> re.Match[str] | None:
    if not name.startswith(f"{config}/"):
        return None
    within = name.removeprefix(f"{config}/")
    return COUNTED.fullmatch(within) or NUMBERED.fullmatch(within)


def _repository(folder: Path, repo: str) -> Path:
    if not folder.is_dir():
        raise ValueError(f"the data folder {folder} does not exist; {REMEDY}")
    if not (folder / repo).is_dir():
        raise ValueError(
            f"the data folder {folder} has no data set {repo!r}: expected {folder / repo}; {REMEDY}"
        )
    return folder / repo


def _downloaded(repo: str, config: str, split: str) -> Path:
    """Download a split and return the hub's local snapshot; offline, use the cached files."""
    patterns = shard_patterns(config, split)
    with explained(repo):
        snapshot = Path(snapshot_download(repo, repo_type="dataset", allow_patterns=patterns))
        if not any(any(snapshot.glob(pattern)) for pattern in patterns):
            # Raises an error that lists the splits, unless the listing is out of date.
            names = HfApi().list_repo_files(repo, repo_type="dataset")
            shards(names, config, split, origin=f"hub data set {repo}")
    return snapshot


def shard_patterns(config: str, split: str) -> list[str]:
    """Patterns of a split's file names on the hub."""
    return [f"{config}/{split}-*.parquet", f"{config}/{split}/*.parquet"]


@contextmanager
def explained(repo: str) -> Iterator[None]:
    """Turn errors of the hub into a ValueError that says what to do."""
    try:
        yield
    except GatedRepoError as error:
        raise ValueError(
            f"you have not accepted the hub's terms for {repo!r}; accept them on its page and log "
            f"in by `hf auth login`, or, if you have the files, {REMEDY}"
        ) from error
    except RepositoryNotFoundError as error:
        raise ValueError(f"the hub has no data set {repo!r}; {REMEDY}") from error
    except (HfHubHTTPError, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"{repo!r} cannot be downloaded, is there a network? ({reason}); if you have the "
            f"files, {REMEDY}"
        ) from error


def read_shards(files: Sequence[Path], columns: Sequence[str]) -> Iterator[tuple[Path, pa.Table]]:
    """Yield each shard's path and table; raise ValueError if there are no rows at all."""
    rows = 0
    for path in files:
        table = read_table(path, columns)
        rows += table.num_rows
        yield path, table
    if not rows:
        raise ValueError(
            f"{files[0]}: no rows, nor in any other shard of its split; download the split again"
        )


def read_table(path: Path, columns: Sequence[str], group: int | None = None) -> pa.Table:
    """Read a shard, or one row group of it."""
    with whole(path), pq.ParquetFile(path, page_checksum_verification=True) as file:
        missing = [name for name in columns if name not in file.schema_arrow.names]
        if not missing:
            groups = range(file.num_row_groups) if group is None else [group]
            return file.read_row_groups(groups, columns=list(columns))
        known = ", ".join(file.schema_arrow.names)
    raise ValueError(f"{path} has no column {missing[0]!r}, it has: {known}; {REMEDY}")


@contextmanager
def whole(file: object, *, remedy: str = DOWNLOAD_AGAIN) -> Iterator[None]:
    """Turn Arrow's errors into a ValueError that names the file."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{file} is not a complete Parquet file ({reason}); {remedy}") from error


def encoded_files(column: pa.ChunkedArray, path: Path, name: str) -> list[bytes | None]:
    """Return the encoded images or sounds of a column, which the hub stores as `bytes` structs."""
    kind = column.type
    if not pa.types.is_struct(kind) or kind.get_field_index("bytes") < 0:
        raise ValueError(
            f"{path}: column {name!r} holds no encoded files but {kind}; {DOWNLOAD_AGAIN}"
        )
    return [row and row["bytes"] for row in column.to_pylist()]


def labels(column: pa.ChunkedArray, classes: int, path: Path, *, first: int = 0) -> np.ndarray:
    """Return a column of labels, 0 <= label < classes. first: the file's row of the first label."""
    if not pa.types.is_integer(column.type) or column.null_count:
        raise ValueError(
            f"{path}: labels must be whole numbers and all there, got {column.type} with "
            f"{column.null_count} missing; {DOWNLOAD_AGAIN}"
        )
    values: np.ndarray = column.to_numpy().astype(np.int64)
    wrong = np.flatnonzero((values < 0) | (values >= classes))
    if len(wrong):
        raise ValueError(
            f"{path}, row {first + wrong[0]}: label {values[wrong[0]]} is outside 0 to "
            f"{classes - 1}, one of {len(wrong)} such rows; {DOWNLOAD_AGAIN}, or name the data set "
            "it is"
        )
    return values
