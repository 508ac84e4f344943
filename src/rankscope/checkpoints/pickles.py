"""Pickles as descriptions: an interpreter that builds plain containers and never an object.

It knows the instructions that `torch.save` writes and a few names. A name is a pair of strings
here; nothing is imported and nothing is called. Any other instruction or call refuses the file.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

# Python's own unpickler takes memory by the numbers it reads; here only what was read counts.
MOST_BYTES = 2**25
MOST_STEPS = 4_000_000
CALL = 4  # steps that a call counts for, as it makes an object
MOST_DIGITS = 1024  # bytes of one whole number
LONGEST_KEY = 64  # parts of a tuple that is a key


@dataclass(frozen=True)
class Name:
    """A class or function that the pickle names."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(eq=False)
class Built:
    """Description of a call: the name, its arguments, and the state set afterwards."""

    name: Name
    arguments: tuple[Any, ...]
    state: Any = None

    def attributes(self) -> dict[Any, Any]:
        """Return the attributes that the state sets; empty if it sets none."""
        return self.state if isinstance(self.state, dict) else {}


class Refused(ValueError):
    """A pickle that is damaged, or that wants something which is not known."""


Call = Callable[[Name, tuple[Any, ...]], Any]
Calls = Mapping[tuple[str, str], Call]
PersistentLoad = Callable[[Any], Any]


def describe(
    data: bytes, *, calls: Calls, persistent: PersistentLoad | None = None, start: int = 0
) -> tuple[Any, int]:
    """Return what the pickle at `start` describes, and the position after it.

    calls: what to make of a call, by module and name.
    persistent: what to make of a persistent id, such as a storage.
    """
    machine = _Machine(data, calls, persistent, start)
    try:
        return machine.run(), machine.position
    except Refused:
        raise
    except (LookupError, TypeError, ValueError, struct.error, AttributeError) as damage:
        raise Refused(f"its pickle is damaged at byte {machine.position}") from damage


def built(name: Name, arguments: tuple[Any, ...]) -> Built:
    """Describe a call by its name and arguments."""
    return Built(name, arguments)


_MARK = object()


class _Machine:
    def __init__(
        self, data: bytes, calls: Calls, persistent: PersistentLoad | None, start: int
    ) -> None:
        self.data, self.position = data, start
        self.calls, self.persistent = calls, persistent
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.steps_left = MOST_STEPS

    def run(self) -> Any:
        while True:
            code = self.data[self.position : self.position + 1]  # millions of times
            self.position += 1
            self.steps_left -= 1
            instruction = INSTRUCTIONS.get(code)
            if instruction is None or self.steps_left < 0:
                self.spend(0)
                if code == b".":
                    return self.pop()
                if not code:
                    raise Refused("its pickle is cut short")
                raise Refused(
                    f"its pickle has an instruction that torch.save does not write: {code!r}"
                )
            instruction(self)

    def spend(self, steps: int) -> None:
        """Count steps, and refuse a pickle that takes too many."""
        self.steps_left -= steps
        if self.steps_left < 0:
            raise Refused(f"its pickle takes more than {MOST_STEPS} steps")

    def take(self, count: int) -> bytes:
        end = self.position + count
        if count < 0 or end > len(self.data):
            raise Refused("its pickle is cut short")
        piece, self.position = self.data[self.position : end], end
        return piece

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def line(self) -> str:
        end = self.data.find(b"\n", self.position, self.position + 1000)
        if end < 0:
            raise Refused("its pickle is cut short")
        text = self.data[self.position : end].decode()
        self.position = end + 1
        return text

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        if not self.stack or self.stack[-1] is _MARK:
            raise Refused(f"its pickle is damaged at byte {self.position}")
        return self.stack.pop()

    def since_mark(self) -> list[Any]:
        for depth in range(len(self.stack) - 1, -1, -1):
            if self.stack[depth] is _MARK:
                items = self.stack[depth + 1 :]
                del self.stack[depth:]
                return items
        raise Refused(f"its pickle is damaged at byte {self.position}")

    def top(self, kind: type) -> Any:
        if not self.stack or not isinstance(self.stack[-1], kind):
            raise Refused(f"its pickle is damaged at byte {self.position}")
        return self.stack[-1]

    def whole_number(self, count: int) -> None:
        if not 0 <= count <= MOST_DIGITS:
            raise Refused("its pickle has a number of unreasonable size")
        self.push(int.from_bytes(self.take(count), "little", signed=True))

    def text(self, form: str, encoding: str = "utf-8") -> None:
        self.push(self.take(self.number(form)).decode(encoding, "surrogatepass"))

    def call(self) -> None:
        arguments, name = self.pop(), self.pop()
        if not isinstance(name, Name) or not isinstance(arguments, tuple):
            raise Refused(f"its pickle is damaged at byte {self.position}")
        make = self.calls.get((name.module, name.name))
        if make is None:
            raise Refused(f"it wants to call {str(name)[:100]}, and nothing in a file is executed")
        # A call may go through its lists and tuples, each time anew.
        self.spend(CALL + sum(len(part) for part in arguments if isinstance(part, list | tuple)))
        self.push(make(name, arguments))

    def build(self) -> None:
        state = self.pop()
        target = self.stack[-1] if self.stack else None
        if isinstance(target, Built):
            target.state = state  # attributes of anything else hold no numbers

    def global_name(self, module: Any, name: Any) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise Refused(f"its pickle is damaged at byte {self.position}")
        self.push(Name(module, name))

    def set_items(self, items: list[Any]) -> None:
        target = self.top(dict)
        if len(items) % 2:
            raise Refused(f"its pickle is damaged at byte {self.position}")
        for key, value in zip(items[::2], items[1::2], strict=True):
            target[_key(key)] = value


def _key(key: Any) -> Any:
    """Return a key that can be hashed at once; long or nested tuples could take forever."""
    if key is None or isinstance(key, str | bytes | int | float | Name | Built):
        return key
    short = isinstance(key, tuple) and len(key) <= LONGEST_KEY
    if short and all(isinstance(part, str | int) for part in key):
        return key
    raise Refused(f"its pickle uses a {type(key).__name__} as a key")


def _set_item(m: _Machine) -> None:
    value, key = m.pop(), m.pop()
    m.set_items([key, value])


def _append(m: _Machine) -> None:
    value = m.pop()
    m.top(list).append(value)


def _appends(m: _Machine) -> None:
    items = m.since_mark()
    m.top(list).extend(items)


def _add_items(m: _Machine) -> None:
    items = m.since_mark()
    m.top(dict).update(dict.fromkeys(map(_key, items)))


def _dict(m: _Machine) -> None:
    items = m.since_mark()
    m.push({})
    m.set_items(items)


def _tuple(m: _Machine, count: int) -> None:
    items = [m.pop() for _ in range(count)]
    m.push(tuple(reversed(items)))


def _frozen_set(m: _Machine) -> None:
    items = m.since_mark()
    m.spend(CALL)
    m.push(frozenset(map(_key, items)))


def _stack_global(m: _Machine) -> None:
    name, module = m.pop(), m.pop()
    m.global_name(module, name)


def _global(m: _Machine) -> None:
    module = m.line()
    m.global_name(module, m.line())


def _persistent(m: _Machine) -> None:
    if m.persistent is None:
        raise Refused("its pickle refers to data outside it")
    m.spend(CALL)
    m.push(m.persistent(m.pop()))


def _put(m: _Machine, index: int) -> None:
    if not m.stack:
        raise Refused(f"its pickle is damaged at byte {m.position}")
    m.memo[index] = m.stack[-1]


INSTRUCTIONS: dict[bytes, Callable[[_Machine], object]] = {
    b"\x80": lambda m: m.number("B"),
    b"\x95": lambda m: m.number("<Q"),
    b"(": lambda m: m.push(_MARK),
    b"0": lambda m: m.pop(),
    b"1": lambda m: m.since_mark(),
    b"2": lambda m: m.push(m.stack[-1]),
    b"N": lambda m: m.push(None),
    b"\x88": lambda m: m.push(True),
    b"\x89": lambda m: m.push(False),
    b"K": lambda m: m.push(m.number("B")),
    b"M": lambda m: m.push(m.number("<H")),
    b"J": lambda m: m.push(m.number("<i")),
    b"\x8a": lambda m: m.whole_number(m.number("B")),
    b"\x8b": lambda m: m.whole_number(m.number("<i")),
    b"G": lambda m: m.push(m.number(">d")),
    b"\x8c": lambda m: m.text("B"),
    b"X": lambda m: m.text("<I"),
    b"\x8d": lambda m: m.text("<Q"),
    b"U": lambda m: m.text("B", "latin-1"),
    b"T": lambda m: m.text("<i", "latin-1"),
    b"C": lambda m: m.push(m.take(m.number("B"))),
    b"B": lambda m: m.push(m.take(m.number("<I"))),
    b"\x8e": lambda m: m.push(m.take(m.number("<Q"))),
    b"}": lambda m: m.push({}),
    b"]": lambda m: m.push([]),
    b")": lambda m: m.push(()),
    b"\x8f": lambda m: m.push({}),  # a set; an empty one of Python's takes three times as much
    b"d": _dict,
    b"l": lambda m: m.push(m.since_mark()),
    b"t": lambda m: m.push(tuple(m.since_mark())),
    b"\x85": lambda m: _tuple(m, 1),
    b"\x86": lambda m: _tuple(m, 2),
    b"\x87": lambda m: _tuple(m, 3),
    b"\x91": _frozen_set,
    b"s": _set_item,
    b"u": lambda m: m.set_items(m.since_mark()),
    b"a": _append,
    b"e": _appends,
    b"\x90": _add_items,
    b"q": lambda m: _put(m, m.number("B")),
    b"r": lambda m: _put(m, m.number("<I")),
    b"\x94": lambda m: _put(m, len(m.memo)),
    b"h": lambda m: m.push(m.memo[m.number("B")]),
    b"j": lambda m: m.push(m.memo[m.number("<I")]),
    b"c": _global,
    b"\x93": _stack_global,
    b"R": lambda m: m.call(),
    b"\x81": lambda m: m.call(),
    b"b": lambda m: m.build(),
    b"Q": _persistent,
}
