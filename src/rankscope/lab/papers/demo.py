"""The demonstration: a few runs of both papers with one seed, and five sentences on what they show.

A VGG learns digits and a Transformer Python source code, at two weight decays each. A diagonal
attention head follows gradient flow from three initial scales, beside Algorithm 1.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import xarray as xr
from rich.console import Console

from rankscope.lab.catalogue import load_study
from rankscope.lab.commands import make_report, run_studies, say, show
from rankscope.lab.experiment import Scale, Study, select_runs
from rankscope.lab.judging.available_runs import AvailableRuns
from rankscope.lab.judging.selected_runs import Runs, all_runs
from rankscope.lab.papers.boix2023.stages import flows_of, stages_in_flows
from rankscope.lab.running.run_key import RunKey

HEAD = "teacher-1"
NOTE = "Small networks; the marks of the papers' size are in results/."
RUNS: dict[str, dict[str, tuple[RunKey, ...]]] = {
    "yunis2024": {
        "yunis2024/lm": (RunKey("lm", {"decay": 0.1}), RunKey("lm", {"decay": 10.0})),
        "yunis2024/vgg": (RunKey("vgg", {"decay": 1e-4}), RunKey("vgg", {"decay": 1e-3})),
    },
    "boix2023": {
        "boix2023/toy-diag": (
            RunKey(HEAD, {"log10_alpha": -300.0}),
            RunKey(HEAD, {"log10_alpha": -32.0}),
            RunKey(HEAD, {"log10_alpha": -8.0}),
            RunKey(HEAD, kind="algorithm"),
        )
    },
}


def demo(out: Path, *, command: str = "rankscope demo", jobs: int | None = None) -> bool:
    """Run the demonstration in `out`; write its report to `out`/demo and print what it shows."""
    studies, folder = demo_studies("small"), out / "demo"
    succeeded = run_studies(studies, out, jobs=jobs)
    report = make_report(studies, out, folder, command=command)
    seen = (*(line for study in report.studies for line in observations(study.runs)), NOTE)
    for line in seen:
        say(Console(), f"• {line}")
    show(replace(report, seen=seen), folder)
    return succeeded and not report.faults


def demo_studies(scale: Scale) -> tuple[Study, ...]:
    """Return the parts of both papers' studies that the demonstration runs."""
    return tuple(
        study.restrict(
            select_runs(experiment, keys[experiment.name], seeds=(0,))
            for experiment in study.experiments
            if experiment.name in keys
        )
        for study, keys in ((load_study(name, scale), keys) for name, keys in RUNS.items())
    )


def observations(available: AvailableRuns) -> Iterator[str]:
    """Yield a sentence with numbers for each thing that the demonstration's runs show."""
    runs, _ = available.select(all_runs)
    for network, title in (("vgg", "VGG"), ("lm", "Transformer")):
        if by_decay := runs.of(network).by("decay"):
            yield from _ranks(title, {decay: seeds[0] for decay, seeds in by_decay.items()})
    if runs.of(HEAD):
        yield from _stages(runs)


def _ranks(title: str, by_decay: dict[float, xr.Dataset]) -> Iterator[str]:
    """Yield how many ranks fell, and how much further with more weight decay."""
    falls = {decay: _falls(ds) for decay, ds in by_decay.items()}
    (low, base), *_, (high, most) = falls.items()
    yield (
        f"The effective rank of {int((base > 0).sum())} of the {title}'s {len(base)} weight "
        f"matrices fell, in the median by {np.median(base):.0%} of full rank."
    )
    further = float(np.median(most) / np.median(base))
    yield f"With {high / low:g} times the weight decay it fell {further:.1f} times as far."


def _falls(ds: xr.Dataset) -> np.ndarray:
    """Fall of the normalised effective rank of every matrix with 2 values or more."""
    whole = ds[["singular_values"]].isel(step=[0, -1]).rankscope.whole()
    wide = np.minimum(whole["m"].to_numpy(), whole["n"].to_numpy()) > 1
    ranks = whole.isel(matrix=np.flatnonzero(wide)).rankscope.normalized_effective_rank()
    falls: np.ndarray = (ranks[0] - ranks[1]).to_numpy()
    return falls


def _stages(runs: Runs) -> Iterator[str]:
    """Yield how order and times of the toy head's resolved stages compare with Algorithm 1."""
    algorithm = runs.of(HEAD).kind("algorithm").only[0]
    flows = flows_of(runs, HEAD, 0)
    smallest = min(flows)
    stages = [
        stage for stage in stages_in_flows(algorithm, {smallest: flows[smallest]}) if stage.resolved
    ]
    if not stages:
        return
    times = [stage.time for stage in stages]
    order = "in the order" if times == sorted(times) else "not in the order"
    error = max(abs(stage.error) for stage in stages)
    yield (
        f"From alpha = 1e{smallest:g}, {len(stages)} clearly separated stages of the toy attention "
        f"head came {order} that Algorithm 1 predicts, within {error:.1%} of its times."
    )
