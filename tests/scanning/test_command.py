"""The command `rankscope scan`: tables, JSON, CSV, exit codes."""

import csv
import io
import json
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch

from rankscope.cli import main
from rankscope.matrices import Reading
from rankscope.scanning.measuring import Base
from scanning.cases import saved, series, weights


class Ran:
    """Result of one command."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *arguments: object) -> None:
        patch = pytest.MonkeyPatch()
        patch.setattr(sys, "argv", ["rankscope", "scan", *map(str, arguments)])
        patch.setenv("COLUMNS", "160")
        try:
            main()
            self.code = 0
        except SystemExit as end:
            self.code = end.code or 0
        finally:
            patch.undo()
        self.out, self.err = capsys.readouterr()


def test_a_table_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tensors = {**weights(), "buffer": torch.zeros(3, 3, dtype=torch.int64)}
    ran = Ran(capsys, saved(tmp_path / "x.safetensors", tensors), "--sort", "norm")
    assert ran.code == 0 and ran.err == ""
    assert "40x16" in ran.out and "eff." in ran.out
    assert "buffer: int64 values" in ran.out and "3 matrices of 4 tensors" in ran.out


@pytest.mark.parametrize(
    ("header", "column"),
    [("r90", "r90"), ("eff. rank", "effective_rank"), ("tail", "tail_exponent")],
)
def test_sort_takes_the_words_above_a_column(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], header: str, column: str
) -> None:
    path = saved(tmp_path / "x.safetensors", weights())
    assert f" {header} " in Ran(capsys, path).out
    sorted_by_header, sorted_by_name = (
        Ran(capsys, path, "--csv", "--sort", name) for name in (header, column)
    )
    assert sorted_by_header.code == 0 and sorted_by_header.out == sorted_by_name.out


def test_a_series_is_sorted_by_its_first_ranks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    series(tmp_path)
    assert Ran(capsys, tmp_path, "--sort", "eff. rank at first").code == 0


def test_what_the_user_left_out_is_not_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tensors = {**weights(), "buffer": torch.zeros(3, 3, dtype=torch.int64)}
    ran = Ran(capsys, saved(tmp_path / "x.safetensors", tensors), "--include", "1")
    assert ran.code == 0 and "excluded" not in ran.out and "buffer: int64 values" in ran.out
    assert "1 not read, 2 left out by --include, 1 assumed" in ran.out


def test_a_series_shows_its_last_step_and_the_first_ranks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    series(tmp_path)
    ran = Ran(capsys, tmp_path)
    assert ran.code == 0 and "step 30, last of 4" in " ".join(ran.out.split())
    assert "at first" in ran.out


def test_json_and_csv_hold_all_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    series(tmp_path)
    content = json.loads(Ran(capsys, tmp_path, "--json").out)
    assert len(content["matrices"]) == 12 and len(content["checkpoints"]) == 4
    assert content["coverage"][0]["tensor"] == "0.weight" and content["problems"] == []
    table = pd.read_csv(io.StringIO(Ran(capsys, tmp_path, "--csv").out))
    assert table["step"].tolist() == [row["step"] for row in content["matrices"]]


def test_a_run_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    series(tmp_path / "series")
    base = tmp_path / "series" / "step0.safetensors"
    run = tmp_path / "run.zarr"
    ran = Ran(capsys, tmp_path / "series", "-o", run, "--base", base, "--leading", "3")
    assert ran.code == 0 and (run / "zarr.json").exists()
    assert "unchanged" not in ran.out
    assert f"{run}: run written, 4 snapshots\n" in ran.err
    again = Ran(capsys, tmp_path / "series", "-o", run, "--base", base, "--leading", "3")
    assert again.code == 0 and f"{run}: run continued, 4 snapshots\n" in again.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nothing"], "'nothing' does not exist"),
        (["nothing", "--sort", "size"], "--sort is a column"),  # before anything is read
        (
            ["x.safetensors", "--leading", "0", "--sort", "tail"],
            "--sort tail_exponent: it needs all values; leave out --leading",
        ),
        (["x.safetensors", "--sort", "change"], "sort is a column"),
        (["x.safetensors", "--revision", "main"], "--revision chooses among those of a model on"),
        (["https://hub/org/model"], "is a URL; pass a path, or a model on the hub as org/model"),
        (["x.safetensors", "--base", "nothing"], "'nothing' does not exist"),
        (["broken.safetensors"], "is damaged"),
        (["x.safetensors", "--include", "zzz*"], "matches no matrix; there are '0'"),
        (["x.safetensors", "--device", "cuda", "--on", "ray"], "measures on its CPU cores"),
    ],
)
def test_mistakes_are_one_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    saved(tmp_path / "x.safetensors", weights())
    (tmp_path / "broken.safetensors").write_bytes(b"\x10")
    ran = Ran(capsys, *arguments)
    assert ran.code == 2 and ran.out == ""
    assert sentence in ran.err and ran.err.count("\n") == 1


@pytest.mark.parametrize(
    "options",
    [("--json", "--csv"), ("--json", "--like", "weightwatcher"),
     ("--sort", "norm", "--like", "weightwatcher")],
)  # fmt: skip
def test_options_that_exclude_each_other_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    ran = Ran(capsys, saved(tmp_path / "x.safetensors", weights()), *options)
    assert ran.code == 2 and not ran.out and f"{options[0]} has no meaning beside" in ran.err


def test_what_can_be_read_is_printed_with_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    series(tmp_path)
    (tmp_path / "step10.safetensors").write_bytes(b"\x10")
    ran = Ran(capsys, tmp_path, "--csv")
    assert ran.code == 2 and ran.err.startswith("rankscope: step 10 is left out: ")
    assert len(ran.out.splitlines()) == 10


def test_what_a_base_lacks_is_named_and_the_rest_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned = saved(tmp_path / "tuned.safetensors", weights(1))
    base = saved(tmp_path / "base.safetensors", weights(0))
    whole = Ran(capsys, tuned, "--base", base, "--csv")
    read = Base.matrix

    def damaged(self: Base, reading: Reading) -> torch.Tensor | None:
        if reading.name == "1":
            raise ValueError("tensor '1.weight' is damaged")
        return read(self, reading)

    monkeypatch.setattr(Base, "matrix", damaged)
    ran = Ran(capsys, tuned, "--base", base, "--csv")
    assert ran.code == 2 and ran.err == "rankscope: tensor '1.weight' is damaged\n"
    assert len(ran.out.splitlines()) == 4 and "cannot be read in the base" in ran.out
    assert len(set(ran.out.splitlines()) & set(whole.out.splitlines())) == 3


def test_a_base_without_a_shard_is_a_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned = saved(tmp_path / "tuned.safetensors", weights(1))
    part = {name: tensor for name, tensor in weights(0).items() if name.startswith("1.")}
    saved(tmp_path / "base" / "model-00001-of-00002.safetensors", part)
    ran = Ran(capsys, tuned, "--base", tmp_path / "base", "--csv")
    assert ran.code == 2 and ran.out.count("not in the base") == 2
    assert ran.err == "rankscope: base: 1 of 2 shards are missing: 2\n"
    rows = {row["matrix"]: row for row in csv.DictReader(io.StringIO(ran.out))}
    assert float(rows["1"]["norm"]) > 0 and rows["0"]["stands_out"] == "not in the base"
    unknown = {"norm", "effective_rank", "stable_rank", "r50", "tail_exponent", "change"}
    assert {rows["0"][column] for column in unknown} == {""}


def test_a_base_of_another_model_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned = saved(tmp_path / "tuned.safetensors", weights(1))
    base = saved(tmp_path / "base.safetensors", {"other.weight": torch.ones(3, 4)})
    ran = Ran(capsys, tuned, "--base", base)
    assert (ran.code, ran.out) == (2, "")
    assert "have no matrix in common; the first are '0' and 'other'" in ran.err


def test_many_problems_are_counted_and_json_has_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(tmp_path / "series" / "step0.safetensors", weights())
    for step in range(1, 31):
        (tmp_path / "series" / f"step{step}.safetensors").write_bytes(b"\x10")
    ran = Ran(capsys, tmp_path / "series")
    lines = ran.err.splitlines()
    assert ran.code == 2 and len(lines) == 21 and "40x16" in ran.out
    assert lines[-1] == "rankscope: and 10 more, which --json lists"
    assert len(json.loads(Ran(capsys, tmp_path / "series", "--json").out)["problems"]) == 30
