from pathlib import Path

import numpy as np
import pytest
import torch

from rankscope import store
from rankscope.lab.papers.boix2023.simulations.full import ALIGNED, FullRun, FullTask


def test_aligned_teacher_has_its_singular_values_and_shared_features() -> None:
    task = FullTask(d=5, tokens=3, samples=10, teacher="aligned")
    K, Q, V, O = task.teacher_weights(torch.Generator().manual_seed(0))  # noqa: E741
    for product in (K @ Q.T, V @ O.T):
        values = torch.linalg.svdvals(product)
        torch.testing.assert_close(values[:3], torch.tensor(ALIGNED, dtype=torch.float64))
        assert values[3] < 1e-14
    # right singular vectors of K-Q are the left ones of V-O: Q^T V is diagonal
    torch.testing.assert_close(Q.T @ V, torch.diag(torch.tensor(ALIGNED, dtype=torch.float64)))


def test_gaussian_teacher_has_logits_of_the_stated_size() -> None:
    task = FullTask(d=30, tokens=20, samples=50, teacher="gaussian")
    generator = torch.Generator().manual_seed(0)
    K, Q, _, _ = task.teacher_weights(generator)
    x, other = torch.randn(2, 4000, 30, generator=generator, dtype=torch.float64)
    assert float(((x @ K) * (other @ Q)).sum(-1).std()) == pytest.approx(0.3, rel=0.1)


def test_run_stores_what_it_followed(tmp_path: Path) -> None:
    task = FullTask(d=4, tokens=3, samples=20, teacher="aligned")
    FullRun(task, -2.0, until=3.0).execute(tmp_path / "run", seed=0, progress=lambda done: None)
    ds = store.open(tmp_path / "run")
    head, start = task.build(0)
    assert ds["singular_values"].dims == ("time", "product", "k")
    assert ds["product"].values.tolist() == ["kq", "vo"]
    at_start = [torch.linalg.svdvals(1e-4 * a @ b.T) for a, b in (start[:2], start[2:])]
    np.testing.assert_allclose(ds["singular_values"][0], torch.stack(at_start), rtol=1e-10)
    assert float(ds["loss"][0]) == pytest.approx(head.loss(1e-2 * start), rel=1e-12)
    assert float(ds["loss"][-1]) < float(ds["loss"][0])
    assert ds.attrs["finished"] and ds.attrs["gradient_evaluations"] > 0
