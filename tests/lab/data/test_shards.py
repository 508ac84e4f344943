"""Row groups in memory, and messages that name bad rows."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from PIL import Image

from lab.data.parquet import png, write_images
from rankscope.lab.data import remote, shards
from rankscope.lab.data.crops import Crops
from rankscope.lab.data.shards import (
    TINY_IMAGENET,
    TINY_IMAGENET_VALIDATION,
    ImageShards,
    ShardedImages,
    threads,
)

SOME = ShardedImages("some/images", "data", "train", "image", "label", 30)
COUNTS, GROUP = (7, 0, 12, 5), 3  # rows of each shard, of a row group


def sides(index: int) -> tuple[int, int]:
    return 8 + index % 5, 8 + index % 3


def encoded(index: int) -> bytes:
    """One colour that tells which image it is, in a size of its own, every fourth one grey."""
    value = 10 * index
    height, width = sides(index)
    shape = (height, width) if index % 4 == 0 else (height, width, 3)
    return png(np.full(shape, value, np.uint8))


def write(folder: Path, shard: int, images: list[bytes | None], labels: list[int]) -> Path:
    path = folder / f"some/images/data/train-{shard:05}-of-{len(COUNTS):05}.parquet"
    return write_images(path, images, labels, row_group=GROUP)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    first = 0
    for shard, count in enumerate(COUNTS):
        part = range(first, first + count)
        write(tmp_path, shard, [encoded(index) for index in part], list(part))
        first += count
    return tmp_path


def top_left(image: Image.Image, index: int) -> np.ndarray:
    """Return the top left corner, after checking that the image belongs to the index."""
    assert image.size[::-1] == sides(index)
    return np.asarray(image)[:4, :4]


def seen(images: ImageShards, *indices: int) -> tuple[list[int], list[int]]:
    pixels, labels = images.images(torch.tensor(indices), top_left, size=4)
    assert pixels.shape == (len(indices), 3, 4, 4) and pixels.dtype == torch.uint8
    assert (pixels == pixels[:, :1, :1, :1]).all()
    return (pixels[:, 0, 0, 0] // 10).tolist(), labels.tolist()


def test_row_groups_are_counted_through_all_shards(data: Path) -> None:
    images = SOME.open(data)
    assert len(images) == 24
    assert [size for size in images.blocks if size] == [3, 3, 1, 3, 3, 3, 3, 3, 2]


@pytest.mark.parametrize("keep", [1, 2, 100])
def test_any_rows_in_any_order_whatever_is_kept(data: Path, keep: int) -> None:
    images = SOME.open(data, keep=keep)
    everything = torch.randperm(24, generator=torch.Generator().manual_seed(0)).tolist()
    for asked in (everything, [23, 0, 6, 7, 18, 19], [5], [4, 4, 3], everything):
        assert seen(images, *asked) == (asked, asked)


def test_so_many_row_groups_are_kept_and_no_more(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[tuple[str, int]] = []
    real = shards.read_table

    def counted(path: Path, columns: list[str], group: int) -> pa.Table:
        read.append((path.name[:11], group))
        return real(path, columns, group)

    monkeypatch.setattr(shards, "read_table", counted)
    images = SOME.open(data, keep=2)
    assert read == []  # footers say it all
    seen(images, 0, 1, 3)
    assert sorted(read) == [("train-00000", 0), ("train-00000", 1)]
    seen(images, 2, 4)  # the same groups again
    assert len(read) == 2
    seen(images, 23, 4)  # the last used stay
    assert len(read) == 3 and read[-1] == ("train-00003", 1)
    seen(images, *range(24))
    assert len(images._in_memory) == 2
    seen(images, 3)
    seen(images, 23)
    seen(images, 3)
    assert set(images._in_memory) == {1, len(images.blocks) - 1}


def test_footers_are_read_once(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = SOME.open(data).blocks
    monkeypatch.setattr(shards, "row_group_sizes", lambda _: pytest.fail("read again"))
    assert SOME.open(data).blocks == before
    write(data, 3, [encoded(0)], [0])
    with pytest.raises(pytest.fail.Exception, match="read again"):
        SOME.open(data)


@pytest.mark.parametrize(
    ("last", "label", "message"),
    [(b"no image", 0, "the image does not decode"), (encoded(0), 30, "label 30 is outside 0 to")],
)
def test_wrong_rows_are_named(data: Path, last: bytes, label: int, message: str) -> None:
    path = write(data, 2, [encoded(0)] * 11 + [last], [0] * 11 + [label])
    with pytest.raises(ValueError, match=rf"{path.name}, row 11: {message}"):
        SOME.open(data).images(torch.tensor([0, 18]), lambda *_: np.zeros((4, 4, 3)), size=4)


def test_damaged_and_empty_shards_are_named(data: Path) -> None:
    path = write(data, 1, [], [])
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(
        ValueError, match=rf"{path.name} is not a complete Parquet file .*; delete it"
    ):
        SOME.open(data)
    for shard in range(4):
        write(data, shard, [], [])
    with pytest.raises(ValueError, match=r"/train-00000-of-00004\.parquet: no rows, nor in any"):
        SOME.open(data)


def test_spread_is_even_and_from_few_files_and_row_groups(data: Path) -> None:
    images = SOME.open(data)
    assert images.spread(10**6, files=10, blocks=100).tolist() == list(range(24))
    assert images.spread(4, files=10, blocks=100).tolist() == [0, 8, 15, 23]
    # Rows 0-6 are in the first file, 19-23 in the last; the second has none.
    two = images.spread(24, files=2, blocks=100).tolist()
    assert two == [*range(7), *range(19, 24)]
    assert images.spread(24, files=2, blocks=2).tolist() == [0, 1, 2, 22, 23]
    assert images.spread(1, files=1, blocks=1).tolist() == [0]


def test_processes_side_by_side_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = threads()
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert threads() == max(1, alone // 2)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "100000")
    assert threads() == 1


def test_hub_shards_are_fetched_when_they_are_read(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RANKSCOPE_DATA", raising=False)
    files = sorted((data / SOME.repo).rglob("*.parquet"))
    fetched: list[str] = []

    class Planned:
        def __init__(self, path: Path) -> None:
            self.filename = path.relative_to(data / SOME.repo).as_posix()
            self.commit_hash = "abc"

    class FileSystem:
        def open(self, place: str, **_: object) -> object:
            prefix = "datasets/some/images@abc/"
            assert place.startswith(prefix)
            return (data / SOME.repo / place.removeprefix(prefix)).open("rb")

    def download(repo: str, name: str, **options: object) -> str:
        assert options == {"repo_type": "dataset", "revision": "abc"}
        fetched.append(name)
        return str(data / repo / name)

    monkeypatch.setattr(remote, "snapshot_download", lambda *_, **__: [*map(Planned, files)])
    monkeypatch.setattr(remote, "HfFileSystem", FileSystem)
    monkeypatch.setattr(remote, "hf_hub_download", download)
    images = SOME.open()
    assert len(images) == 24 and fetched == []
    assert seen(images, 8, 9) == ([8, 9], [8, 9])
    assert set(fetched) == {"data/train-00002-of-00004.parquet"}


@pytest.mark.skipif("RANKSCOPE_DATA" not in os.environ, reason="needs RANKSCOPE_DATA")
@pytest.mark.parametrize("declared", [TINY_IMAGENET, TINY_IMAGENET_VALIDATION])
def test_tiny_imagenet(declared: ShardedImages) -> None:
    """The real data set has some grey images."""
    images, crops = declared.open(keep=2), Crops(size=56)
    pixels, labels = images.images(
        torch.arange(len(images)), lambda image, _: crops.middle(image), size=56
    )
    assert 0.3 < float(pixels.double().mean()) / 255 < 0.6
    assert labels.min() >= 0 and labels.max() < 200 and len(labels.unique()) > 1
    grey = (pixels == pixels[:, :1]).flatten(1).all(1)
    assert not grey.all() and (grey.any() or declared is TINY_IMAGENET_VALIDATION)
