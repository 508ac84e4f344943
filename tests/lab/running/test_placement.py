from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from lab.toy_runs import Log
from lab.toy_study import experiment
from rankscope.lab.running import threads as thread_runs
from rankscope.lab.running.placement import choose_placement, placed
from rankscope.lab.running.processes import execute
from rankscope.lab.running.run_key import RunKey
from rankscope.lab.running.stored_run import stored_runs
from rankscope.lab.training.optimizers import AdamW
from rankscope.lab.training.task import Machine, Problem
from rankscope.lab.training.training_run import TrainingRun
from rankscope.tracker import Every

TOY = experiment("smoke")
NET = RunKey("net", experiment=TOY.name)
FAST = next(iter(TOY.runs))


@dataclass(frozen=True)
class Nothing:
    def build(self, machine: Machine, *, seed: int) -> Problem:
        raise RuntimeError(f"on {machine.device}")


TRAINING = TrainingRun(Nothing(), AdamW(rate=0.1), steps=1, batch=1, snapshots=Every(1))


def test_trainings_are_placed_and_stay_what_they_are(tmp_path: Path) -> None:
    mixed = replace(TOY, runs={NET: TRAINING, **TOY.runs})
    machine = Machine("cuda", tmp_path)
    moved = placed(mixed, machine)
    assert moved.runs[NET].machine == machine
    assert moved.runs[FAST] is TOY.runs[FAST]
    before, after = stored_runs(mixed, tmp_path)[0], stored_runs(moved, tmp_path)[0]
    assert before.identity == after.identity


@pytest.mark.parametrize("there", [True, False])
def test_a_gpu_is_used_if_there_is_one(there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: there)
    chosen = choose_placement()
    assert chosen.machine == Machine("cuda" if there else "cpu")
    assert (chosen.execute is execute) == (not there)
    assert choose_placement(device="cpu").machine.device == "cpu"


def test_data_is_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path.parent)
    chosen = choose_placement(device="cpu", data=Path(tmp_path.name))
    assert chosen.machine.data == tmp_path


def test_on_a_gpu_trainings_are_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy runs do not train, so they are executed as without a GPU."""
    threads = []
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr(thread_runs, "execute", lambda runs, **_: threads.extend(runs) or [])
    mixed = replace(TOY, runs={**TOY.runs, NET: TRAINING})
    execute = choose_placement().execute
    ended = execute(stored_runs(mixed, tmp_path), jobs=1, watcher=Log())
    assert [run.title for run in ended] == [
        "slow-decay: fast, rate 2, seed 0",
        "slow-decay: slow, rate 1, seed 0",
    ]
    assert [run.key.network for run in threads] == ["net"]
