"""Small data sets in the hub's layout, written for a test."""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image


def png(pixels: np.ndarray) -> bytes:
    """A grey (h, w) or a colour (h, w, 3) image, encoded without loss."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG")
    return buffer.getvalue()


ENCODED = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def encoded_column(files: Sequence[bytes | None]) -> pa.Array:
    rows = [None if data is None else {"bytes": data, "path": None} for data in files]
    return pa.array(rows, ENCODED)


def write(path: Path, row_group: int = 1000, **columns: object) -> Path:
    """Write one shard."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, row_group_size=row_group)
    return path


def write_images(
    path: Path, files: Sequence[bytes | None], labels: Sequence[int], row_group: int = 1000
) -> Path:
    """Write one shard with columns `image` and `label`."""
    answers = pa.array(labels, pa.int64())
    return write(path, row_group, image=encoded_column(files), label=answers)
