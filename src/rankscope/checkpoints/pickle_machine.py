"""Machine of the interpreter of pickles: a stack, a memo, and limits on what they may take."""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

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
Instructions = Mapping[bytes, Callable[["Machine"], object]]


def built(name: Name, arguments: tuple[Any, ...]) -> Built:
    """Describe a call by its name and arguments."""
    return Built(name, arguments)


MARK = object()  # on the stack, before the items of a container


class Machine:
    """A pickle that is read, with a stack and a memo of descriptions."""

    def __init__(
        self, data: bytes, calls: Calls, persistent: PersistentLoad | None, start: int
    ) -> None:
        self.data, self.position = data, start
        self.calls, self.persistent = calls, persistent
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.steps_left = MOST_STEPS

    def run(self, instructions: Instructions) -> Any:
        """Return what is on the stack at the end."""
        while True:
            code = self.data[self.position : self.position + 1]  # millions of times
            self.position += 1
            self.steps_left -= 1
            instruction = instructions.get(code)
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
        if not self.stack or self.stack[-1] is MARK:
            raise Refused(f"its pickle is damaged at byte {self.position}")
        return self.stack.pop()

    def since_mark(self) -> list[Any]:
        for depth in range(len(self.stack) - 1, -1, -1):
            if self.stack[depth] is MARK:
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
            target[as_key(key)] = value


def as_key(key: Any) -> Any:
    """Return a key that can be hashed at once; long or nested tuples could take forever."""
    if key is None or isinstance(key, str | bytes | int | float | Name | Built):
        return key
    short = isinstance(key, tuple) and len(key) <= LONGEST_KEY
    if short and all(isinstance(part, str | int) for part in key):
        return key
    raise Refused(f"its pickle uses a {type(key).__name__} as a key")
