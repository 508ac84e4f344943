"""Models on a hub, which is a local server that counts the bytes it sends."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import rankscope as rs
from rankscope.checkpoints import hub, open_checkpoint
from rankscope.checkpoints.hub import hub_id

COMMITS = {"main": "a" * 40, "step10": "b" * 40, "step200": "c" * 40}


class Hub(ThreadingHTTPServer):
    """A server of one model, with a folder per revision."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder = folder
        self.sent: list[tuple[str, int]] = []
        self.ranges = True

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
        path = self.path.partition("?")[0]
        if match := re.fullmatch(r"/api/models/org/model(?:/revision/(.+))?", path):
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


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    import huggingface_hub.constants
    import huggingface_hub.file_download
    import huggingface_hub.hf_api

    for commit in COMMITS.values():
        (tmp_path / commit).mkdir()
    with Hub(tmp_path) as hub_server:
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


def test_only_headers_and_wanted_tensors_are_fetched(server: Hub) -> None:
    tensors = {"layers.0.weight": torch.randn(600, 500), "layers.1.weight": torch.randn(600, 500)}
    folder = server.folder / COMMITS["main"]
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text('{"model_type": "x"}')
    (folder / "pytorch_model.bin").write_bytes(bytes(10_000))
    checkpoint = open_checkpoint("org/model")
    assert checkpoint.metadata["config"]["model_type"] == "x"
    assert sum(size for _, size in server.sent) <= hub.MOST_WINDOW + 100
    assert torch.equal(checkpoint.read("layers.1.weight"), tensors["layers.1.weight"])
    fetched = sum(size for _, size in server.sent)
    assert 600 * 500 * 4 <= fetched <= 600 * 500 * 4 + hub.MOST_WINDOW + 100
    assert {name for name, _ in server.sent} == {"model.safetensors", "config.json"}


def test_shards_and_other_formats(server: Hub) -> None:
    folder = server.folder / COMMITS["main"]
    tensors = {name: torch.randn(5, 4) for name in ("a.weight", "b.weight")}
    for number, (name, tensor) in enumerate(tensors.items(), 1):
        save_file({name: tensor}, folder / f"model-0000{number}-of-00002.safetensors")
    weight_map = {
        name: f"model-0000{number}-of-00002.safetensors" for number, name in enumerate(tensors, 1)
    }
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    torch.save(tensors, server.folder / COMMITS["step10"] / "pytorch_model.bin")
    for place in ("org/model", "org/model@step10"):
        checkpoint = open_checkpoint(place)
        assert checkpoint.source == place
        assert all(torch.equal(checkpoint.read(name), tensors[name]) for name in tensors)


def test_revisions_are_a_series(server: Hub) -> None:
    states = {}
    for step in (200, 10):
        states[step] = {"a.weight": torch.randn(8, 6)}
        save_file(states[step], server.folder / COMMITS[f"step{step}"] / "model.safetensors")
    scan = rs.scan("org/model@step200", "org/model@step10")
    assert [checkpoint.step for checkpoint in scan.checkpoints] == [10, 200]
    norms = scan.table()["norm"].tolist()
    assert norms == [pytest.approx(float(states[s]["a.weight"].double().norm())) for s in (10, 200)]


def test_the_command_uses_the_endpoint_of_the_environment(server: Hub) -> None:
    for step in (10, 200):
        folder = server.folder / COMMITS[f"step{step}"]
        save_file({"a.weight": torch.randn(8, 6)}, folder / "model.safetensors")
    revisions = ["--revision", "step200", "--revision", "step10"]
    ran = subprocess.run(
        [sys.executable, "-m", "rankscope", "scan", "org/model", *revisions, "--csv"],
        env={**os.environ, "HF_ENDPOINT": server.endpoint},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert [line[:6] for line in ran.stdout.splitlines()] == ["matrix", "a,10,l", "a,200,"]


def test_what_the_hub_lacks_is_one_sentence(server: Hub) -> None:
    with pytest.raises(ValueError, match="neither a path here nor a model on the hub"):
        open_checkpoint("org/other")
    with pytest.raises(ValueError, match="cannot be read from the hub"):
        open_checkpoint("org/model@nothing")
    with pytest.raises(ValueError, match="holds no checkpoint that is known on the hub"):
        open_checkpoint("org/model")
    save_file({"a": torch.ones(2, 2)}, server.folder / COMMITS["main"] / "model.safetensors")
    server.ranges = False
    with pytest.raises(ValueError, match="does not answer range requests"):
        open_checkpoint("org/model")


def test_a_hub_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ValueError, match="cannot be read from the hub") as refusal:
        open_checkpoint("org/model")
    assert "\n" not in str(refusal.value)


def test_names_of_models() -> None:
    assert hub_id("org/model") == ("org/model", None)
    assert hub_id("org/model.v2@refs/pr/1") == ("org/model.v2", "refs/pr/1")
    for other in ("model", "a/b/c", "./x", "a/x.safetensors", "http://a/b", "../a", "a/b/"):
        assert hub_id(other) is None


def test_a_path_that_is_mistyped_needs_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)  # as if it were not installed
    with pytest.raises(ValueError, match=r"'runs/typo' does not exist here; .*rankscope\[lab\]"):
        open_checkpoint("runs/typo")


def test_a_damaged_configuration_is_a_problem(server: Hub) -> None:
    folder = server.folder / COMMITS["main"]
    save_file({"layers.0.weight": torch.ones(3, 2)}, folder / "model.safetensors")
    (folder / "config.json").write_text("{")
    checkpoint = open_checkpoint("org/model")
    assert torch.equal(checkpoint.read("layers.0.weight"), torch.ones(3, 2))
    (problem,) = checkpoint.problems
    assert "config.json of org/model is damaged" in problem
