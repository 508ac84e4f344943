"""Stored trainings of our findings made by hand: heads that fall in rank, networks that grok."""

from itertools import product
from typing import Any

import numpy as np
import xarray as xr

from lab.papers.yunis2024.closed_form_runs import training_run
from rankscope.lab.papers.findings.claims.clock import SCALES
from rankscope.lab.running.run_key import RunKey
from rankscope.lab.tasks.head_changes import PARTS, number_name

VIT_STEPS = np.arange(0, 200, 20)
# A ratio at the 5th snapshot of 9, where half of the fall of FALL is done.
FALL = np.array([8.0, 10.0, 9.0, 7.0, 5.5, 3.0, 2.0, 4.0, 6.0])
NEVER = np.linspace(1.0, 9.0, 9)


def vit(*heads: tuple[float, np.ndarray], **attrs: Any) -> xr.Dataset:
    """Heads by ratio of the parts at the 5th snapshot after the start, and course of the rank."""
    count = len(VIT_STEPS)
    largest = np.zeros((count, 2 * len(heads)))
    variables: dict[str, Any] = {}
    for head, (ratio, rank) in enumerate(heads):
        grown = ratio * 10.0 ** (np.arange(count) - 5)
        change = np.concatenate([[0.0], np.sqrt(rank) * 2.0])
        largest[1:, 2 * head] = 2.0
        values = np.stack(
            [np.where(VIT_STEPS > 0, 3.0, 0), np.where(VIT_STEPS > 0, 3 * grown, 0), change]
        )
        for part, course in zip(PARTS, values, strict=True):
            variables[number_name(part, head)] = ("step", course)
    names = [f"blocks.0.attention.h{h}.{kind}" for h in range(len(heads)) for kind in ("kq", "vo")]
    spectra = ("step", "product", "k"), largest[..., None]
    return xr.Dataset(
        {
            "product_singular_values": spectra,
            "product_change_singular_values": spectra,
            "training_loss": ("step", np.linspace(1.0, 0.5, count)),
            **variables,
        },
        coords={
            "step": VIT_STEPS,
            "product": names,
            "product_kind": ("product", ["kq", "vo"] * len(heads)),
            "product_r": ("product", [16] * len(names)),
        },
        attrs={"constant_loss": 1.0, "diverged_at": None, **attrs},
    )


def vit_keys() -> list[RunKey]:
    """Return the keys of the four scales."""
    return [RunKey("vit", {"scale": scale}, experiment="findings/clock") for scale in SCALES]


GROK_STEPS = [0, 1, 10, 100, 1000, 10_000]
DECAYS, SHARES, SEEDS = (0.3, 1.0, 3.0), (0.25, 0.3, 0.4), (3, 4, 5)


def grok(
    jump: int = 3, rank: int = 500, size: float = 1.0, best: float = 1.0, **attrs: Any
) -> xr.Dataset:
    """A run whose accuracy goes from 0 to `best` at snapshot `jump`, and whose rank is constant.

    Its one matrix has `rank` of 1000 values, all equal to `size`: NER is rank / 1000.
    """
    accuracy = np.where(np.arange(len(GROK_STEPS)) < jump, 0.0, best)
    values = size * (np.arange(1000) < rank) * np.ones((len(GROK_STEPS), 1))
    scalars = {"validation_accuracy": accuracy.tolist()}
    return training_run({"w": values}, steps=GROK_STEPS, scalars=scalars, **attrs)


def grok_keys() -> list[RunKey]:
    """Return the keys of the nine settings."""
    return [
        RunKey("grok", {"decay": decay, "share": share}, experiment="findings/grokking-rank")
        for decay, share in product(DECAYS, SHARES)
    ]


# Crossings in two places a decade apart; NER 0.49 to 0.51, norms 1 to 3 times sqrt(rank).
GROKKED = (grok(3, 490, 1.0), grok(4, 500, 3.0), grok(3, 510, 2.0))
