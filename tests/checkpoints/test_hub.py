"""Models on a hub, which is a local server that counts the bytes it sends."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import rankscope as rs
from checkpoints.local_hub import COMMITS, Hub, serving
from rankscope.checkpoints import hub, open_checkpoint
from rankscope.checkpoints.hub import hub_id


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with serving(tmp_path, monkeypatch) as hub_server:
        yield hub_server


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
    with pytest.raises(ValueError, match="'org/model' has no such revision on the hub"):
        open_checkpoint("org/model@nothing")
    with pytest.raises(ValueError, match="'org/model' holds no checkpoint that is known"):
        open_checkpoint("org/model")
    for name in ("Q4.gguf", "Q8.gguf"):
        (server.folder / COMMITS["step10"] / name).touch()
    with pytest.raises(ValueError, match=r"Q4.gguf and Q8.gguf; download one"):
        open_checkpoint("org/model@step10")
    save_file({"a": torch.ones(2, 2)}, server.folder / COMMITS["main"] / "model.safetensors")
    server.ranges = False
    with pytest.raises(ValueError, match="does not answer range requests"):
        open_checkpoint("org/model")


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "PAUSE", 0.0)


@pytest.mark.usefixtures("patient")
def test_a_connection_that_breaks_is_tried_again_from_there(server: Hub) -> None:
    tensor = torch.randn(600, 500)
    path = server.folder / COMMITS["main"] / "model.safetensors"
    save_file({"a.weight": tensor}, path)
    checkpoint = open_checkpoint("org/model")
    del server.sent[:]
    server.failures += [0, 503, 0]
    assert torch.equal(checkpoint.read("a.weight"), tensor)
    assert sum(size for _, size in server.sent) == tensor.nbytes and len(server.sent) == 3
    server.failures += [0, 429, 500, 0, 0]
    with pytest.raises(ValueError, match=r"sent \d+ of 1200000 bytes .* in 4 tries \(.*; run it"):
        checkpoint.read("a.weight")
    del server.failures[:]
    assert torch.equal(checkpoint.read("a.weight"), tensor)


@pytest.mark.usefixtures("patient")
def test_a_refusal_is_not_tried_again(server: Hub) -> None:
    path = server.folder / COMMITS["main"] / "model.safetensors"
    save_file({"a.weight": torch.randn(600, 500)}, path)
    checkpoint = open_checkpoint("org/model")
    server.failures += [403, 500]
    with pytest.raises(ValueError, match=r"of org/model: .* that you may read; .*hf auth login"):
        checkpoint.read("a.weight")
    assert server.failures == [500]


def test_another_server_does_not_get_the_token(
    server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    tensor = torch.randn(5, 4)
    save_file({"a.weight": tensor}, server.folder / COMMITS["main"] / "model.safetensors")
    with Hub(server.folder) as store:
        threading.Thread(target=store.serve_forever, daemon=True).start()
        server.files_at = store.endpoint
        assert torch.equal(open_checkpoint("org/model").read("a.weight"), tensor)
        store.shutdown()
    assert set(server.authorizations) == {"Bearer hf_secret"}
    assert set(store.authorizations) == {None}


def test_the_cache_is_read_in_offline_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    repo, tensors = tmp_path / "models--org--model", {"a.weight": torch.randn(5, 4)}
    for part in ("blobs", "refs", f"snapshots/{COMMITS['main']}"):
        (repo / part).mkdir(parents=True)
    (repo / "refs" / "main").write_text(COMMITS["main"])
    save_file(tensors, repo / "blobs" / "0123")
    link = repo / "snapshots" / COMMITS["main"] / "model.safetensors"
    link.symlink_to("../../blobs/0123")
    for name in ("org/model", "org/model@main", f"org/model@{COMMITS['main']}"):
        checkpoint = open_checkpoint(name)
        assert torch.equal(checkpoint.read("a.weight"), tensors["a.weight"])
        assert checkpoint.source == name
    for name in ("org/model@step10", "org/other"):
        with pytest.raises(ValueError, match=r"in the hub's cache, .* unset HF_HUB_OFFLINE"):
            open_checkpoint(name)


def test_a_hub_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ValueError, match="cannot be read from the hub") as refusal:
        open_checkpoint("org/model")
    assert "\n" not in str(refusal.value)


def test_a_page_instead_of_an_answer_is_one_sentence(server: Hub) -> None:
    """A network that asks for a login answers everything with its own page."""
    server.page = b"<html>log in</html>"
    with pytest.raises(ValueError, match="'org/model' does not exist here, and cannot be read"):
        open_checkpoint("org/model")


def test_a_silent_hub_is_given_up_after_the_seconds_of_the_library(
    server: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DOWNLOAD_TIMEOUT", 0.2)
    server.awake.clear()
    began = time.monotonic()
    with pytest.raises(ValueError, match=r"cannot be read from the hub \(.*timed out"):
        open_checkpoint("org/model")
    server.awake.set()
    assert time.monotonic() - began < 5


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
