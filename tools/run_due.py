"""Run what the archive lacks of experiments at scale paper, or list it.

    python tools/run_due.py                                  # list all that is due, with its time
    python tools/run_due.py yunis2024/vgg --seed 5 --data FOLDER --out runs
    rankscope results keep runs

`rankscope run` knows the runs in its folder alone and would repeat those of the archive. Seeds are
the declared ones and those of which the archive has a run already, as far as a claim counts them;
--seed names others. An interrupted run continues. Nothing is judged.
"""

import argparse
import sys
from pathlib import Path

from rich.console import Console

from rankscope.lab.archive.due import due_runs, expected_seconds
from rankscope.lab.catalogue import load_studies
from rankscope.lab.commands import check_folder, name_failures, run_missing
from rankscope.lab.reporting.numbers import duration
from rankscope.lab.running.placement import choose_placement, placed
from rankscope.lab.running.stored_run import StoredRun


def main(given: argparse.Namespace) -> int:
    known = {e.name: (study, e) for study in load_studies("paper") for e in study.experiments}
    if unknown := [name for name in given.experiments if name not in known]:
        raise SystemExit(f"no experiment {', '.join(unknown)}; there are: {', '.join(known)}")
    if not given.experiments:
        for study, experiment in known.values():
            runs = due_runs(study, experiment, given.results, given.out, seeds=given.seed)
            seconds = expected_seconds(experiment, given.results, runs)
            if runs:
                print(f"{experiment.name}: {duration(seconds)}, {experiment.expected_on}")
            for run in runs:
                print(f"    {run.title}")
        return 0
    check_folder(given.out)
    placement = choose_placement(device=given.device, data=given.data)
    wanted: list[StoredRun] = []
    for study, experiment in (known[name] for name in given.experiments):
        machine = placed(experiment, placement.machine)
        wanted += due_runs(study, machine, given.results, given.out, seeds=given.seed)
    talk = Console(stderr=True)
    ended = run_missing(wanted, placement, jobs=given.jobs, talk=talk)
    name_failures(wanted, ended, talk)
    return int(any(run.failure for run in ended))


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("experiments", nargs="*", help="none: list what is due")
    parser.add_argument("--seed", type=int, action="append", default=[])
    parser.add_argument("--results", type=Path, default=Path("results"), help="the archive")
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--data", type=Path)
    parser.add_argument("--device", choices=("cpu", "cuda"))
    parser.add_argument("--jobs", type=int, help="runs at the same time; five on a GPU")
    return parser


if __name__ == "__main__":
    sys.exit(main(arguments().parse_args()))
