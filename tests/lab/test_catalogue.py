import sys
from pathlib import Path

import pytest

from lab.toy_runs import Log
from rankscope.lab import catalogue
from rankscope.lab.experiment import SCALES
from rankscope.lab.running.processes import execute
from rankscope.lab.running.stored_run import stored_runs

OWN = '''"""Counts to three."""
from lab.toy_runs import Decay
from rankscope.lab import Experiment, RunKey

def experiment(scale):
    return Experiment("mine/count", scale, runs={RunKey("loss"): Decay()}, seeds=(0,))
'''


def test_every_paper_is_a_study_at_every_scale() -> None:
    assert catalogue.study_names() == ("yunis2024", "boix2023", "findings")
    assert [s.name for s in catalogue.load_papers("smoke")] == ["yunis2024", "boix2023"]
    for scale in SCALES:
        for study in catalogue.load_studies(scale):
            assert study.scale == scale and study.claims and study.figures
            assert all(e.name.startswith(f"{study.name}/") for e in study.experiments)
            assert set(study.highlights) <= {figure.name for figure in study.figures}
            assert all(rule.needs(study.keys) or scale == "smoke" for rule in study.claims)


def test_every_experiment_has_a_summary_of_one_line() -> None:
    for study in catalogue.load_studies("small"):
        for experiment in study.experiments:
            assert 10 < len(catalogue.summary(experiment)) < 80, experiment.name


def test_an_experiment_is_its_papers_study_cut_down() -> None:
    study = catalogue.load("yunis2024/vgg", "small")
    assert [experiment.name for experiment in study.experiments] == ["yunis2024/vgg"]
    claims = [rule.claim for rule in study.claims]
    assert "Y4" in claims and not {"Y8", "Y9", "Y10"} & set(claims)


def test_an_unknown_name_gets_a_hint() -> None:
    with pytest.raises(ValueError, match=r"did you mean yunis2024/vgg\?"):
        catalogue.load("vgg", "small")
    with pytest.raises(ValueError, match=r"no paper 'yunis2023'; did you mean yunis2024"):
        catalogue.load_study("yunis2023", "small")


@pytest.fixture(autouse=True)
def own_search_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders of experiments that tests load are forgotten afterwards."""
    monkeypatch.setattr(sys, "path", [*sys.path])


def test_an_own_experiment_comes_from_a_module_or_a_file(tmp_path: Path) -> None:
    assert catalogue.load("lab.toy_study", "smoke").title == "A loss decays at two rates."
    path = tmp_path / "counting_experiment.py"
    path.write_text(OWN)
    study = catalogue.load(str(path), "smoke")
    assert (study.name, study.title) == ("mine/count", "Counts to three.")


def test_a_file_that_declares_nothing_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a file"):
        catalogue.load(str(tmp_path / "absent.py"), "smoke")
    with pytest.raises(ValueError, match=r"json has no function experiment\(scale\)"):
        catalogue.load("json", "smoke")
    path = tmp_path / "declares_nothing.py"
    path.write_text("def experiment(scale):\n    return 3\n")
    with pytest.raises(ValueError, match=r"must return a rankscope\.lab\.Experiment; got int"):
        catalogue.load(str(path), "smoke")
    shadow = tmp_path / "json.py"
    shadow.write_text(OWN)
    with pytest.raises(ValueError, match="belongs to another module"):
        catalogue.load(str(shadow), "smoke")


def test_entries_count_stored_runs(tmp_path: Path) -> None:
    (experiment,) = catalogue.load("boix2023/toy-diag", "smoke").experiments
    execute(stored_runs(experiment, tmp_path)[:1], jobs=1, watcher=Log())
    entries = catalogue.entries(tmp_path, archive=tmp_path / "none")
    by_place = {(entry.experiment, entry.scale): entry for entry in entries}
    entry = by_place["boix2023/toy-diag", "smoke"]
    assert (entry.whole, entry.total, entry.archived) == (1, 5, 0)
    assert by_place["boix2023/toy-diag", "paper"].whole == 0
