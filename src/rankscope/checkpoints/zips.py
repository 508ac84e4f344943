"""Zip archives as `torch.save` writes them: members are stored whole, and read in place."""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from rankscope.checkpoints.files import File, Part, read_bytes

END, END64, LOCATOR64, ENTRY, LOCAL = (
    b"PK\x05\x06",
    b"PK\x06\x06",
    b"PK\x06\x07",
    b"PK\x01\x02",
    b"PK\x03\x04",
)
MOST_COMMENT = 2**16
MOST_DIRECTORY = 2**25
ONES32, ONES16 = 0xFFFFFFFF, 0xFFFF


@dataclass(frozen=True)
class Member:
    """Where an archive lists a member: its header starts at `start`, its bytes follow.

    checksum: CRC-32 of the bytes; None if the archive was written without checksums.
    """

    file: File
    start: int
    size: int
    checksum: int | None


@dataclass(frozen=True)
class Checked:
    """The bytes of a member as a file of its own, compared with a checksum when read whole."""

    bytes: Part
    checksum: int | None

    @property
    def name(self) -> str:
        return self.bytes.name

    @property
    def size(self) -> int:
        return self.bytes.size

    def read_into(self, buffer: memoryview, offset: int) -> None:
        self.bytes.read_into(buffer, offset)
        whole = len(buffer) == self.size
        if whole and self.checksum is not None and zlib.crc32(buffer) != self.checksum:
            raise ValueError(
                f"{self.name} is damaged: some of its bytes differ from those that were written; "
                "fetch it again"
            )


def zip_members(file: File) -> dict[str, Member]:
    """Return the members of an archive by name; a compressed one is refused when it is needed.

    Only sizes and places are read; a member that is stored twice counts as damage.
    """
    members: dict[str, Member] = {}
    entries = list(_entries(file, _directory(file)))
    has_checksums = any(checksum for *_, checksum in entries)  # torch can leave them out: all are 0
    for name, method, packed, size, start, checksum in entries:
        if name in members:
            raise ValueError(f"{file.name} is damaged: its archive lists {name[:80]!r} twice")
        if method != 0 or packed != size:
            continue  # torch.save compresses nothing
        members[name] = Member(file, start, size, checksum if has_checksums else None)
    return members


def in_place(member: Member) -> Checked:
    """Return the bytes of a member, which follow its own header, whose length only it tells."""
    header = read_bytes(member.file, member.start, 30)
    name, extra = struct.unpack("<26x2H", header)
    start = member.start + 30 + name + extra
    if header[:4] != LOCAL or start + member.size > member.file.size:
        raise ValueError(f"{member.file.name} is damaged: its archive does not hold what it lists")
    return Checked(Part(member.file, start, member.size), member.checksum)


def _directory(file: File) -> bytes:
    tail_start = max(0, file.size - MOST_COMMENT - 22)
    tail = read_bytes(file, tail_start, file.size - tail_start)
    place = tail.rfind(END)
    if place < 0 or len(tail) - place < 22:
        raise ValueError(
            f"{file.name} is damaged and cannot be read: its archive has no end; fetch it again"
        )
    size, start = struct.unpack("<12x2I", tail[place : place + 20])
    locator = tail_start + place - 20
    many = ONES16 in struct.unpack("<8x2H", tail[place : place + 12])
    if (many or ONES32 in (size, start)) and locator >= 0:
        pointer = read_bytes(file, locator, 20)
        if pointer[:4] == LOCATOR64:
            record = read_bytes(file, struct.unpack("<8xQ4x", pointer)[0], 56)
            if record[:4] != END64:
                raise ValueError(f"{file.name} is damaged: its archive has no end")
            size, start = struct.unpack("<40x2Q", record)
    if size > MOST_DIRECTORY:
        raise ValueError(f"{file.name} is damaged: its archive lists too many members")
    return read_bytes(file, start, size)


def _entries(file: File, directory: bytes) -> Iterator[tuple[str, int, int, int, int, int]]:
    """Yield name, method, packed size, size, place and checksum of each member."""
    position = 0
    while position < len(directory):
        fields = directory[position : position + 46]
        if len(fields) < 46 or fields[:4] != ENTRY:
            raise ValueError(f"{file.name} is damaged: its archive's list of members is")
        method, checksum, packed, size, name_size, extra_size, comment = struct.unpack(
            "<10xH4x3I3H", fields[:34]
        )
        (start,) = struct.unpack("<42xI", fields)
        name = directory[position + 46 : position + 46 + name_size].decode("utf-8", "replace")
        extra_start = position + 46 + name_size
        extra = directory[extra_start : extra_start + extra_size]
        size, packed, start = _large(extra, size, packed, start)
        yield name, method, packed, size, start, checksum
        position = extra_start + extra_size + comment


def _large(extra: bytes, *values: int) -> Iterator[int]:
    """Yield the values, with those of 32 ones replaced by the larger ones in the zip64 field."""
    numbers = b""
    position = 0
    while position + 4 <= len(extra):
        kind, length = struct.unpack("<2H", extra[position : position + 4])
        if kind == 1:
            numbers = extra[position + 4 : position + 4 + length]
        position += 4 + length
    for value in values:
        if value == ONES32 and len(numbers) >= 8:
            yield struct.unpack("<Q", numbers[:8])[0]
            numbers = numbers[8:]
        else:
            yield value
