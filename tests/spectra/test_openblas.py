"""The second OpenBLAS computes as torch does, and leaves the process as it is."""

import os
import threading

import numpy as np
import pytest
import torch
from torch import Tensor

from rankscope.spectra import fastest
from rankscope.spectra.engine import Torch
from rankscope.spectra.openblas import AVX512, OpenBlas, load_openblas


@pytest.fixture(params=[set(), AVX512], ids=["plain", "avx512"])
def openblas(request) -> OpenBlas:
    if not request.param <= fastest._processor():
        pytest.skip("the processor has no AVX-512")
    loaded = load_openblas(request.param)
    if loaded is None:
        pytest.skip("NumPy has no OpenBLAS of its own here")
    return loaded


def matrices(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(*shape, generator=generator).to(dtype)


@pytest.mark.parametrize("shape", [(3, 40, 150), (1, 300, 2100), (2, 1, 9), (1, 7, 0), (2, 129, 7)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_gram_matrices_agree(openblas, shape, dtype) -> None:
    W = matrices(*shape, dtype=dtype)
    exact = W.double() @ W.double().mT
    for engine in (openblas, Torch()):
        for same in (W, W.mT.contiguous().mT, W.repeat_interleave(2, -1)[..., ::2]):
            G = engine.gram(same)
            torch.testing.assert_close(G.tril(), exact.tril(), rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("m", [0, 1, 2, 33, 200])
def test_eigenvalues_agree(openblas, m) -> None:
    W = matrices(2, m, 250) * torch.logspace(0, -4, m)[:, None]
    G = openblas.gram(W)
    before = G.clone()
    expected, _ = Torch().eigenvectors(G)
    values, Q = openblas.eigenvectors(G)
    scale = float(expected.max()) if m else 1.0
    torch.testing.assert_close(values, expected, rtol=0, atol=1e-13 * scale)
    torch.testing.assert_close(openblas.eigenvalues(G), expected, rtol=0, atol=1e-13 * scale)
    full = G.tril() + G.tril(-1).mT
    torch.testing.assert_close(full @ Q, Q * values[:, None], rtol=0, atol=1e-12 * scale)
    assert torch.equal(G, before)


def test_values_that_are_not_numbers_raise_or_come_back(openblas) -> None:
    try:
        values = openblas.eigenvalues(torch.full((1, 5, 5), torch.nan, dtype=torch.float64))
    except torch.linalg.LinAlgError:
        return
    assert values.isnan().any()


def test_the_process_stays_as_it_is(openblas) -> None:
    environment, threads = dict(os.environ), torch.get_num_threads()
    running = threading.active_count(), len(os.listdir("/proc/self/task"))
    a = np.linspace(0, 1, 90_000).reshape(300, 300)
    before, state = a @ a, np.random.get_state()[1].copy()
    openblas.eigenvalues(openblas.gram(matrices(2, 300, 700)))
    assert load_openblas(set()) is not None
    assert np.array_equal(a @ a, before) and np.array_equal(np.random.get_state()[1], state)
    assert (threading.active_count(), len(os.listdir("/proc/self/task"))) == running
    assert dict(os.environ) == environment and torch.get_num_threads() == threads


def test_threads_solve_at_the_same_time(openblas) -> None:
    W = matrices(1, 150, 400)
    expected = openblas.eigenvalues(openblas.gram(W))
    results: list[Tensor] = []
    workers = [
        threading.Thread(target=lambda: results.append(openblas.eigenvalues(openblas.gram(W))))
        for _ in range(8)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(results) == 8 and all(torch.equal(values, expected) for values in results)


def test_a_library_that_computes_wrongly_is_refused(monkeypatch) -> None:
    monkeypatch.setattr(OpenBlas, "eigenvalues", lambda self, G: Torch().eigenvalues(2 * G))
    assert load_openblas(set()) is None


def test_without_a_library_there_is_no_engine(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(np, "__file__", str(tmp_path / "numpy" / "__init__.py"))
    assert load_openblas(set()) is None
