"""The command lora on models and adapters that are on the hub."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from checkpoints.local_hub import COMMITS, Hub, serving
from lora.test_command import Command
from rankscope.lora import open_adapter

BASE, TUNED, ADAPTER = "org/model", "org/model@step10", "org/model@step200"
CONFIG = {"model_type": "x", "quantization_config": {"quant_method": "fp8"}}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with a base, its fine-tuning, and a folder for an adapter."""
    (tmp_path / "hub").mkdir()
    with serving(tmp_path / "hub", monkeypatch) as hub:
        torch.manual_seed(0)
        base = {"a.weight": torch.randn(30, 20), "b.weight": torch.randn(25, 20)}
        tuned = {**base, "a.weight": base["a.weight"] + torch.randn(30, 3) @ torch.randn(3, 20)}
        for tensors, revision in ((base, "main"), (tuned, "step10")):
            save_file(tensors, hub.folder / COMMITS[revision] / "model.safetensors")
        (hub.folder / COMMITS["main"] / "config.json").write_text(json.dumps(CONFIG))
        yield hub


@pytest.fixture
def lora(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


@pytest.mark.usefixtures("server")
def test_changes_between_models(lora: Command) -> None:
    (row,) = lora.json(BASE, TUNED, "--noise")
    assert (row["matrix"], row["signal"], row["rank"]) == ("a", 3, 3)


def test_an_adapter_there_and_back(lora: Command, server: Hub, tmp_path: Path) -> None:
    out = tmp_path / "adapter"
    code, _, err = lora(f"{BASE}@main", TUNED, "-o", out, "--max-rank", "3")
    assert code == 0, err
    config = json.loads((out / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == BASE and config["revision"] == "main"
    for file in out.iterdir():
        (server.folder / COMMITS["step200"] / file.name).write_bytes(file.read_bytes())
    (row,) = lora.json(ADAPTER, "--base", BASE)
    assert (row["matrix"], row["r"], row["intruders"] > 0) == ("a", 3, True)
    assert lora.json(out, ADAPTER, "--diff")[0]["norm"] < 1e-6
    assert lora.json(ADAPTER, "--resize", "2", "-o", tmp_path / "small")[0]["rank"] == 2
    assert open_adapter(tmp_path / "small").pairs["a"].rank == 2


def test_merging_into_a_model_on_the_hub(lora: Command, server: Hub, tmp_path: Path) -> None:
    out, merged = tmp_path / "adapter", tmp_path / "merged"
    assert lora(BASE, TUNED, "-o", out, "--max-rank", "3")[0] == 0
    assert lora(out, "--merge", "--base", BASE, "-o", merged)[0] == 0
    tuned = load_file(server.folder / COMMITS["step10"] / "model.safetensors")
    for name, tensor in load_file(merged / "model.safetensors").items():
        torch.testing.assert_close(tensor, tuned[name], rtol=1e-5, atol=1e-5)
    assert json.loads((merged / "config.json").read_text()) == {"model_type": "x"}


@pytest.mark.usefixtures("server")
def test_what_the_hub_lacks_is_one_sentence(lora: Command) -> None:
    code, out, err = lora("org/other", TUNED)
    assert code == 2 and out == "" and err.count("\n") == 1
    assert "'org/other' is neither a path here nor a model on the hub" in err
