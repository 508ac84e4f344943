"""Two processes that execute toy runs together, for tests.

python -m lab.toy_group FOLDER     prints their exit codes; what each says is in SCENE/said-RANK
"""

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

from lab.toy_runs import Decay, Log
from lab.training.toy_together import RUN, PlainCloudTask, exit_codes, forked
from rankscope.lab.running.placement import trainings_first
from rankscope.lab.running.processes import Ended
from rankscope.lab.running.run_key import RunKey
from rankscope.lab.running.stored_run import StoredRun
from rankscope.lab.running.torchrun import execute, follow
from rankscope.lab.training.task import Machine

SCENES = ("whole", "0", "1")


class Teller(Log):
    """Tells at once, since the process may end at once."""

    def ended(self, ended: Ended) -> None:
        print(ended.title, "failed" if ended.failure else "ended", flush=True)


def runs(folder: Path) -> list[StoredRun]:
    """Of a scene called 0 or 1, the last run but one breaks in that process."""
    if folder.name == "whole":
        refused = {"odd": replace(RUN, accumulate=5), "large": replace(RUN, batch=80)}
        declared = {"flow": Decay(), **refused, "good": RUN}
    else:
        breaks = replace(RUN, task=PlainCloudTask(breaks=int(folder.name)))
        declared = {"breaks": breaks, "never": RUN}
    return [StoredRun(RunKey(name), 0, run, folder / name) for name, run in declared.items()]


def take_part(rank: int, folder: Path) -> None:
    if rank == 0:
        train = partial(execute, machine=Machine())
        trainings_first(train, runs(folder), jobs=1, watcher=Teller())
    else:
        assert follow(Machine())


if __name__ == "__main__":
    for scene in SCENES:
        folder = Path(sys.argv[1]) / scene
        folder.mkdir()
        print(*exit_codes([forked(rank, folder, take_part) for rank in range(2)]), flush=True)
