"""What findings/needed-rank declares, and what the archive keeps of its runs."""

from dataclasses import replace
from pathlib import Path

from lab.papers.boix2023.vit_runs import trainings
from lab.training.toy_task import silent
from rankscope import store
from rankscope.lab.archive.compaction import compact
from rankscope.lab.papers.boix2023 import vit_cifar10
from rankscope.lab.papers.findings import needed_rank
from rankscope.lab.papers.findings.claims.needed_rank import needed_ranks, why_untold
from rankscope.lab.training.head_cuts import CutAccuracies
from rankscope.store.archive import packed

EPOCHS_60 = 60 * (50_000 // 512)


def test_paper_scale_is_the_training_of_cifar10_ended_after_60_epochs() -> None:
    experiment = needed_rank.experiment("paper")
    declared, other = trainings(experiment), trainings(vit_cifar10.experiment("paper"))
    assert experiment.seeds == (3, 4, 5) and len(declared) == 8
    for decay in (0.0, 0.1):
        for scale in (1, 0.3, 0.1, 0.03):
            base = other[f"vit/scale-{scale:g}"]
            assert declared[f"vit/scale-{scale:g},decay-{decay:g}"] == replace(
                base,
                optimizer=replace(base.optimizer, decay=decay),
                paper_decay=decay,
                steps=EPOCHS_60,
                changes=False,
                stop=None,
                cuts=needed_rank.CUTS,
            )
    assert needed_rank.CUTS.ranks == tuple(2**k for k in range(8))


def test_the_archived_file_of_a_run_tells_as_much_of_n2_as_the_run(tmp_path: Path) -> None:
    run = next(iter(needed_rank.experiment("smoke").runs.values()))
    run.execute(tmp_path / "run", seed=0, progress=silent)
    ds = store.open(tmp_path / "run")
    path = tmp_path / "run.zarr.zip"
    path.write_bytes(packed(compact(ds, needed_rank.ENDS)))
    archived = store.open(path)
    assert needed_ranks(archived) == needed_ranks(ds)
    assert why_untold(archived) == why_untold(ds) == ""
    before, after = CutAccuracies.of_run(ds), CutAccuracies.of_run(archived)
    assert before is not None and after is not None and after.end == before.end
