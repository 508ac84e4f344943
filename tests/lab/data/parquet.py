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


def write_images(path: Path, encoded: Sequence[bytes | None], labels: Sequence[int]) -> Path:
    """One shard with columns `image` and `label`."""
    rows = [{"bytes": data, "path": None} for data in encoded]
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    table = pa.table({"image": pa.array(rows, kind), "label": pa.array(labels, pa.int64())})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    return path
