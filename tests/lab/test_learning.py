"""Learning is real at scale small: one run of each network, minutes in all."""

from pathlib import Path

import pytest
import xarray as xr

from rankscope import store
from rankscope.lab.catalogue import load
from rankscope.lab.running.run_key import Run

pytestmark = pytest.mark.slow


def trained(name: str, tmp_path: Path) -> xr.Dataset:
    (experiment,) = load(f"yunis2024/{name.partition('/')[0]}", "small").experiments
    runs: dict[str, Run] = {key.name: run for key, run in experiment.runs.items()}
    run = runs[name]
    run.execute(tmp_path / "run", seed=0, progress=lambda fraction, note="": None)
    return store.open(tmp_path / "run").load()


@pytest.mark.parametrize("name", ["vgg/decay-0.0001", "mlp/true-labels"])
def test_digits_are_told_apart(name: str, tmp_path: Path) -> None:
    assert trained(name, tmp_path)["validation_accuracy"][-1] > 0.9


def test_random_labels_are_learnt_by_heart(tmp_path: Path) -> None:
    ds = trained("mlp/random-labels", tmp_path)
    assert ds["training_loss"][-1] < 0.01 * ds.attrs["constant_loss"]
    assert ds["validation_accuracy"][-1] < 0.2


def test_text_is_predicted_beyond_its_letters(tmp_path: Path) -> None:
    ds = trained("lm/decay-0.1", tmp_path)
    assert ds["validation_loss"][-1] < 0.75 * ds.attrs["constant_loss"]  # the unigram entropy


def test_speech_is_understood(tmp_path: Path) -> None:
    assert trained("lstm/decay-0.1", tmp_path)["validation_error_rate"][-1] < 0.3


def test_noise_is_found_in_images(tmp_path: Path) -> None:
    ds = trained("unet/decay-0", tmp_path)
    assert ds["validation_loss"][-1] < 0.25 * ds.attrs["constant_loss"]
    assert ds.attrs["samples"]["shape"][1:] == [12, 12]


def test_addition_is_grokked_long_after_it_was_memorised(tmp_path: Path) -> None:
    ds = trained("grok/decay-1", tmp_path)
    known = ds["step"][(ds["training_accuracy"] > 0.99).argmax("step")]
    grokked = ds["step"][(ds["validation_accuracy"] > 0.95).argmax("step")]
    assert ds["validation_accuracy"][-1] > 0.95 and grokked > 1.3 * known
