"""Compaction: the many files of a finished run become few, and many again if it is resumed.

A file of a run that is being written holds few steps, since each commit writes the last one again.
On closing, the chunks of many files are put into one, as they are. Both kinds of file can lie in an
array's folder; the root zarr.json says which are the array's. Whatever fails, it says so of files
that are all there.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from rankscope.store.chunk import Damage
from rankscope.store.files import ROOT, replace_file, write_own_metadata
from rankscope.store.layout import COMPACT_BYTES, Contents, Layout
from rankscope.store.metadata import ArrayFormat, parse_root
from rankscope.store.shard import Index, Shard, inner_indices, shard_bytes
from rankscope.store.source import Folder


def compact(run: Path, contents: Contents, *, durable: bool) -> Contents:
    """Put the chunks of each array into large files; return the contents that are committed."""
    layouts = {}
    for name, layout in contents.layouts.items():
        if layout.columns and layout.blocks == 1:
            file_bytes = layout.chunk.nbytes * layout.grid[1]
            blocks = -(-contents.lengths[layout.dims[0]] // layout.chunk_rows)
            blocks = min(blocks, COMPACT_BYTES // file_bytes)
            if blocks > 1:
                layouts[name] = replace(layout, blocks=blocks)
    return _with_files(run, contents, layouts, durable=durable)


def expand(run: Path, contents: Contents, *, durable: bool) -> Contents:
    """Undo `compact`, so that rows can be added; return the contents that are committed."""
    layouts = {
        name: replace(layout, blocks=1)
        for name, layout in contents.layouts.items()
        if layout.blocks > 1
    }
    return _with_files(run, contents, layouts, durable=durable)


def remove_other_files(run: Path, contents: Contents) -> None:
    """Remove files of the kind that an array does not use."""
    for name, layout in contents.layouts.items():
        if layout.columns:
            for path in (run / name).glob("c.[0-9]*" if layout.blocks > 1 else "[0-9]*"):
                path.unlink()


def _with_files(
    run: Path, contents: Contents, layouts: Mapping[str, Layout], *, durable: bool
) -> Contents:
    """Write the files of `layouts`, commit them, and remove those that they replace."""
    if not layouts:
        return contents
    wanted = replace(contents, layouts={**contents.layouts, **layouts})
    before, after = parse_root(contents.to_json()).arrays, parse_root(wanted.to_json()).arrays
    try:
        for name in layouts:
            for file_name, data in _files(run, before[name], after[name]):
                replace_file(run / name / file_name, data, durable=durable)
    except OSError:
        with contextlib.suppress(OSError):
            remove_other_files(run, contents)
        raise
    replace_file(run / ROOT, wanted.to_json(), durable=durable)
    with contextlib.suppress(OSError):
        write_own_metadata(run, wanted, layouts, durable=False)
        remove_other_files(run, wanted)
    return wanted


def _files(run: Path, before: ArrayFormat, after: ArrayFormat) -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of each file that holds the chunks of `before` as `after` does."""
    with contextlib.ExitStack() as files:
        shards: dict[Index, Shard] = {}

        def chunk(index: Index) -> bytes:
            place = tuple(i // n for i, n in zip(index, before.chunks_per_file, strict=True))
            if place not in shards:
                files.close()
                shards.clear()
                most = before.file_bytes
                file = Folder(run / before.name).open(before.file_name(place), most_bytes=most)
                if file is None:
                    raise Damage(f"{before.name}/{before.file_name(place)} is missing")
                shards[place] = Shard.of(files.enter_context(file), before)
            return shards[place].read(index)

        grid = after.chunks_per_file
        chunk_count = -(-after.shape[0] // after.chunk.shape[0])
        for number in range(-(-chunk_count // grid[0])):
            first = number * grid[0]
            chunks = {
                (block, *rest): chunk((first + block, *rest))
                for block, *rest in inner_indices(grid)
                if first + block < chunk_count
            }
            yield after.file_name((number, *(0 for _ in grid[1:]))), shard_bytes(chunks, grid)
