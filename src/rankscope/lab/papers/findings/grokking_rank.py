"""Grokking at nine settings: the step of the jump varies, the rank there does not (our own, N3).

The network, task and optimizer of yunis2024/grok, trained at three weight decays on three shares of
the table with three seeds. N3 asks for the step at which half of the held-out sums are right, and
for the normalised effective rank (NER) there, mean over matrices. The steps should differ widely
and the ranks hardly. The rival measure is the total norm of all weight matrices.

    rankscope run findings/grokking-rank --scale small
    rankscope run findings/grokking-rank --scale paper

`paper` needs no data: p = 113, decays 0.3, 1 and 3, shares 0.25, 0.3 and 0.4, seeds 3, 4 and 5.
Seeds 0 to 2 are those of yunis2024/grok and take no part. What differs from that experiment:

- Steps. At decay 1 and share 0.3 those seeds cross near steps 7,800, 10,500 and 16,600. The time
  goes with 1 / decay, and a smaller share takes longer. So decay 3 has 40,000 steps, decay 1 has
  60,000, and decay 0.3 has 120,000. That leaves room for the slow combinations to cross.
- Stop. A run ends 1,000 steps or more after the crossing. N3 reads nothing after it.
- Snapshots. 64 in each factor of ten, 3.7% of the step apart, so that early and late crossings are
  read equally well.

`small` has p = 59 and the narrower network, rate and doubled decays of yunis2024/grok at `small`.
Its shares are 0.4, 0.42 and 0.45: with 0.36 a run had not crossed after 10,000 steps, and the share
has to stay below half, since a + b = b + a alone answers as large a share of the unseen pairs. Its
decays are 1, 1.7 and 3, since 0.3 would take most of an hour. Runs have at most 6,000, 4,000 and
3,000 steps, and end 200 after the crossing. Snapshots are twice as far apart.

`smoke` has p = 11, two settings, and 200 steps. Nothing is grokked.

Cost: about 20 minutes on one H200 at `paper` (estimated), 15 minutes on two cores at `small`, 5 s
at `smoke`.

Expected at `small`: 25 of 27 runs cross, between steps 180 and 4,000. N3 fails: mean NER there is
0.61 to 0.65 at decays 1 and 1.7, but for one run, and 0.16 to 0.42 at decay 3.
"""

from collections.abc import Mapping
from dataclasses import replace

from rankscope.lab.archive.compaction import BITS, OVERLAPS, CoarseTails, Compaction
from rankscope.lab.experiment import Experiment, Scale
from rankscope.lab.papers.yunis2024 import grok
from rankscope.lab.running.run_key import RunKey
from rankscope.lab.training.stopping import Generalised
from rankscope.lab.training.sweep import trainings
from rankscope.lab.training.training_run import TrainingRun
from rankscope.tracker import LogSpaced

SEEDS = (3, 4, 5)
SHARES: Mapping[Scale, tuple[float, ...]] = {
    "paper": (0.25, 0.3, 0.4),
    "small": (0.4, 0.42, 0.45),
    "smoke": (0.4,),
}
# Steps by decay; the slowest first.
STEPS: Mapping[Scale, Mapping[float, int]] = {
    "paper": {0.3: 120_000, 1.0: 60_000, 3.0: 40_000},
    "small": {1.0: 6_000, 1.7: 4_000, 3.0: 3_000},
    "smoke": {1.0: 200, 3.0: 200},
}
SNAPSHOTS = LogSpaced(64)
PAPER = replace(grok.PAPER, snapshots=SNAPSHOTS, stop=Generalised(accuracy=0.5, steps=1000))
SMALL = replace(grok.SMALL, snapshots=LogSpaced(32), stop=Generalised(accuracy=0.5, steps=200))
SMOKE = replace(grok.SMOKE, snapshots=LogSpaced(4))
SECONDS: dict[Scale, int | None] = {"paper": 1200, "small": 900, "smoke": 5}
# N3 reads ranks and norms at the crossing, so spectra have every snapshot, and no overlaps.
COMPACTION = CoarseTails(
    Compaction(bits={**BITS, "singular_values": 7}, absent=OVERLAPS),
    leading={"singular_values": 32},
)


def experiment(scale: Scale) -> Experiment:
    """Return the experiment at one scale."""
    base = {"paper": PAPER, "small": SMALL, "smoke": SMOKE}[scale]
    runs = {
        RunKey("grok", {"decay": decay, "share": share}): _run(base, decay, share, steps)
        for decay, steps in STEPS[scale].items()
        for share in SHARES[scale]
    }
    declared = trainings(
        "findings/grokking-rank", scale, runs, seconds=SECONDS, compaction=COMPACTION
    )
    return declared if scale == "smoke" else replace(declared, seeds=SEEDS)


def _run(base: TrainingRun, decay: float, share: float, steps: int) -> TrainingRun:
    """Return the run at a decay that stands for the paper's, on a share of the table."""
    task = replace(base.task, train_share=share)  # type: ignore[type-var]
    acting = decay if base is PAPER else grok.ACTING(decay)
    run = replace(base, task=task, batch=task.samples, steps=steps)  # type: ignore[attr-defined]
    return run.with_decay(acting, paper=decay)
