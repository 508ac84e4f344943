import math
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from lab.data.parquet import png, write_images
from lab.papers.yunis2024.closed_form_runs import flat, training_run
from lab.papers.yunis2024.evidence.swept_runs import swept
from rankscope.lab.data.images import MNIST
from rankscope.lab.data.splits import split
from rankscope.lab.papers.yunis2024 import lm, unet
from rankscope.lab.papers.yunis2024.evidence.losses import (
    Bigram,
    denoising_loss,
    linear_denoisers,
    lm_course,
    token_counts,
    unet_costs,
)
from rankscope.lab.tasks.diffusion import sigmoid_betas


def test_losses_of_halves() -> None:
    losses = {
        "full_loss": [0.9, 0.8, 0.2, 0.4],
        "top_loss": [9, 9, 0.3, 0.7],
        "bottom_loss": [1.9, 1.8, 1.2, 1.4],
    }
    ds = training_run({"fc": flat(10, [10] * 4)}, scalars=losses, steps=[0, 1, 5, 9])
    means = [row[2] for row in unet_costs(swept("unet", {0.0: ds})).rows]
    assert means == pytest.approx([0.3, 0.5, 1.3])  # over the second half
    third = lm_course(swept("lm", {0.1: ds})).rows[2]
    assert third == pytest.approx((5, 0.1, 0.2, 0.3))


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of toy data: random words and random images."""
    monkeypatch.setenv("RANKSCOPE_CACHE", str(tmp_path / "cache"))
    source = np.random.default_rng(0)
    text = tmp_path / "Salesforce/wikitext/wikitext-2-v1"
    text.mkdir(parents=True)
    for part, length in {"train": 9000, "validation": 5000}.items():
        words = "".join(f" {word}" for word in source.integers(0, 50, length))
        pq.write_table(pa.table({"text": [words]}), text / f"{part}-00000-of-00001.parquet")
    images = source.integers(0, 256, (20, 28, 28), dtype=np.uint8)
    name = f"{MNIST.repo}/{MNIST.config}/{MNIST.split}-00000-of-00001.parquet"
    write_images(tmp_path / name, [png(image) for image in images], [0] * len(images))
    return tmp_path


def test_tokens_of_a_toy_text(data: Path) -> None:
    (_, entropy, none), (_, training, held_out) = token_counts(data).rows
    tokens = lm.PAPER.task.text.build(folder=data).train.tolist()
    shares = [count / len(tokens) for count in Counter(tokens).values()]
    assert none is None and entropy == pytest.approx(-sum(p * math.log(p) for p in shares))
    # Words are drawn independently: pairs tell no more of new text than frequencies do.
    assert training < entropy < held_out < 2 * entropy


def test_denoisers_of_toy_images(data: Path) -> None:
    (_, by_pixel), (_, linear) = linear_denoisers(data).rows
    images = MNIST.build(data).inputs
    train = images[split(len(images), seed=0)[0]].double().flatten(1)
    scaled = (train - train.mean()) / train.std(correction=0)
    task = unet.PAPER.task
    alphas = (1 - sigmoid_betas(task.steps, *task.betas)).cumprod(0)
    signal = alphas[:, None] * scaled.var(0)
    expected = (signal / (signal + 1 - alphas[:, None])).mean()
    assert by_pixel == pytest.approx(float(expected), rel=1e-3)
    assert linear < by_pixel


def test_chances_of_the_tokens_after_any_other_sum_to_one() -> None:
    text = np.random.default_rng(0).integers(0, 6, 50)
    bigram = Bigram.fit(text, 8)  # 6 and 7 never occur
    for earlier in range(8):
        chances = [math.exp(-bigram.loss(np.array([[earlier, later]]))) for later in range(8)]
        assert sum(chances) == pytest.approx(1)


def test_counts_of_pairs_as_written_out() -> None:
    bigram = Bigram.fit(np.array([0, 1, 0, 1, 0, 2]), 3)  # 01 01 02, 10 10
    # 0 is followed twice by 1, once by 2; contexts: 0 after one token, 1 after one, 2 after one
    chance = (2 - 0.75) / 3 + 0.75 * 2 / 3 / 3
    assert bigram.loss(np.array([[0, 1]])) == pytest.approx(-math.log(chance))


def test_the_loss_of_a_linear_guess_is_that_of_least_squares() -> None:
    source = np.random.default_rng(0)
    alphas, variances = np.array([0.9, 0.3]), np.array([2.0, 0.1])
    missed = []
    for a in alphas:
        x, noise = source.standard_normal((2, 200_000, 2))
        noisy = math.sqrt(a) * np.sqrt(variances) * x + math.sqrt(1 - a) * noise
        guess = noisy * (noisy * noise).sum(0) / (noisy**2).sum(0)
        missed.append(np.mean((noise - guess) ** 2))
    loss = denoising_loss(torch.from_numpy(variances), torch.from_numpy(alphas))
    assert loss == pytest.approx(np.mean(missed), rel=0.01)
