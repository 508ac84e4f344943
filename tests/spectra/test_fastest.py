"""Every processor gets an engine of its own, and all of them give the same numbers."""

import pytest
import torch
from torch import Tensor

from rankscope.spectra import fastest, svd
from rankscope.spectra.engine import Torch
from rankscope.spectra.fastest import SIDE, OnIntel, engine_of
from rankscope.spectra.openblas import OpenBlas, load_openblas


@pytest.fixture
def openblas() -> OpenBlas:
    loaded = load_openblas(fastest._processor())
    if loaded is None:
        pytest.skip("NumPy has no OpenBLAS of its own here")
    return loaded


@pytest.fixture
def choose_again():
    fastest._chosen.cache_clear()
    yield
    fastest._chosen.cache_clear()


def falling(m: int, n: int, decades: int) -> Tensor:
    W = torch.randn(m, n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return (W * torch.logspace(0, -decades, n)).float()


@pytest.mark.parametrize("shape", [(60, 60), (60, 200), (200, 60), (SIDE, 300)], ids=str)
@pytest.mark.parametrize(("decades", "error"), [(0, 1e-12), (2, 1e-12), (3, 1e-11), (7, 1e-11)])
def test_spectra_agree(openblas, monkeypatch, shape, decades, error) -> None:
    W = falling(*shape, decades)
    torchs, *others = (
        decomposed(engine, W, monkeypatch)
        for engine in (Torch(), openblas, OnIntel(openblas, Torch()))
    )
    for other in others:
        torch.testing.assert_close(other.S, torchs.S, rtol=0, atol=error * float(torchs.S[0]))
        overlap = (other.U.mT @ torchs.U).abs().diagonal()
        torch.testing.assert_close(overlap, torch.ones(5, dtype=torch.float64))


def decomposed(engine, W, monkeypatch):
    monkeypatch.setattr(fastest, "_of_cpu", lambda: engine)
    return svd(W, rank=5)


class Named:
    """Engine whose answers all hold its number."""

    def __init__(self, number: float) -> None:
        self.number = number

    def gram(self, W: Tensor) -> Tensor:
        return torch.full((len(W), W.shape[1], W.shape[1]), self.number, dtype=torch.float64)

    def eigenvalues(self, G: Tensor) -> Tensor:
        return torch.full(G.shape[:2], self.number, dtype=torch.float64)

    def eigenvectors(self, G: Tensor) -> tuple[Tensor, Tensor]:
        return self.eigenvalues(G), G


def test_each_library_does_what_it_is_faster_at() -> None:
    openblas, mkl = 1.0, 2.0
    engine = OnIntel(Named(openblas), Named(mkl))
    small, large = (torch.zeros(1, m, m, dtype=torch.float64) for m in (SIDE - 1, SIDE))
    for G in (small, large):
        assert (engine.gram(G) == openblas).all()
        assert (engine.eigenvectors(G)[0] == mkl).all()
    assert (engine.eigenvalues(small) == mkl).all()
    assert (engine.eigenvalues(large) == openblas).all()


@pytest.mark.parametrize(("maker", "kind"), [("GenuineIntel", OnIntel), ("Other", OpenBlas)])
def test_the_maker_of_the_processor_decides(
    openblas, choose_again, monkeypatch, maker, kind
) -> None:
    monkeypatch.setattr(fastest, "_processor", lambda: {maker})
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        assert isinstance(engine_of(torch.zeros(1)), kind)
        torch.set_num_threads(2)
        assert isinstance(engine_of(torch.zeros(1)), Torch)
    finally:
        torch.set_num_threads(threads)


def test_torch_without_mkl_or_numpy_without_openblas_is_enough(choose_again, monkeypatch) -> None:
    for owner, name in ((torch.backends.mkl, "is_available"), (fastest, "load_openblas")):
        fastest._chosen.cache_clear()
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, lambda *_: None)
            assert isinstance(fastest._of_cpu(), Torch)
