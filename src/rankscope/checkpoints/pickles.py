"""Pickles as descriptions: an interpreter that builds plain containers and never an object.

It knows the instructions that `torch.save` writes and a few names. A name is a pair of strings
here; nothing is imported and nothing is called. Any other instruction or call refuses the file.
"""

import struct
from typing import Any

from rankscope.checkpoints.pickle_machine import (
    CALL,
    MARK,
    Calls,
    Instructions,
    Machine,
    PersistentLoad,
    Refused,
    as_key,
)

# Python's own unpickler takes memory by the numbers it reads; here only what was read counts.
MOST_BYTES = 2**25


def describe(
    data: bytes, *, calls: Calls, persistent: PersistentLoad | None = None, start: int = 0
) -> tuple[Any, int]:
    """Return what the pickle at `start` describes, and the position after it.

    calls: what to make of a call, by module and name.
    persistent: what to make of a persistent id, such as a storage.
    """
    machine = Machine(data, calls, persistent, start)
    try:
        return machine.run(INSTRUCTIONS), machine.position
    except Refused:
        raise
    except (LookupError, TypeError, ValueError, struct.error, AttributeError) as damage:
        raise Refused(f"its pickle is damaged at byte {machine.position}") from damage


def _set_item(m: Machine) -> None:
    value, key = m.pop(), m.pop()
    m.set_items([key, value])


def _append(m: Machine) -> None:
    value = m.pop()
    m.top(list).append(value)


def _appends(m: Machine) -> None:
    items = m.since_mark()
    m.top(list).extend(items)


def _add_items(m: Machine) -> None:
    items = m.since_mark()
    m.top(dict).update(dict.fromkeys(map(as_key, items)))


def _dict(m: Machine) -> None:
    items = m.since_mark()
    m.push({})
    m.set_items(items)


def _tuple(m: Machine, count: int) -> None:
    items = [m.pop() for _ in range(count)]
    m.push(tuple(reversed(items)))


def _frozen_set(m: Machine) -> None:
    items = m.since_mark()
    m.spend(CALL)
    m.push(frozenset(map(as_key, items)))


def _stack_global(m: Machine) -> None:
    name, module = m.pop(), m.pop()
    m.global_name(module, name)


def _global(m: Machine) -> None:
    module = m.line()
    m.global_name(module, m.line())


def _persistent(m: Machine) -> None:
    if m.persistent is None:
        raise Refused("its pickle refers to data outside it")
    m.spend(CALL)
    m.push(m.persistent(m.pop()))


def _put(m: Machine, index: int) -> None:
    if not m.stack:
        raise Refused(f"its pickle is damaged at byte {m.position}")
    m.memo[index] = m.stack[-1]


INSTRUCTIONS: Instructions = {
    b"\x80": lambda m: m.number("B"),
    b"\x95": lambda m: m.number("<Q"),
    b"(": lambda m: m.push(MARK),
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
