"""Files of some megabytes that ask for hours or for more memory than there is.

`large_forgeries.py FOLDER` writes them.
"""

import io
import json
import struct
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

STORAGE = (
    b"X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x04tQ"
)
REBUILD = b"ctorch._utils\n_rebuild_tensor_v2\n"
ORDERED = b"ccollections\nOrderedDict\n"
STEPS = 3_900_000


def pickles() -> Iterator[tuple[str, bytes]]:
    """Yield pickles by what they want too much of."""
    long = b"(" + b"K\x01" * 1_000_000 + b"tq\x01"
    yield "hashes of a long key", b"\x80\x02" + long + b"0}" + b"h\x01Ns" * 900_000 + b"."
    pairs = b"](" + b"X\x02\x00\x00\x00ab" * 676 + b"e\x85q\x01"
    yield "dicts of one list", b"\x80\x02" + pairs + ORDERED + b"q\x02" + b"h\x02h\x01R" * STEPS
    yield "sets", b"\x80\x04" + b"\x8f" * STEPS + b"."
    yield "frozen sets", b"\x80\x04" + b"(\x91" * (STEPS // 2) + b"."
    sizes = b"(" + b"K\x01" * 16 + b"t"
    arguments = b"((" + STORAGE + b"K\x00" + sizes + sizes + b"\x89}tq\x01"
    calls = REBUILD + b"q\x02" + b"h\x02h\x01R" * (STEPS // 3)
    yield "tensors", b"\x80\x02" + arguments + calls + b"."
    one = REBUILD + b"((" + STORAGE + b"K\x00K\x02K\x02\x86K\x02K\x01\x86\x89}tRq\x01"
    names = b"".join(b"X\x06\x00\x00\x00%06dh\x01" % number for number in range(1_000_000))
    yield "names of one tensor", b"\x80\x02" + one + b"0}(" + names + b"u."


def archive(pickle: bytes) -> bytes:
    """Return a file of torch.save with this pickle and one storage."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as members:
        members.writestr("x/data.pkl", pickle)
        members.writestr("x/data/0", bytes(16))
    return file.getvalue()


def headers() -> Iterator[tuple[str, bytes]]:
    """Yield headers of safetensors, each just below the size that is read."""
    entry = {"dtype": "F32", "shape": [1, 1]}
    many = {str(n): {**entry, "data_offsets": [4 * n, 4 * n + 4]} for n in range(210_000)}
    yield "headers of many tensors", json.dumps(many, separators=(",", ":")).encode()
    yield "nested lists", b'{"a":' + b"[" * 8_000_000 + b"]" * 8_000_000 + b"}"
    yield "empty dicts", b'{"__metadata__":{"a":[' + b"{}," * 5_500_000 + b"{}]}}"


def main(folder: Path) -> None:
    """Write every forgery as a file of its own."""
    for name, pickle in pickles():
        (folder / f"{name}.pt").write_bytes(archive(pickle))
    for name, header in headers():
        data = struct.pack("<Q", len(header)) + header + bytes(840_000)
        (folder / f"{name}.safetensors").write_bytes(data)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
