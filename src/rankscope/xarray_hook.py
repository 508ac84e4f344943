"""Registration of `ds.rankscope` on xarray Datasets, without importing xarray.

Where xarray is imported already, the accessor is registered at once; otherwise when somebody
imports xarray. `rankscope.accessor` is imported when `ds.rankscope` is used.
"""

import contextlib
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def register_accessor() -> None:
    """Make `ds.rankscope` work, now or as soon as xarray is imported."""
    if "xarray" in sys.modules:
        _register()
    else:
        sys.meta_path.insert(0, XarrayFinder())


def _register() -> None:
    # Without the accessor xarray still works, so nothing that goes wrong here may end its import.
    with contextlib.suppress(Exception):
        xarray = import_module("xarray")
        if not hasattr(xarray.Dataset, "rankscope"):  # xarray warns of a second registration
            xarray.register_dataset_accessor("rankscope")(_accessor)


def _accessor(dataset: Any) -> Any:
    """Metrics of the spectra in a run: see `rankscope.accessor.RankscopeAccessor`."""
    return import_module("rankscope.accessor").RankscopeAccessor(dataset)


class XarrayFinder:
    """Import hook that lets the other finders find xarray and registers the accessor after it."""

    def find_spec(self, name: str, *path_and_target: Any) -> ModuleSpec | None:
        if name != "xarray":
            return None
        with contextlib.suppress(Exception):  # xarray is then found without this hook
            for finder in sys.meta_path:
                spec = None if finder is self else finder.find_spec(name, *path_and_target)
                if spec is not None and spec.loader is not None:
                    loader: Any = RegisteringLoader(spec.loader, self)
                    spec.loader = loader
                    return spec
        return None


class RegisteringLoader:
    """Loader of xarray that registers the accessor once the module has been executed."""

    def __init__(self, loader: Any, finder: XarrayFinder) -> None:
        self._loader = loader
        self._finder = finder

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        # Whoever asks xarray for its loader gets the real one.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        _register()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
