"""Spectra of the changes that an adapter makes, exact by QR of each module's factors."""

from collections.abc import Mapping

from rankscope.lora.adapter import Adapter
from rankscope.lora.factors import Core, core
from rankscope.lora.spectrum import Spectrum
from rankscope.spectra.workers import spread


def cores_of(adapter: Adapter) -> dict[str, Core]:
    """Decompose the product of every module; the factors themselves do not stay in memory."""
    modules = list(adapter.pairs)
    results = spread(
        lambda m: core(adapter.product(m)),
        modules,
        cost=lambda m: adapter.pairs[m].rank ** 2 * sum(adapter.pairs[m].shape),
    )
    return dict(zip(modules, results, strict=True))


def spectra_of_cores(adapter: Adapter, cores: Mapping[str, Core]) -> dict[str, Spectrum]:
    """Return the spectrum of each module's change, from its decomposed product."""
    pairs = adapter.pairs
    return {
        m: Spectrum(c.S, *pairs[m].shape, kind="embedding" if pairs[m].is_embedding else "linear")
        for m, c in cores.items()
    }


def adapter_spectra(adapter: Adapter) -> dict[str, Spectrum]:
    """Return the spectrum of the change of each module."""
    return spectra_of_cores(adapter, cores_of(adapter))
