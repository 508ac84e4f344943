"""Damage to the files of a checkpoint: accidents, values that nobody expects, and attacks."""

import io
import json
import os
import random
import struct
import zipfile
from pathlib import Path
from typing import Any

from test_store_mutations import mutated

NUMBERS = (0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**49, 2**50 - 1, 2**50, 2**63 - 1, 2**64 - 1)
NAMES = ("", "..", "../../etc/passwd", "/etc/passwd", "\0", "\x1b[31m", "\ud800", "x" * 70_000)
VALUES = (*NAMES, None, True, -1, 0.5, float("nan"), 10**400, [], {}, [[]], {"": {}})
ENTRIES = tuple(
    {"dtype": dtype, "shape": shape, "data_offsets": [0, 0]}
    for dtype in ("F32", "F8_E4M3", "I8", "F4", "F64")
    for shape in ([0, 2**49], [2**49, 0], [2**49, 2**49, 0], [2**49, 0, 3, 3], [0] * 16, [0, 0])
)
# Calls that Python's own unpickler would make.
ATTACKS = (
    b"cos\nsystem\nX\x04\x00\x00\x00true\x85R",
    b"cbuiltins\neval\nX\x01\x00\x00\x001\x85R",
    b"cbuiltins\nexec\nX\x08\x00\x00\x00import os\x85R",
    b"csubprocess\nPopen\nX\x04\x00\x00\x00true\x85R",
    b"cbuiltins\ngetattr\nctorch\nload\nX\x08\x00\x00\x00__code__\x86R",
    b"ctorch\nload\nX\x0b\x00\x00\x00/etc/passwd\x85R",
    b"ccheckpoints.mutants\nexample\n)R",
    b"(X\x04\x00\x00\x00trueios\nsystem\n",
)


def damaged(kind: str, name: str, data: bytes, moment: random.Random) -> bytes:
    """Return the bytes of a file after an accident or a forgery."""
    if moment.randrange(3) == 0:
        return forged(name, data, moment)
    if kind == "legacy" or name.endswith(".metadata"):
        return in_pickle(data, moment)
    data = in_archive(data, moment) if kind == "pickle" else mutated(data, moment)
    return mutated(data, moment) if moment.randrange(3) == 0 else data


def in_archive(data: bytes, moment: random.Random) -> bytes:
    """Damage the pickle, and zip it again so that the archive is whole."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as before, zipfile.ZipFile(out, "w") as after:
        for name in before.namelist():
            content = before.read(name)
            after.writestr(name, in_pickle(content, moment) if name.endswith(".pkl") else content)
    return out.getvalue()


def in_pickle(data: bytes, moment: random.Random) -> bytes:
    """Damage a pickle, or put a call into it: anywhere, or right before its end."""
    if moment.randrange(3):
        return mutated(data, moment)
    place = moment.choice((moment.randrange(len(data)), len(data) - 1))
    return data[:place] + moment.choice(ATTACKS) + data[place:]


def replaced(path: Path, moment: random.Random) -> None:
    """Put something else in the place of a file: nothing, a link, a folder, a pipe."""
    path.unlink()
    kind = moment.randrange(5)
    if kind < 2:
        path.symlink_to(("/etc/passwd", path.name)[kind])
    elif kind == 2:
        path.mkdir()
    elif kind == 3:
        os.mkfifo(path)


def forged(name: str, data: bytes, moment: random.Random) -> bytes:
    """Put a value that nobody expects into a file that is otherwise whole."""
    if name.endswith(".json"):
        return json.dumps(forged_json(json.loads(data), moment)).encode()
    if name.endswith(".safetensors"):
        end = 8 + struct.unpack("<Q", data[:8])[0]
        header = json.dumps(forged_json(json.loads(data[8:end]), moment)).encode()
        return struct.pack("<Q", len(header)) + header + data[end:]
    number = struct.pack("<Q", moment.choice(NUMBERS))[: moment.choice((1, 2, 4, 8))]
    place = moment.randrange(len(data))
    return data[:place] + number + data[place + len(number) :]


def forged_json(content: Any, moment: random.Random) -> Any:
    """Return JSON with one value or name replaced, or one entry more."""
    if isinstance(content, dict) and moment.randrange(4) == 0:
        return {**content, "forged.weight": moment.choice(ENTRIES)}
    if not isinstance(content, dict | list) or not content or moment.randrange(8) == 0:
        return moment.choice((*VALUES, *NUMBERS, *ENTRIES))
    if isinstance(content, list):
        place = moment.randrange(len(content))
        return [forged_json(v, moment) if i == place else v for i, v in enumerate(content)]
    key = moment.choice(list(content))
    if moment.randrange(4) == 0:
        return {moment.choice(NAMES) if k == key else k: v for k, v in content.items()}
    return {k: forged_json(v, moment) if k == key else v for k, v in content.items()}
