import json
import re
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

import rankscope as rs
from rankscope.cli import main
from rankscope.store import Variable, Writer

ANSI = re.compile(r"\x1b\[[\d;]*m")


class Ran:
    """What `rankscope *arguments` printed, without colours, and its exit code."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
    ) -> None:
        monkeypatch.setattr("sys.argv", ["rankscope", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        self.code = ended.value.code
        self.out, self.err = ANSI.sub("", printed.out), ANSI.sub("", printed.err)


def test_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    ran = Ran(monkeypatch, capsys, "--version")
    assert (ran.code, ran.out, ran.err) == (0, f"rankscope {version('rankscope')}\n", "")


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_is_a_guide(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    ran = Ran(monkeypatch, capsys, *arguments)
    assert "rankscope demo" in ran.out and "tracker.observe(step, loss=loss)" in ran.out
    assert ran.err == ""
    if arguments:
        assert ran.code == 0


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Experiments that take no time in place of the real ones."""
    monkeypatch.setattr("rankscope.lab.catalogue.PAPERS", "lab.toy_papers")


LORA = [
    *["--base", "--resize", "--energy", "--merge", "--base", "--diff"],  # in the text
    *["--out", "--base", "--energy", "--error", "--noise", "--max-rank", "--budget"],
    *["--round", "--resize", "--merge", "--diff", "--names", "--prefix", "--transformers"],
    *["--dtype", "--matrices-only", "--pattern", "--figure", "--overwrite", "--json", "--help"],
]
WHERE = ["--data", "--device", "--on"]


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("demo", ["--out", "--jobs", "--help"]),
        ("run", ["--scale", "--seed", "--out", "--jobs", *WHERE, "--json", "--help"]),
        ("reproduce", ["--scale", "--seed", "--out", "--jobs", *WHERE, "--help"]),
        ("show", ["--base", "--sort", "--json", "--help"]),
        (
            "scan",
            [
                *("--base", "--out", "--sort", "--include", "--exclude", "--pattern"),
                *(
                    "--leading",
                    "--revision",
                    "--like",
                    "--device",
                    "--on",
                    "--json",
                    "--csv",
                    "--help",
                ),
            ],
        ),
        ("lora", LORA),
        ("report", ["--scale", "--out", "--help"]),
        ("list", ["--out", "--verbose", "--json", "--help"]),
        ("results", ["--help"]),
        ("results keep", ["--help"]),
        ("results check", ["--help"]),
        ("check", ["--help"]),
    ],
)
def test_the_options(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    options: list[str],
) -> None:
    """Options are promises: a new one is added here on purpose or not at all."""
    ran = Ran(monkeypatch, capsys, *command.split(), "--help")
    assert ran.code == 0
    assert re.findall(r"--[\w-]+", ran.out) == options


@pytest.mark.usefixtures("toys")
def test_run_then_list(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    name, out = "paper2000/slow-decay", str(tmp_path)
    ran = Ran(monkeypatch, capsys, "run", name, "--seed", "1", "--out", out, "--jobs", "1")
    assert ran.code == 0 and "holds so far" in ran.out and "2 of 2 runs" in ran.err
    ran = Ran(monkeypatch, capsys, "run", name, "--out", out, "--jobs", "1", "--json")
    assert ran.code == 0
    words = [v["networks"][0]["verdict"] for v in json.loads(ran.out)["verdicts"]]
    assert words == ["holds", "fails"]
    ran = Ran(monkeypatch, capsys, "list", "--out", out, "--json")
    counts = {entry["scale"]: (entry["whole"], entry["total"]) for entry in json.loads(ran.out)}
    assert counts == {"paper": (0, 6), "small": (6, 6), "smoke": (0, 2)}
    ran = Ran(monkeypatch, capsys, "list", "--out", out)
    assert ran.code == 0 and "A loss decays at two" in ran.out and "2 h" in ran.out
    assert len(ran.out.splitlines()) < 8
    ran = Ran(monkeypatch, capsys, "list", "--out", out, "--verbose")
    assert "2 x 3 seeds" in ran.out


def test_an_own_experiment_runs_from_its_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """In processes of their own, which have to import the file too."""
    path = tmp_path / "own_decays.py"
    path.write_text(
        "from lab.toy_study import FALLS, FAST, SLOW, Decay\n"
        "from rankscope.lab import Experiment\n"
        "class Mine(Decay): pass\n"
        "def experiment(scale):\n"
        "    runs = {FAST: Mine(rate=2.0), SLOW: Mine()}\n"
        "    return Experiment('mine/decays', scale, runs, seeds=(0,), claims=(FALLS,))\n"
    )
    out = tmp_path / "runs"
    ran = Ran(monkeypatch, capsys, "run", str(path), "--out", str(out), "--jobs", "2", "--json")
    assert ran.code == 0, ran.err
    (verdict,) = json.loads(ran.out)["verdicts"]
    assert [n["verdict"] for n in verdict["networks"]] == ["holds so far", "holds so far"]


@pytest.mark.usefixtures("toys")
def test_reproduce_then_report(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    place = ("--out", str(tmp_path), "--jobs", "1", "--device", "cpu")
    ran = Ran(monkeypatch, capsys, "reproduce", "paper2000", "--seed", "1", *place)
    page = tmp_path / "paper2000" / "report-small" / "index.html"
    assert (ran.code, ran.out.splitlines()[-1]) == (0, f"Report: {page}")
    assert "fast ○" in ran.out and "2 of 2 runs" in ran.err
    again = f"rankscope reproduce paper2000 --seed 1 --out {tmp_path} --jobs 1 --device cpu"
    assert f"<pre>{again}</pre>" in page.read_text()
    ran = Ran(monkeypatch, capsys, "reproduce", *place)
    every = tmp_path / "report-small" / "index.html"
    assert (ran.code, ran.out.splitlines()[-1]) == (0, f"Report: {every}")
    assert "2 of 6 runs are there already" in ran.err
    shown = page.read_bytes()
    ran = Ran(monkeypatch, capsys, "report", str(tmp_path), "paper2000")
    assert ran.code == 0 and "the loss falls" in ran.out and "runs" not in ran.err
    assert page.read_bytes() != shown  # three seeds now
    assert f"<pre>rankscope report {tmp_path} paper2000</pre>" in page.read_text()


@pytest.mark.usefixtures("toys")
def test_results(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    name, monkey = "paper2000/slow-decay", monkeypatch
    monkey.chdir(tmp_path)
    at_paper = ("--scale", "paper")
    assert Ran(monkey, capsys, "run", name, *at_paper, "--seed", "0", "--jobs", "1").code == 0
    ran = Ran(monkey, capsys, "results", "check")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    ran = Ran(monkey, capsys, "results", "keep", "runs")
    assert (ran.code, ran.err) == (0, "2 new files in results\n")
    ran = Ran(monkey, capsys, "results")
    assert ran.code == 0 and name in ran.out
    ran = Ran(monkey, capsys, "results", "check")
    assert (ran.code, ran.out) == (0, "results: all numbers agree.\n")
    ran = Ran(monkey, capsys, "report", "results")
    page = Path("results/report-paper/index.html")
    assert (ran.code, ran.out.splitlines()[-1]) == (0, f"Report: {page}")
    assert "<pre>rankscope report results</pre>" in page.read_text()
    ran = Ran(monkey, capsys, "report", "results", "--scale", "small")
    assert ran.code == 2 and "is an archive of scale paper; leave out --scale small" in ran.err
    entries = json.loads(Ran(monkey, capsys, "list", "--out", "elsewhere", "--json").out)
    assert [(entry["scale"], entry["whole"], entry["archived"]) for entry in entries] == [
        ("paper", 0, 2),
        ("small", 0, 0),
        ("smoke", 0, 0),
    ]
    entries = json.loads(Ran(monkey, capsys, "list", "--out", "results", "--json").out)
    assert [(entry["scale"], entry["whole"]) for entry in entries] == [("paper", 2)]
    for command in (("run", name, *at_paper), ("reproduce", "paper2000", *at_paper)):
        ran = Ran(monkey, capsys, *command, "--out", "results")
        sentence = "rankscope: results is an archive; choose another --out\n"
        assert (ran.code, ran.err) == (2, sentence)
    Path("results/paper2000/verdicts.json").unlink()
    ran = Ran(monkey, capsys, "results", "check")
    assert ran.code == 1 and "verdicts.json is missing" in ran.out


@pytest.mark.usefixtures("toys")
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["reproduce", "paper2001"], "there is no paper 'paper2001'; did you mean paper2000?"),
        (["reproduce", "--device", "cuda"], "device 'cuda' was asked for, but torch sees none"),
        (["run", "paper2000/slow-decay", "--data", "nowhere"], "nowhere is not a folder; give"),
        (["show", "nowhere"], "nowhere does not exist; give a run"),
        (["report", ".", "a", "b"], ". is not a run; give runs, or one folder"),
        (["report", "nowhere"], "nowhere does not exist; give a run"),
        (["report", "."], ". has no runs of any paper at scale small; rankscope reproduce"),
    ],
)
def test_mistakes_are_one_sentence_on_stderr(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    arguments: list[str],
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    ran = Ran(monkeypatch, capsys, *arguments)
    assert (ran.code, ran.out) == (2, "") and ran.err.startswith(f"rankscope: {sentence}")
    assert ran.err.count("\n") == 1


@pytest.mark.usefixtures("toys")
def test_a_failed_run_is_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    in_the_way = tmp_path / "paper2000/slow-decay/smoke/fast/rate-2/seed-0"
    in_the_way.parent.mkdir(parents=True)
    in_the_way.write_text("years of work")
    for command in (("run", "paper2000/slow-decay"), ("reproduce",)):
        arguments = (*command, "--scale", "smoke", "--out", str(tmp_path))
        ran = Ran(monkeypatch, capsys, *arguments, "--jobs", "1")
        assert ran.code == 1 and "was not made by an experiment; choose another --out" in ran.err
    assert in_the_way.read_text() == "years of work"


@pytest.mark.usefixtures("toys")
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["slow-decay"],
            "rankscope: there is no experiment 'slow-decay'; did you mean paper2000/slow-decay? "
            "(there are: paper2000/slow-decay)\n",
        ),
        (["paper2000/slow-decay", "--scale", "huge"], "'huge' is not one of"),
    ],
)
def test_a_wrong_name(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    sentence: str,
) -> None:
    ran = Ran(monkeypatch, capsys, "run", *arguments)
    assert (ran.code, ran.out) == (2, "") and sentence in ran.err


def test_a_package_that_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("rankscope.lab.catalogue.PAPERS", "sklearn.papers")
    ran = Ran(monkeypatch, capsys, "list")
    assert (ran.code, ran.out) == (2, "")
    assert "sklearn.papers; install it with pip install 'rankscope[lab]'" in ran.err


def test_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with Writer.create(tmp_path / "run", coords={}, variables={"x": Variable(("step",))}) as writer:
        writer.append(0, {"x": 1.0})
    whole = Ran(monkeypatch, capsys, "check", "~/run")
    assert (whole.code, whole.out) == (0, f"{tmp_path}/run: 2 chunks read, no damage\n")
    (tmp_path / "run" / "x" / "c.0").write_bytes(b"")
    damaged = Ran(monkeypatch, capsys, "check", "~")
    assert damaged.code == 1
    assert damaged.out == (f"{tmp_path}/run: 'x' of step 0 is damaged (x/c.0): checksum differs\n")
    url = Ran(monkeypatch, capsys, "check", "s3://bucket/run")
    assert url.code == 2 and "is a URL" in url.err


def test_own_runs_are_shown_and_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    net = torch.nn.Linear(6, 4)
    with rs.Tracker(net, tmp_path / "first", schedule=[0]) as tracker:
        tracker.observe(0, loss=2.0)
    shown = Ran(monkeypatch, capsys, "show", str(tmp_path / "first"))
    assert shown.code == 0 and "4x6" in shown.out and "loss 2" in shown.out
    rows = json.loads(Ran(monkeypatch, capsys, "show", str(tmp_path / "first"), "--json").out)
    assert [row["matrix"] for row in rows] == ["weight"]
    reported = Ran(monkeypatch, capsys, "report", str(tmp_path / "first"))
    assert reported.code == 0 and (tmp_path / "first.html").exists()


def test_a_file_system_that_refuses_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with rs.Tracker(torch.nn.Linear(6, 4), tmp_path / "first", schedule=[0]) as tracker:
        tracker.observe(0)
    (tmp_path / "file").touch()
    page = tmp_path / "file" / "page.html"
    ran = Ran(monkeypatch, capsys, "report", str(tmp_path / "first"), "--out", str(page))
    assert ran.code == 2 and ran.err.startswith(f"rankscope: {tmp_path / 'file'}")
    assert ran.err.count("\n") == 1


def test_show_asks_for_one_run_and_speaks_of_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    net = torch.nn.Linear(4, 3)
    for name in ("first", "second"):
        with rs.Tracker(net, tmp_path / name, schedule=[0]) as tracker:
            tracker.observe(0)
    ran = Ran(monkeypatch, capsys, "show", str(tmp_path))
    assert (ran.code, ran.out) == (2, "")
    assert f"{tmp_path} is a folder of runs; name one, such as {tmp_path / 'first'}" in ran.err
    assert f"rankscope view {tmp_path}" in ran.err and "rankscope report" in ran.err
    above = tmp_path / "archive"
    run = above / "vgg" / "decay-0" / "seed-0.zarr.zip"
    run.parent.mkdir(parents=True)
    run.touch()
    ran = Ran(monkeypatch, capsys, "show", str(above))
    assert ran.code == 2 and f"{above} is a folder of runs; name one, such as {run}" in ran.err
    torch.save(net.state_dict(), tmp_path / "model.pt")
    reference = str(tmp_path / "model.pt")
    ran = Ran(monkeypatch, capsys, "show", str(tmp_path / "first"), "--base", reference)
    assert (ran.code, ran.out) == (2, "")
    assert "leave --base out" in ran.err and "reference=" not in ran.err
