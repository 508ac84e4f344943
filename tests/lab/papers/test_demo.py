import numpy as np
import xarray as xr

from rankscope.lab.catalogue import load_study
from rankscope.lab.judging.available_runs import AvailableRuns
from rankscope.lab.papers.demo import RUNS, demo_studies, observations
from rankscope.lab.running.run_key import RunKey


def test_the_runs_of_the_demo_are_runs_of_the_papers() -> None:
    for part in demo_studies("small"):
        study = load_study(part.name, "small")
        declared = {experiment.name: experiment for experiment in study.experiments}
        assert {experiment.name for experiment in part.experiments} == set(RUNS[part.name])
        for experiment in part.experiments:
            assert experiment.seeds == (0,)
            assert experiment.runs.items() <= declared[experiment.name].runs.items()


def test_the_demo_draws_what_it_can_and_its_highlights() -> None:
    for part in demo_studies("small"):
        names = {figure.name for figure in part.figures}
        assert set(part.highlights) <= names
        assert not names & {"grokking", "samples", "figure-12"}


def spectra(last: list[float]) -> xr.Dataset:
    """Two matrices of two equal values at the start; `last` is the second value at the end."""
    values = np.ones((2, 2, 2))
    values[1, :, 1] = last
    return xr.Dataset(
        {"singular_values": (("step", "matrix", "k"), values)},
        coords={
            "step": [0, 1],
            "matrix": ["a", "b"],
            "m": ("matrix", [2, 2]),
            "n": ("matrix", [2, 2]),
            "part_of": ("matrix", ["", ""]),
        },
    )


def test_sentences_count_falling_ranks_and_compare_decays() -> None:
    """A rank of 2 falls to 1 of 2 where the second value vanishes: by half."""
    runs = {
        RunKey("vgg", {"decay": 0.001}): {0: spectra([0.0, 1.0])},
        RunKey("vgg", {"decay": 0.01}): {0: spectra([0.0, 0.0])},
    }
    fell, further = observations(AvailableRuns(runs))
    assert "effective rank of 1 of the VGG's 2 weight matrices fell, in the median by 25%" in fell
    assert further == "With 10 times the weight decay it fell 2.0 times as far."
