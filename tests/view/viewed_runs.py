"""Runs to look at, written by the store, and a real server that shows them."""

import contextlib
import http.client
import json
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import numpy as np

from rankscope.store import Variable, Writer
from rankscope.view.app import answers
from rankscope.view.library import Library
from rankscope.view.page import Later
from rankscope.view.safety import Gate
from rankscope.view.server import http_server, listen

NAMES = ("embedding", "blocks.0.attn.q", "blocks.0.attn.k", "blocks.1.attn.q", "output")
SHAPES = ((4, 9), (6, 6), (6, 6), (6, 5), (3, 6))
LONGEST, TOP = 6, 4
EVIL = "<img src=x onerror=alert(1)>../../etc/passwd"


def create(path: Path, *, names: tuple[str, ...] = NAMES, **attrs: Any) -> Writer:
    """Begin a run with weights, changes, a pair and a measure nobody has heard of."""
    m, n = (np.array([shape[side] for shape in SHAPES]) for side in (0, 1))
    text = {"kind": ["linear"] * 5, "part_of": [""] * 5, "dtype": ["float32"] * 5}
    return Writer.create(
        path,
        coords={
            "matrix": (("matrix",), np.array(names, object)),
            "m": (("matrix",), m),
            "n": (("matrix",), n),
            **{key: (("matrix",), np.array(value, object)) for key, value in text.items()},
            "k": (("k",), np.arange(LONGEST)),
            "pair": (("pair",), np.array([f"{names[1]} > {names[2]}"], object)),
            "earlier": (("pair",), np.array([names[1]], object)),
            "later": (("pair",), np.array([names[2]], object)),
            "pair_kind": (("pair",), np.array(["qk"], object)),
            "chance": (("pair",), np.array([0.3])),
            "i": (("i",), np.arange(1, TOP + 1)),
        },
        variables={
            "singular_values": Variable(("step", "matrix", "k")),
            "change_singular_values": Variable(("step", "matrix", "k")),
            "status": Variable(("step", "matrix"), np.int8, attrs={"flag_meanings": "ok zero"}),
            "alignment": Variable(("step", "pair", "i")),
            "alignment_background": Variable(("step", "pair")),
            "surprise": Variable(("step", "matrix")),
        },
        attrs={"started": "today", **attrs},
    )


def snapshot(step: int) -> dict[str, Any]:
    """Random spectra of the right lengths, the same for the same step."""
    generator = np.random.default_rng(step)
    spectra = np.full((2, 5, LONGEST), np.nan, np.float32)
    for row, shape in enumerate(SHAPES):
        values = generator.random((2, min(shape))) + 0.1
        spectra[:, row, : min(shape)] = np.sort(values)[:, ::-1]
    return {
        "singular_values": spectra[0],
        "change_singular_values": spectra[1],
        "status": np.zeros(5, np.int8),
        "alignment": generator.random((1, TOP)),
        "alignment_background": generator.random(1) + 0.1,
        "surprise": generator.random(5),
    }


def fill(writer: Writer, steps: range) -> None:
    """Append snapshots with a loss that falls."""
    for step in steps:
        writer.append(step, snapshot(step), scalars={"loss": 3.0 / (1 + step), "rate": 0.1})


def write(path: Path, steps: range = range(0, 60, 2), **attrs: Any) -> Path:
    """Write a whole run and close it."""
    with create(path, **attrs) as writer:
        fill(writer, steps)
    return path


@dataclass
class Answer:
    """An answer of the server."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def meta(self) -> dict[str, Any]:
        """Description of a frame."""
        (length,) = struct.unpack_from("<I", self.body, 4)
        meta: dict[str, Any] = json.loads(self.body[8 : 8 + length])
        return meta

    def array(self, name: str) -> np.ndarray:
        """One array of a frame, read as the page reads it."""
        assert self.body[:4] == b"RSV1"
        (length,) = struct.unpack_from("<I", self.body, 4)
        entry = self.meta["arrays"][name]
        assert (8 + length) % 8 == 0
        assert entry["offset"] % 8 == 0
        count = int(np.prod(entry["shape"], dtype=int))
        values = np.frombuffer(self.body, entry["dtype"], count, 8 + length + entry["offset"])
        return values.reshape(entry["shape"])


@dataclass
class Server:
    """A server that listens on loopback, and its library."""

    port: int
    gate: Gate
    library: Library

    def ask(
        self,
        path: str,
        *,
        method: str = "GET",
        headers: Mapping[str, str | None] | None = None,
        cookie: bool = True,
    ) -> Answer:
        """Send a request as it is given; a header of None is left out."""
        wanted: dict[str, str | None] = {"Host": f"127.0.0.1:{self.port}"}
        if cookie:
            wanted["Cookie"] = f"{self.gate.cookie}={self.gate.token}"
        wanted |= headers or {}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        with contextlib.closing(connection):
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in wanted.items():
                if value is not None:
                    connection.putheader(name, value)
            connection.endheaders()
            response = connection.getresponse()
            body = response.read()
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, body)

    def get(self, endpoint: str, **parameters: Any) -> Answer:
        """Ask an endpoint as the page does; an answer with numbers missing is asked for again."""
        query = urlencode(parameters, doseq=True, quote_via=quote)
        for _ in range(50):
            answer = self.ask(f"/api/{endpoint}?{query}")
            if b'"complete": false' not in answer.body and b'"complete":false' not in answer.body:
                break
            time.sleep(0.05)
        return answer

    def key(self, name: str) -> str:
        """Key of the run of that name."""
        self.library._pause = 0
        keys = [key for key, place in self.library.search().places.items() if place.name == name]
        assert keys, name
        return keys[0]


@contextlib.contextmanager
def serving(*folders: Path) -> Iterator[Server]:
    """Serve the folders for a while."""
    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    gate, library = Gate(port), Library(folders)
    server = http_server(Later(lambda: answers(library)), gate)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield Server(port, gate, library)
    finally:
        server.should_exit = True
        thread.join(timeout=10)
        library.close()
        listener.close()
