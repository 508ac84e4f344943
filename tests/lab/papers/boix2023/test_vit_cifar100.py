import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr

from lab.papers.boix2023.vit_runs import courses, trainings, vit_run
from rankscope.lab.catalogue import load
from rankscope.lab.data.hub import parquet_files, read_shards
from rankscope.lab.data.images import CIFAR100, CIFAR100_TEST
from rankscope.lab.judging.available_runs import AvailableRuns
from rankscope.lab.judging.study import judge_study
from rankscope.lab.models.vit import VitConfig
from rankscope.lab.papers.boix2023 import vit_cifar10, vit_cifar100
from rankscope.lab.papers.findings import needed_rank
from rankscope.lab.running.run_key import RunKey
from rankscope.lab.tasks.classification import Classification

REAL = pytest.mark.skipif("RANKSCOPE_DATA" not in os.environ, reason="needs RANKSCOPE_DATA")
# The superclass of each class, both in alphabetical order (krizhevsky2009).
SUPERCLASSES = """
 4  1 14  8  0  6  7  7 18  3  3 14  9 18  7 11  3  9  7 11  6 11  5 10  7
 6 13 15  3 15  0 11  1 10 12 14 16  9 11  5  5 19  8  8 15 13 14 17 18 10
16  4 17  4  2  0 17  4 18 17 10  3  2 12 12 16 12  1  9 19  2 10  0  1 16
12  9 13 15 13 16 19  2  4  6 19  5  5  8 19 18  1  2 15  6  0 17  8 14 13
"""


def test_paper_scale_is_that_of_cifar10_with_a_hundred_classes_at_three_scales() -> None:
    experiment = vit_cifar100.experiment("paper")
    declared, other = trainings(experiment), trainings(vit_cifar10.experiment("paper"))
    assert set(declared) == {"vit/scale-1", "vit/scale-0.3", "vit/scale-0.1"}
    assert experiment.seeds == (0, 1, 2)
    for name, run in declared.items():
        network = VitConfig(classes=100, init_scale=other[name].task.model.init_scale)
        task = Classification(CIFAR100, network, test=CIFAR100_TEST)
        assert run == replace(other[name], task=task, cuts=needed_rank.CUTS)


def made_run(init_scale: float) -> xr.Dataset:
    """Ranks of three blocks that grow to 12 at scale 1, and to 12 times the scale elsewhere."""
    ranks = np.linspace(1, max(12 * init_scale, 2), 6).round().astype(int)
    return vit_run(courses(*[(0, *ranks)] * 3), start=16)


def test_claims_judge_made_runs_and_figures_13_and_14_draw_them(tmp_path: Path) -> None:
    study = load("boix2023/vit-cifar100", "paper")
    assert {rule.claim.split("-")[0] for rule in study.claims} == {"B7", "B8", "B9"}
    runs = {
        RunKey("vit", {"scale": s}, experiment="boix2023/vit-cifar100"): made_run(s)
        for s in (1.0, 0.3, 0.1)
    }
    seeds = {key: {seed: ds for seed in (0, 1, 2)} for key, ds in runs.items()}
    report = judge_study(study, AvailableRuns(seeds), figures=tmp_path)
    assert not report.faults
    words = {v.claim: [n.word for n in v.networks] for v in report.verdicts}
    assert words["B7"] == words["B8"] == ["holds", "holds"]
    assert words["B9"] == words["B9-VO"] == ["fails"]  # 12 of 16 is more than a quarter
    drawn = {path.stem for drawing in report.drawings for path in drawing.files}
    assert drawn == {"figure-13", "figure-14"}


@REAL
@pytest.mark.parametrize(("data", "of_each"), [(CIFAR100, 500), (CIFAR100_TEST, 100)])
def test_real_labels_are_fine_ones_and_all_classes_are_equally_frequent(data, of_each) -> None:
    files = parquet_files(data.repo, data.config, data.split)
    columns = (data.label_column, "coarse_label")
    tables = [table for _, table in read_shards(files, columns)]
    fine, coarse = (np.concatenate([t[column].to_numpy() for t in tables]) for column in columns)
    assert np.bincount(fine).tolist() == 100 * [of_each]
    assert (coarse == np.array(SUPERCLASSES.split(), dtype=int)[fine]).all()


@REAL
@pytest.mark.slow
def test_real_images_belong_to_their_labels() -> None:
    """The nearest class mean tells classes far above chance, and pixels have published means."""
    train, test = CIFAR100.build(), CIFAR100_TEST.build()
    pixels, unseen = (part.inputs.flatten(1).float() / 255 for part in (train, test))
    channels = pixels.unflatten(1, (3, -1)).mean((0, 2))
    assert channels.tolist() == pytest.approx([0.5071, 0.4865, 0.4409], abs=2e-4)
    means = torch.stack([pixels[train.labels == label].mean(0) for label in range(100)])
    nearest = torch.cdist(unseen, means).argmin(1)
    assert (nearest == test.labels).double().mean() > 0.05  # chance is 0.01


@REAL
@pytest.mark.slow
def test_a_step_of_the_declared_training_on_real_images(tmp_path: Path) -> None:
    run = replace(trainings(vit_cifar100.experiment("paper"))["vit/scale-1"], batch=16)
    with run.assembled(tmp_path / "run", seed=0, progress=lambda *_: None) as (loop, first):
        assert (first, loop.problem.samples) == (0, 50_000)
        assert loop.problem.constant_loss == pytest.approx(math.log(100))
        before = [weight.detach().clone() for weight in loop.problem.model.parameters()]
        batch = loop.problem.draw(loop.order(0), torch.Generator())
        loss = float(loop.learn(batch))
        assert loss == pytest.approx(math.log(100), abs=1)
        after = loop.problem.model.parameters()
        assert all(not torch.equal(a, b) for a, b in zip(after, before, strict=True))
