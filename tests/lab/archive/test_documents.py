import re
from dataclasses import replace
from pathlib import Path

import pytest

from lab.toy_study import experiment
from rankscope.lab.archive.documents import _with_runs, write_documents
from rankscope.lab.catalogue import load_studies
from rankscope.lab.experiment import PageTable, study_of
from rankscope.lab.judging.available_runs import AvailableRuns
from rankscope.lab.judging.study import judge_study
from rankscope.lab.judging.verdict import NetworkVerdict, SeedOutcome, Table, Verdict
from rankscope.lab.reporting.page_values import MARKER

ROOT = Path(__file__).parents[3]
PAGES = (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
FIGURE = re.compile(r"\(figures/\w+/(figure-[\w-]+)\.png\)\n\n(?P<next>.*)")


@pytest.mark.parametrize("seeds", [(), (SeedOutcome(0, 0.25, True),)])
@pytest.mark.parametrize("ours", [True, False])
def test_the_readme_leaves_out_our_claims_that_nothing_was_run_for(seeds, ours: bool) -> None:
    study = replace(study_of(experiment("small")), ours=ours)
    verdict = Verdict("P3", "it stays", networks=(NetworkVerdict("vit", seeds),), ours=ours)
    assert _with_runs((study, (verdict,))) == (study, () if ours and not seeds else (verdict,))


def test_numbers_in_sentences_are_declared_and_declared_numbers_are_shown() -> None:
    studies = load_studies("paper")
    declared = [value.name for study in studies for value in study.page_values]
    texts = [text.text for study in studies for text in study.page_texts]
    texts += [page.read_text() for page in PAGES]
    shown = {match["name"] for text in texts for match in MARKER.finditer(text)}
    assert len(declared) == len(set(declared)) and set(declared) == shown


@pytest.mark.parametrize("study", ["yunis2024", "boix2023"])
def test_every_figure_of_a_paper_is_compared_with_the_papers(study: str) -> None:
    text = (ROOT / f"docs/papers/{study}.md").read_text()
    figures = FIGURE.findall(text)
    assert len(figures) >= 7
    for name, following in figures:
        number = name.split("-")[1]
        assert following.startswith((f"*Figure {number} ", "<!-- end")), f"{name}: {following}"


def test_tables_of_a_page_that_is_not_there_are_not_made(tmp_path: Path) -> None:
    """An archive outside a checkout has no pages, and lacks files that their tables read."""

    def fail(*_: object) -> list[Table]:
        raise ValueError("vgg-evaluation.npz is missing")

    declared = experiment("paper")
    study = replace(study_of(declared), page_tables=(PageTable("official", fail),))
    report = judge_study(study, AvailableRuns({key: {} for key in study.keys}))
    assert write_documents(tmp_path / "results", [report], [study]) == []
    page = tmp_path / f"docs/papers/{study.name}.md"
    page.parent.mkdir(parents=True)
    page.write_text("")
    with pytest.raises(ValueError, match="is missing"):
        write_documents(tmp_path / "results", [report], [study])
