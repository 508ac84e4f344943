import re
from pathlib import Path

import pytest

from lab import toy_study
from rankscope.lab.experiment import study_of
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.judging.verdict import Table
from rankscope.lab.reporting.evidence import main


def losses(runs: Runs) -> Table:
    """Losses at [the end].

    The second paragraph is no heading.
    """
    return Table(("network", "loss"), (("fast", 0.25),), "losses")


def images(folder: Path) -> Table:
    """Images in a folder."""
    if not folder.exists():
        raise ValueError(f"{folder} does not exist")
    return Table(("images",), ((7,),), "images")


def run(*arguments: str) -> None:
    study = study_of(toy_study.experiment("paper"))
    main(study, {"P1": (losses,), "P2": ()}, with_data={"P1": (images,)}, arguments=arguments)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A folder with something that looks like an archived run of another experiment."""
    file = tmp_path / "paper2000" / "other" / "run" / "seed-0.zarr.zip"
    file.parent.mkdir(parents=True)
    file.touch()
    return tmp_path


def test_without_a_claim_it_lists_them(capsys) -> None:
    run()
    printed = capsys.readouterr().out
    assert re.search(r"P1 +Losses at \[the end\]\.\s+Images in a folder\.\s+P2", printed)
    assert "second paragraph" not in printed


@pytest.mark.parametrize("chosen", ["P1", "--all"])
def test_a_claim_prints_its_tables_and_names_those_that_need_data(capsys, archive, chosen) -> None:
    run(chosen, "--results", str(archive))
    printed = capsys.readouterr().out
    assert "P1. Losses at [the end]." in printed and "0.25" in printed
    assert "P1. Images in a folder. Pass --data FOLDER." in printed
    run(chosen, "--results", str(archive), "--data", str(archive))
    assert "7" in capsys.readouterr().out


def test_refusals_say_what_to_do(capsys, archive: Path) -> None:
    nowhere = str(archive / "nowhere")
    for arguments, sentence in (
        (["P9"], "no tables for P9; choose from P1, P2"),
        (["P1", "--results", nowhere], "pass the folder with --results"),
        (["P1", "--results", str(archive), "--data", nowhere], "nowhere does not exist"),
    ):
        with pytest.raises(SystemExit, match="2"):
            run(*arguments)
        assert sentence in " ".join(capsys.readouterr().err.split())
