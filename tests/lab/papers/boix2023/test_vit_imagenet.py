import math
from dataclasses import replace

from lab.papers.boix2023.vit_runs import trainings
from rankscope.lab.data.patterns import ROW_GROUP
from rankscope.lab.experiment import SCALES
from rankscope.lab.papers.boix2023 import vit_imagenet
from rankscope.lab.tasks.streamed import StreamedClassification


def test_paper_scale_is_the_papers() -> None:
    runs = trainings(vit_imagenet.experiment("paper"))
    assert set(runs) == {"vit/scale-1", "vit/scale-0.1"}
    assert vit_imagenet.EPOCH == 1_281_167 // 4096
    for run in runs.values():
        assert (run.optimizer.rate, run.optimizer.decay, run.batch) == (3e-3, 0, 4096)
        assert run.steps == 360 * vit_imagenet.EPOCH
        warm = 15 * vit_imagenet.EPOCH
        assert run.rate(warm - 1) == run.rate(warm) == 1 and run.rate(warm // 2) < 0.51
        assert run.rate(run.steps) == 0
        steps = (*range(vit_imagenet.EPOCH), *range(0, run.steps + 1, vit_imagenet.EPOCH))
        taken = sum(run.snapshots(step) for step in set(steps))
        assert 25 <= taken <= 40
        for processes in (1, 2, 4, 8, 16):  # as many parts each as make none larger
            parts = math.ceil(run.accumulate / processes)
            assert run.batch % (processes * parts) == 0


def test_it_is_vit_b_16() -> None:
    """86.6 million parameters (dosovitskiy2021, table 1: 86M)."""
    config = vit_imagenet.VIT_B_16
    assert config.pixels == (224, 224) and config.tokens == 1 + 14 * 14
    block = 4 * (768 * 768 + 768) + 2 * 768 * 3072 + 3072 + 768 + 4 * 768
    others = 768 * (3 * 16 * 16 + 1) + 768 * 198 + 2 * 768 + 1000 * 769
    assert 12 * block + others == 86_567_656
    smaller = replace(config, depth=1).build()
    assert sum(weight.numel() for weight in smaller.parameters()) == block + others


def test_every_scale_streams() -> None:
    for scale in SCALES:
        for name, run in trainings(vit_imagenet.experiment(scale)).items():
            task = run.task
            assert isinstance(task, StreamedClassification) and run.changes
            assert task.crops.size == task.model.image
            assert f"vit/scale-{task.model.init_scale:g}" == name
            if scale != "paper":  # more than is in memory at any time
                assert task.images.count > 2 * task.window * ROW_GROUP


def test_epochs_of_small_are_whole() -> None:
    small = vit_imagenet.SMALL
    assert small.task.images.count / small.batch == vit_imagenet.SMALL_EPOCH
