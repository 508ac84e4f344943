"""The laboratory's layout: machinery that knows no study, and one folder per study."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

LAB = Path(__file__).parents[2] / "src" / "rankscope" / "lab"
MACHINERY = ("running", "judging", "reporting", "archive", "training")
PAPERS = [path.name for path in sorted((LAB / "papers").iterdir()) if (path / "claims").is_dir()]
NETWORKS = ("vgg", "unet", "lstm", "lm", "mlp", "grok", "vit")
PAPER_WORDS = re.compile(rf"\b({'|'.join([*PAPERS, *NETWORKS])}|[YBN]\d{{1,2}}b?)\b", re.IGNORECASE)


def machinery() -> Iterator[Path]:
    yield from sorted(LAB.glob("*.py"))
    for folder in MACHINERY:
        yield from sorted((LAB / folder).rglob("*.py"))


@pytest.mark.parametrize("path", [*machinery()], ids=lambda path: str(path.relative_to(LAB)))
def test_machinery_knows_no_paper_network_or_claim(path: Path) -> None:
    lines = path.read_text().splitlines()
    known = [f"{number}: {line.strip()}" for number, line in enumerate(lines, 1) if words(line)]
    assert not known


def words(line: str) -> list[str]:
    return PAPER_WORDS.findall(line)


def test_only_papers_import_papers() -> None:
    for path in LAB.rglob("*.py"):
        if "papers" not in path.relative_to(LAB).parts:
            assert "from rankscope.lab.papers" not in path.read_text(), path


def test_few_files_lie_flat() -> None:
    assert len(list(LAB.glob("*.py"))) <= 4


@pytest.mark.parametrize("paper", PAPERS)
def test_claims_are_judged_without_plotting(paper: str) -> None:
    folder = LAB / "papers" / paper / "claims"
    modules = [f"rankscope.lab.papers.{paper}.claims.{path.stem}" for path in folder.glob("*.py")]
    script = (
        f"import {', '.join(modules)}\nimport rankscope.lab.judging.study, sys\n"
        "assert 'matplotlib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_tests_of_the_laboratory_mirror_its_files() -> None:
    tests = Path(__file__).parent
    for path in tests.rglob("test_*.py"):
        place = path.relative_to(tests)
        if len(place.parts) == 1:  # of the laboratory as a whole
            continue
        source = LAB / place.with_name(place.name.removeprefix("test_"))
        assert source.exists() or place.as_posix() in WITHOUT_SOURCE, place


# Tests of a whole folder, or of what several files do together.
WITHOUT_SOURCE = {
    "models/test_networks.py",
    "training/test_gpu.py",
    "papers/boix2023/test_study.py",
    "papers/yunis2024/test_study.py",
    "papers/findings/test_study.py",
    "papers/boix2023/simulations/test_runs.py",
    "papers/boix2023/evidence/test_main.py",
    "papers/yunis2024/evidence/test_main.py",
}
