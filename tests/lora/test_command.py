"""The command lora, from its arguments to files and sentences."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from lora.adapter_cases import kohya_adapter, peft_adapter, peft_config, peft_tensors, write_peft
from rankscope.cli import main
from rankscope.lora import open_adapter

ANSI = re.compile(r"\x1b\[[\d;]*m")


class Command:
    """Runs `rankscope lora ...` and keeps what it printed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys
        monkeypatch.setenv("COLUMNS", "120")

    def __call__(self, *arguments: object) -> tuple[int, str, str]:
        self.monkeypatch.setattr("sys.argv", ["rankscope", "lora", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = self.capsys.readouterr()
        code = ended.value.code
        assert isinstance(code, int)
        return code, ANSI.sub("", printed.out), ANSI.sub("", printed.err)

    def json(self, *arguments: object) -> list[dict[str, Any]]:
        code, out, err = self(*arguments, "--json")
        assert code == 0, err
        rows: list[dict[str, Any]] = json.loads(out)
        return rows


@pytest.fixture
def lora(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """Two checkpoints whose changes have rank 3 and 2, and a norm."""
    torch.manual_seed(0)
    base = {
        "a.weight": torch.randn(30, 20),
        "b.weight": torch.randn(25, 20),
        "n.weight": torch.ones(4),
    }
    tuned = {
        "a.weight": base["a.weight"] + torch.randn(30, 3) @ torch.randn(3, 20),
        "b.weight": base["b.weight"] + torch.randn(25, 2) @ torch.randn(2, 20),
        "n.weight": base["n.weight"] + 1,
    }
    for name, tensors in (("base", base), ("tuned", tuned)):
        save_file(tensors, tmp_path / f"{name}.safetensors")
    return tmp_path / "base.safetensors", tmp_path / "tuned.safetensors"


def test_spectra_of_changes(lora: Command, pair: tuple[Path, Path]) -> None:
    rows = lora.json(*pair, "--noise")
    assert [(row["matrix"], row["signal"], row["rank"]) for row in rows] == [
        ("a", 3, 3),
        ("b", 2, 2),
    ]
    code, out, err = lora(*pair)
    assert code == 0 and "30x20" in out and "signal" in out and "rank" not in out
    assert "90% of a change's energy: 2 to 3; 99% takes 2 to 3" in err
    assert "signal is the number of directions above the noise floor: 2 to 3" in err
    assert "choose ranks by --energy" in err


def test_limits_that_keep_the_error_large_are_named(
    lora: Command, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    sentence = "1 of 2 matrices miss the error asked for because of --max-rank 2"
    for place in ((), ("-o", tmp_path / "adapter", "--overwrite")):
        rule = (*pair, *place, "--energy", "0.9999999", "--max-rank")
        assert sentence in lora(*rule, "2")[2]
        assert "asked for" not in lora(*rule, "3")[2]


@pytest.mark.parametrize(
    "rule", [("--energy", "0.9"), ("--max-rank", "1"), ("--budget", "140"), ("--round", "8")]
)
def test_ranks_are_shown_before_they_are_written(
    lora: Command, pair: tuple[Path, Path], tmp_path: Path, rule: tuple[str, ...]
) -> None:
    planned = {row["matrix"]: row for row in lora.json(*pair, *rule)}
    written = lora.json(*pair, *rule, "-o", tmp_path / "adapter")
    for row in written:
        assert planned[row["matrix"]]["rank"] == row["rank"]
        assert planned[row["matrix"]]["error"] == pytest.approx(row["verified"], abs=1e-6)
    first = lora(*pair, *rule)[2].split(" parameters in factors")[0]
    assert f": {first} parameters" in lora(*pair, *rule, "-o", tmp_path / "b")[2]


def test_extract(lora: Command, pair: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "adapter"
    code, printed, err = lora(*pair, "-o", out, "--energy", "0.9999999")
    assert code == 0 and "verified" in printed
    assert f"{out}: 240 parameters in factors, and 4 saved whole; read back, the error" in err
    assert {m: p.rank for m, p in open_adapter(out).pairs.items()} == {"a": 3, "b": 2}
    rows = lora.json(*pair, "-o", out, "--budget", "100", "--overwrite", "--matrices-only")
    assert sum(row["rank"] for row in rows) == 2
    _, _, err = lora(*pair, "-o", out, "--budget", "100", "--overwrite")
    sizes = {
        name: tensor.numel()
        for name, tensor in load_file(out / "adapter_model.safetensors").items()
    }
    factors = sum(size for name, size in sizes.items() if "lora_" in name)
    whole = sum(sizes.values()) - factors
    assert (
        f"{factors} parameters in factors of a budget of 100, and {whole} saved whole, "
        "which the budget does not count"
    ) in err
    rows = lora.json(*pair, "-o", out, "--error", "0.1", "--round", "vllm", "--overwrite")
    assert {row["rank"] for row in rows} == {8}


def save_base(path: Path) -> None:
    shapes = {"layers.0.q": (12, 8), "layers.1.q": (12, 8), "layers.10.up": (20, 8)}
    save_file({f"model.{n}.weight": torch.randn(shape) for n, shape in shapes.items()}, path)


def test_an_adapter_alone(lora: Command, tmp_path: Path) -> None:
    adapter = peft_adapter(tmp_path / "a")
    rows = lora.json(adapter)
    assert [row["r"] for row in rows] == [4, 4, 4]
    save_base(tmp_path / "base.safetensors")
    rows = lora.json(adapter, "--base", tmp_path / "base.safetensors")
    assert {"intruders", "lowest_cosine", "effective_rank"} <= rows[0].keys()
    code, _, err = lora(
        adapter, "--merge", "--base", tmp_path / "base.safetensors", "-o", tmp_path / "m"
    )
    assert (code, err) == (0, f"{tmp_path / 'm'}: 3 tensors changed\n")
    assert len(load_file(tmp_path / "m" / "model.safetensors")) == 3


def test_resize_in_both_spellings(lora: Command, tmp_path: Path) -> None:
    adapter = peft_adapter(tmp_path / "a")
    rows = lora.json(adapter, "--resize", "2", "-o", tmp_path / "b")
    assert [row["rank"] for row in rows] == [2, 2, 2] and all(0 < r["error"] < 1 for r in rows)
    _, _, err = lora(adapter, "--resize", "2", "-o", tmp_path / "b", "--overwrite")
    assert err == f"{tmp_path / 'b'}: 136 parameters in factors, from 272\n"
    as_kohya = tmp_path / "k.safetensors"
    assert lora(adapter, "--resize", 4, "--names", "kohya", "-o", as_kohya)[0] == 0
    assert set(open_adapter(as_kohya).pairs) == {
        "lora_unet_model_layers_0_q", "lora_unet_model_layers_1_q", "lora_unet_model_layers_10_up",
    }  # fmt: skip
    save_base(tmp_path / "base.safetensors")
    back = ("--names", "peft", "--base", tmp_path / "base.safetensors", "-o", tmp_path / "c")
    assert lora(as_kohya, "--energy", 0.5, *back)[0] == 0
    assert set(open_adapter(tmp_path / "c").pairs) == set(open_adapter(adapter).pairs)
    assert lora(as_kohya, "--resize", 2, "--names", "peft", "-o", tmp_path / "d")[0] == 2


def test_difference_and_series(lora: Command, tmp_path: Path) -> None:
    for step in (1, 2):
        peft_adapter(tmp_path / "run" / f"checkpoint-{step}", lora_alpha=step)
    rows = lora.json(*(tmp_path / "run" / f"checkpoint-{step}" for step in (1, 2)), "--diff")
    assert all(row["cosine"] == pytest.approx(1) for row in rows)
    code, out, err = lora(tmp_path / "run", "--figure", tmp_path / "growth.png")
    assert code == 0 and "stable rank" in out and str(tmp_path / "growth.png") in err
    steps = re.findall(r"layers\.(\d+)\.\w+ +(\d) ", out)
    assert steps == [(layer, step) for layer in ("0", "1", "10") for step in "12"]
    assert (tmp_path / "growth.png").stat().st_size > 10_000


def test_a_pattern_chooses_among_several_series(lora: Command, tmp_path: Path) -> None:
    for step in (1, 2):
        peft_adapter(tmp_path / f"first-{step}", lora_alpha=step)
        peft_adapter(tmp_path / f"second-{step}", lora_alpha=10 * step)
    code, out, err = lora(tmp_path)
    assert (code, out) == (2, "") and "'first-*', 'second-*'; choose one by --pattern" in err
    first = lora.json(tmp_path, "--pattern", "first-*")
    second = lora.json(tmp_path, "--pattern", "second-*")
    assert [row["step"] for row in first] == [1, 1, 1, 2, 2, 2]
    for small, large in zip(first, second, strict=True):
        assert large["norm"] == pytest.approx(10 * small["norm"])


def test_a_damaged_member_of_a_series_is_named(lora: Command, tmp_path: Path) -> None:
    for step in (1, 2, 3):
        peft_adapter(tmp_path / f"checkpoint-{step}", lora_alpha=step)
    (tmp_path / "checkpoint-2" / "adapter_config.json").write_text("{")
    (tmp_path / "other-1.safetensors").write_bytes(b"")
    code, out, err = lora(tmp_path)
    assert code == 2 and "layers.1.q" in out
    note, problem = err.splitlines()
    assert note == "rankscope: other-1.safetensors is not part of the series and is left out"
    assert problem.startswith("rankscope: step 2: ") and "damaged" in problem


def test_tensors_that_cannot_be_compared_are_named(lora: Command, tmp_path: Path) -> None:
    tuned = {"a.weight": torch.ones(9, 9), "wte.weight": torch.ones(11, 9)}
    base = {"a.weight": torch.zeros(9, 9), "wte.weight": torch.ones(10, 9)}
    save_file(base, tmp_path / "step1.safetensors")
    save_file(tuned, tmp_path / "step2.safetensors")
    why = "wte.weight: its shape changed from (10, 9) to (11, 9); resize the base first"
    code, out, err = lora(tmp_path / "step1.safetensors", tmp_path / "step2.safetensors")
    assert code == 0 and "wte" not in out and f"rankscope: left out: {why}\n" in err
    code, _, err = lora(tmp_path)
    assert (code, err) == (0, f"rankscope: step 2: {why}\n")
    del base["a.weight"]
    save_file(base, tmp_path / "step1.safetensors")
    code, _, err = lora(tmp_path / "step1.safetensors", tmp_path / "step2.safetensors")
    assert code == 2 and "no tensor that can be compared; the first, 'wte.weight': its shape" in err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere"], "nowhere does not exist; give a checkpoint"),
        (["base.safetensors"], "is one checkpoint; give BASE TUNED"),
        (["a", "--resize", "2"], "--resize needs -o"),
        (["a", "--energy", "0.5"], "--energy needs -o"),
        (["a", "--merge", "-o", "m"], "--merge needs --base"),
        (["a", "--merge", "--base", "base.safetensors"], "--merge needs -o"),
        (["a", "--error", "0.1"], "--error has no meaning here: a is an adapter to describe"),
        (["a", "--merge", "--resize", "2"], "--resize has no meaning here"),
        (["a", "-o", "b"], "describe; add --resize, --energy, --budget or --merge"),
        (["base.safetensors", "tuned.safetensors", "--base", "a"], "--base has no meaning here"),
        (["base.safetensors", "a"], "type rankscope lora a --base base.safetensors, or"),
        (["base.safetensors", "a", "-o", "b"], "a holds an adapter, which is a change already"),
        (["a", "base.safetensors"], "type rankscope lora a --base base.safetensors, with"),
        (["a", "--diff"], "give one path, or two"),
        (["a", "a", "a"], "give one path, or two"),
        (["a", "--resize", "2", "--round", "x"], "--round takes a number or vllm"),
        (["base.safetensors", "tuned.safetensors", "--round", "0"], "a multiple of 1 or more"),
        (["a", "--error", "0"], "--error has no meaning here: a is an adapter to describe"),
        (["a", "--budget", "0", "-o", "b"], "budget is a number of parameters, 1 or more, got 0"),
        (["a", "--energy", "0", "-o", "b"], "energy is a share between 0 and 1, got 0"),
        (["base.safetensors", "base.safetensors"], "no matrix changed"),
        (["base.safetensors", "tuned.safetensors", "--energy", "2"], "energy is a share"),
        (["base.safetensors", "tuned.safetensors", "--energy", ".5", "--budget", "9"], "give one"),
        (["base.safetensors", "tuned.safetensors", "-o", "a"], "a exists; choose another place"),
    ],
)
@pytest.mark.usefixtures("pair")
def test_mistakes_cost_a_sentence(
    lora: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    sentence: str,
) -> None:
    peft_adapter(tmp_path / "a")
    monkeypatch.chdir(tmp_path)
    code, out, err = lora(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert err.startswith("rankscope: ") and sentence in err


def test_a_hostile_adapter_costs_a_sentence(lora: Command, tmp_path: Path) -> None:
    for number, changes in enumerate(
        ({"lora_alpha": 0}, {"r": 10**15}, {"rank_pattern": {"(a+)+": 4}}, {"use_dora": True})
    ):
        path = write_peft(tmp_path / str(number), peft_tensors(), peft_config(**changes))
        for options in ([], ["--resize", "2", "-o", tmp_path / "out"]):
            code, out, err = lora(path, *options)
            assert (code, out, err.count("\n")) == (2, "", 1), err
    path, _ = kohya_adapter(tmp_path / "k.safetensors", alpha=0.0)
    assert lora(path)[0] == 2
    assert not (tmp_path / "out").exists()
