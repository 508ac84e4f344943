"""Y6, Y7: losses of the halves of each SVD, and of predictors without a network."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float64
from torch import Tensor

from rankscope.lab.data.images import MNIST
from rankscope.lab.data.splits import split
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.judging.verdict import Table
from rankscope.lab.papers.yunis2024 import lm, unet
from rankscope.lab.papers.yunis2024.claims.truncation import quotient, second_half
from rankscope.lab.papers.yunis2024.evidence.runs import base_run, sweeps_of
from rankscope.lab.papers.yunis2024.runs import BASE, with_full_loss
from rankscope.lab.reporting.evidence import Row
from rankscope.lab.tasks.classification import channel_moments
from rankscope.lab.tasks.diffusion import Diffusion, sigmoid_betas
from rankscope.lab.tasks.language import LanguageModelling, spread, windows

DISCOUNT = 0.75  # of absolute discounting, the usual choice
UNSEEN = 0.5  # added to the number of contexts of each token


def unet_costs(runs: Runs) -> Table:
    """UNet: losses of the network and its halves, by decay; an output of 0 has a loss of 1."""

    def late(ds: xr.Dataset, loss: str) -> float:
        return float(second_half(ds)[loss].mean())

    return sweeps_of(runs, "unet").table(
        "means over the second half of snapshots",
        {
            "network": lambda ds: late(ds, "full_loss"),
            "top half": lambda ds: late(ds, "top_loss"),
            "bottom half": lambda ds: late(ds, "bottom_loss"),
        },
    )


def lm_course(runs: Runs) -> Table:
    """Transformer at the base decay: q and losses over time."""
    ds = with_full_loss(base_run(runs, "lm"))
    values = (ds["full_loss"].values.tolist(), ds["top_loss"].values.tolist())
    rows = tuple(
        (int(step), float(q), full, top)
        for step, q, full, top in zip(ds["step"], quotient(ds), *values, strict=True)
    )
    return Table(("step", "q", "network", "top half"), rows, f"losses at decay {BASE['lm']:g}")


@dataclass(frozen=True)
class Bigram:
    """Kneser-Ney model: counts of token pairs, less a discount that all tokens share.

    A token's part of the discount is in proportion to how many different tokens it follows.
    """

    pairs: np.ndarray  # earlier * vocabulary + later, sorted
    counts: np.ndarray
    vocabulary: int

    @classmethod
    def fit(cls, text: np.ndarray, vocabulary: int) -> "Bigram":
        """Count the pairs of a text."""
        pairs, counts = np.unique(text[:-1] * vocabulary + text[1:], return_counts=True)
        return cls(pairs, counts, vocabulary)

    def loss(self, rows: np.ndarray) -> float:
        """Return the mean cross-entropy, in nats, of (n, length) tokens but the first of rows."""
        V = self.vocabulary
        earlier, later = rows[:, :-1].ravel(), rows[:, 1:].ravel()
        places = np.searchsorted(self.pairs, earlier * V + later).clip(max=len(self.pairs) - 1)
        seen = np.where(self.pairs[places] == earlier * V + later, self.counts[places], 0)
        total = np.bincount(self.pairs // V, self.counts, V)[earlier]
        followers = np.bincount(self.pairs // V, minlength=V)[earlier]
        contexts = np.bincount(self.pairs % V, minlength=V) + UNSEEN
        discounted = np.where(total > 0, DISCOUNT * followers / total.clip(min=1), 1.0)
        shared = discounted * (contexts / contexts.sum())[later]
        return float(-np.log((seen - DISCOUNT).clip(min=0) / total.clip(min=1) + shared).mean())


def token_counts(data: Path) -> Table:
    """Transformer: losses of counts of tokens and of token pairs in WikiText-2."""
    run = lm.PAPER
    assert isinstance(run.task, LanguageModelling)
    tokens, context = run.task.text.build(folder=data), run.task.model.context
    train = tokens.train.numpy().astype(np.int64)
    bigram = Bigram.fit(train, tokens.vocabulary)
    share = np.bincount(train, minlength=tokens.vocabulary) / len(train)
    entropy = float(-(share * np.log(np.where(share > 0, share, 1))).sum())
    evaluated = {
        "training": spread(windows(tokens.train, context), run.evaluation_samples),
        "held-out": spread(windows(tokens.validation, context), run.task.validation_windows),
    }
    losses = [bigram.loss(part.numpy().astype(np.int64)) for part in evaluated.values()]
    rows: tuple[Row, ...] = (
        ("token frequencies (entropy)", entropy, None),
        ("pairs, Kneser-Ney", *losses),
    )
    return Table(("counts of", *(f"{part} windows" for part in evaluated)), rows, "cross-entropy")


def linear_denoisers(data: Path) -> Table:
    """UNet: losses of the best linear guess of the noise on MNIST, by pixel and by image."""
    task = unet.PAPER.task
    assert isinstance(task, Diffusion)
    images = MNIST.build(data).inputs
    train = images[split(len(images), seed=0)[0]]
    mean, deviation = channel_moments(train)
    pixels = ((train.double() - mean) / deviation).flatten(1)
    covariance = torch.cov(pixels.mT)
    alphas = (1 - sigmoid_betas(task.steps, *task.betas)).cumprod(0)
    rows = (
        ("pixel by pixel", denoising_loss(covariance.diagonal(), alphas)),
        ("best linear", denoising_loss(torch.linalg.eigvalsh(covariance), alphas)),
    )
    return Table(("guess of the noise", "loss"), rows, "expected mean squared error")


def denoising_loss(
    variances: Float64[Tensor, " directions"], alphas: Float64[Tensor, " times"]
) -> float:
    """Return the mean squared error of the best linear guess of the noise.

    x_t = sqrt(a) x + sqrt(1 - a) noise. In a direction of variance v the guess misses
    a v / (a v + 1 - a) of the noise's variance, which is 1. The mean is over directions and times.
    """
    signal = alphas[:, None] * variances.clamp(min=0)  # (times, directions)
    return float((signal / (signal + 1 - alphas[:, None])).mean())
