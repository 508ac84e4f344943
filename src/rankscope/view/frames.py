"""Binary answers: one JSON header, then arrays; and numbers coded in one byte for heat maps.

"RSV1", the length of the header as uint32, the header padded with spaces to a multiple of 8 bytes,
and the arrays in C order, each at a multiple of 8 bytes. Everything is little-endian.
"""

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

MAGIC = b"RSV1"
NOT_STORED, NOT_A_NUMBER = 0, 255  # codes of cells without a value
DTYPES = {"uint8": "u1", "int32": "<i4", "float32": "<f4", "float64": "<f8"}


def packed(arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> bytes:
    """Return the frame of some arrays and what is to be said about them."""
    listed, parts, offset = {}, [], 0
    for name, array in arrays.items():
        dtype = array.dtype.name
        data = np.ascontiguousarray(array).astype(DTYPES[dtype], copy=False).tobytes()
        listed[name] = {"dtype": dtype, "shape": list(array.shape), "offset": offset}
        parts.append(data + bytes(-len(data) % 8))
        offset += len(parts[-1])
    header = json.dumps(plain({"arrays": listed, **meta}), allow_nan=False).encode()
    header += b" " * (-len(header) % 8)
    return b"".join([MAGIC, struct.pack("<I", len(header)), header, *parts])


def plain(value: Any) -> Any:
    """Return `value` as JSON has it: numbers that are not finite are null."""
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


@dataclass(frozen=True)
class Scale:
    """The range of numbers that bytes 1 to 254 stand for; 0 is not stored, 255 not a number."""

    kind: str
    low: float
    high: float

    @classmethod
    def of(
        cls, values: np.ndarray, kind: str, *, low: float | None = None, high: float | None = None
    ) -> "Scale":
        """Return the scale from the least to the largest of `values`, or between given ends."""
        if low is not None and high is not None:
            return cls(kind, low, high)
        usable = values[np.isfinite(values) & ((values > 0) | (kind != "log"))]
        least, most = (float(usable.min()), float(usable.max())) if usable.size else (0.0, 1.0)
        if kind == "log":
            most = most if usable.size else 1.0
            least = max(least, most * 1e-12, 1e-300) if usable.size else 0.1
        return cls(kind, least, most)

    def bytes_of(self, values: np.ndarray, stored: np.ndarray) -> np.ndarray:
        """Return the code of each number; beyond the ends it is that of the end."""
        low, high, numbers = self.low, self.high, values.astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            if self.kind == "log":
                low, high, numbers = math.log(low), math.log(high), np.log(numbers)
            share = (numbers - low) / ((high - low) or 1.0)
        codes = 1 + np.round(np.clip(share, 0, 1) * (NOT_A_NUMBER - 2))
        codes = np.where(np.isnan(share), NOT_A_NUMBER, codes)
        return np.where(stored, codes, NOT_STORED).astype(np.uint8)

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "low": self.low, "high": self.high}


def value_range(values: np.ndarray) -> list[float] | None:
    """Return the least and the largest finite value; None if there is none."""
    finite = values[np.isfinite(values)]
    return [float(finite.min()), float(finite.max())] if finite.size else None
