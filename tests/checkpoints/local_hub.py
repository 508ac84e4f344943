"""A hub on this machine: one model with a folder per revision, and a count of the bytes sent."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import huggingface_hub.constants
import huggingface_hub.file_download
import huggingface_hub.hf_api
import pytest

COMMITS = {"main": "a" * 40, "step10": "b" * 40, "step200": "c" * 40}


class Hub(ThreadingHTTPServer):
    """A server of one model, with a folder per revision."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder = folder
        self.sent: list[tuple[str, int]] = []
        self.authorizations: list[str | None] = []
        self.ranges = True
        self.failures: list[int] = []  # status of the next answers; 0 ends one in its middle
        self.page = b""  # in place of every answer
        self.awake = threading.Event()  # nothing is answered before
        self.awake.set()
        self.files_at = ""  # another server, to which requests for files are sent on

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    """Answers of the hub's two addresses: what a model has, and a part of a file."""

    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.server.awake.wait()
        path = self.path.partition("?")[0]
        if self.server.page:
            self.answer(200, self.server.page)
        elif match := re.fullmatch(r"/api/models/org/model(?:/revision/(.+))?", path):
            revision = match[1] or "main"
            if revision not in COMMITS:
                self.answer(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
                return
            files = [
                {"rfilename": file.name, "size": file.stat().st_size}
                for file in sorted((self.server.folder / COMMITS[revision]).iterdir())
            ]
            info = {"id": "org/model", "sha": COMMITS[revision], "siblings": files}
            self.answer(200, json.dumps(info).encode())
        elif match := re.fullmatch(r"/org/model/resolve/([0-9a-f]{40})/([^/]+)", path):
            data = (self.server.folder / match[1] / match[2]).read_bytes()
            wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            assert wanted is not None
            part = data[int(wanted[1]) : int(wanted[2]) + 1]
            self.server.authorizations.append(self.headers.get("Authorization"))
            if self.server.files_at:
                self.answer(302, b"", {"Location": f"{self.server.files_at}{self.path}"})
                return
            failure = self.server.failures.pop(0) if self.server.failures else None
            if failure == 0:
                half = part[: len(part) // 2]
                self.server.sent.append((match[2], len(half)))
                self.answer(206, half, {"Content-Length": str(len(part))})
                self.close_connection = True
            elif failure is not None:
                self.answer(failure, b"{}")
            else:
                self.server.sent.append((match[2], len(part)))
                self.answer(206, part) if self.server.ranges else self.answer(200, data)
        else:
            self.answer(404, b"{}", {"X-Error-Code": "RepoNotFound"})

    def answer(self, code: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(code)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serving(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """Serve `folder` as the hub that the hub's library asks."""
    for commit in COMMITS.values():
        (folder / commit).mkdir()
    with Hub(folder) as hub_server:
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", hub_server.endpoint)
        template = hub_server.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(
            huggingface_hub.file_download, "HUGGINGFACE_CO_URL_TEMPLATE", template, raising=False
        )
        monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
        threading.Thread(target=hub_server.serve_forever, daemon=True).start()
        yield hub_server
        hub_server.shutdown()
