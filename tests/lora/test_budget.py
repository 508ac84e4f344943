"""Ranks by budget against uniform ranks and PEFT's energy threshold, on real changes."""

import os
from pathlib import Path

import pytest
import torch

from lora.tuned_cases import gpt2, saved
from rankscope.lora import Spectrum, changes, choose_ranks, open_adapter
from rankscope.lora.factors import core
from rankscope.lora.ranks import parameters, total_squared_error

DATA = Path(os.environ.get("RANKSCOPE_DATA", "")) / "checkpoints"


def adapter_spectra(path: Path) -> dict[str, Spectrum]:
    adapter = open_adapter(path)
    return {m: Spectrum(core(adapter.product(m)).S, *p.shape) for m, p in adapter.pairs.items()}


def peft_ranks(spectra: dict[str, Spectrum], threshold: float) -> dict[str, int]:
    """Ranks that PEFT chooses when it converts a change by a share of its energy."""
    conversion = pytest.importorskip("peft.tuners.lora.conversion", exc_type=ImportError)
    return {n: conversion._find_cutoff_index(s.S, threshold) for n, s in spectra.items()}


def real_changes(name: str, folder: Path) -> dict[str, Spectrum]:
    if name == "a fine-tuned GPT-2":
        pytest.importorskip("transformers")
        base, tuned = gpt2()
        paths = saved(folder / "base", base), saved(folder / "tuned", tuned)
        spectra = changes(*paths, leading=None)
        return {name: s for name, s in spectra.items() if s.kind == "linear"}
    if not DATA.exists():
        pytest.skip("needs RANKSCOPE_DATA with its checkpoints")
    if name == "an adapter":
        return adapter_spectra(DATA / "gpt2-lora-emotion")
    series = DATA / "mnist-diffusion-cnn"
    first, last = (series / f"epoch_{epoch}.safetensors" for epoch in ("0000", "1999"))
    return changes(first, last, leading=None)


@pytest.mark.parametrize("name", ["a series of checkpoints", "an adapter", "a fine-tuned GPT-2"])
def test_a_budget_beats_uniform_ranks_and_the_energy_threshold(name: str, tmp_path: Path) -> None:
    spectra = real_changes(name, tmp_path)
    assert len(spectra) >= 7
    most = max(len(s.S) for s in spectra.values())
    others = [{n: min(r, len(s.S)) for n, s in spectra.items()} for r in (1, most // 8, most // 4)]
    others += [peft_ranks(spectra, threshold) for threshold in (0.5, 0.8, 0.95)]
    for ranks in others:
        size = parameters(spectra, ranks)
        chosen = choose_ranks(spectra, budget=size)
        assert parameters(spectra, chosen) <= size
        error = total_squared_error(spectra, chosen)
        assert error <= total_squared_error(spectra, ranks), ranks
        if chosen != ranks:
            assert error < total_squared_error(spectra, ranks)
    assert sum(choose_ranks(spectra, budget=parameters(spectra, r)) != r for r in others) >= 4


def test_spectra_of_a_checkpoint_are_those_of_the_differences(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    base, tuned = gpt2()
    paths = saved(tmp_path / "base", base), saved(tmp_path / "tuned", tuned)
    before, after = dict(base.named_parameters()), dict(tuned.named_parameters())
    whole, leading = changes(*paths, leading=None), changes(*paths, leading=6)
    assert whole.keys() == leading.keys()
    for name, spectrum in whole.items():
        dW = (after[f"{name}.weight"] - before[f"{name}.weight"]).detach().double()
        S = torch.linalg.svdvals(dW)
        torch.testing.assert_close(spectrum.S, S, rtol=1e-6, atol=1e-9)
        torch.testing.assert_close(leading[name].S, S[:6], rtol=1e-6, atol=0)
        assert leading[name].rest == pytest.approx(float(S[6:].norm()), rel=1e-5)
