"""`import rankscope`: what it loads, what it exports, and how `ds.rankscope` comes about."""

import subprocess
import sys
from importlib import import_module

import pytest

import rankscope

# What the viewer computes of a run: metrics of stored spectra, with floors from shapes and types.
METRICS = """
    import numpy, xarray
    spectra = numpy.array([[[2.0, 1.0, 0.0]]], "float32")
    facts = {"m": 3, "n": 3, "dtype": "float32"}
    coords = {name: ("matrix", [fact]) for name, fact in facts.items()}
    names = ["singular_values", "change_singular_values"]
    run = xarray.Dataset({name: (("step", "matrix", "k"), spectra) for name in names}, coords)
    assert run.rankscope.numerical_rank(of="change_singular_values").item() == 2
    assert 0 < run.rankscope.normalized_effective_rank().item() < 1
"""
HEAVY = ("torch", "xarray", "zarr", "numpy", "matplotlib", "scipy", "typer")


def python(code: str) -> str:
    """Return what `code` prints in a Python of its own."""
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("use", "unloaded"),
    [
        ("rankscope.__version__", HEAVY),
        ("rankscope.open", ("torch",)),
        (METRICS, ("torch",)),
        ("import rankscope.lab.judging.verdict, rankscope.view.server", ("torch", "matplotlib")),
        ("sys.argv[1:] = ['--help']; from rankscope.cli import main; main()", HEAVY[:-1]),
    ],
    ids=["import", "open a run", "metrics of a run", "viewer", "help of the command line"],
)
def test_heavy_libraries_are_loaded_when_they_are_used(use: str, unloaded: tuple[str, ...]) -> None:
    loaded = f"[name for name in {unloaded} if name in sys.modules]"
    code = f"""
import sys, rankscope
try:
    {use}
finally:
    print("loaded:", {loaded})
"""
    assert python(code).endswith("loaded: []")


def test_every_exported_name_is_that_of_its_module() -> None:
    assert len(rankscope.MODULE_OF) > 40
    for name, module in rankscope.MODULE_OF.items():
        assert getattr(rankscope, name) is getattr(import_module(module), name)
    assert dir(rankscope) == sorted(rankscope.__all__)


def test_an_unknown_name() -> None:
    with pytest.raises(AttributeError, match="module 'rankscope' has no attribute 'rank_scope'"):
        rankscope.rank_scope  # noqa: B018


@pytest.mark.parametrize("order", ["rankscope, xarray", "xarray, rankscope"])
def test_the_accessor_works_whichever_is_imported_first(order: str) -> None:
    code = f"import {order}; print(type(xarray.Dataset().rankscope).__name__)"
    assert python(code) == "RankscopeAccessor"


def test_importing_xarray_leaves_no_trace_of_the_hook() -> None:
    code = """
import importlib.util, sys, rankscope
importlib.util.find_spec("xarray")  # only asks whether xarray is installed
import xarray
print(xarray.__spec__.loader is xarray.__loader__, type(xarray.__loader__).__name__)
print([finder for finder in sys.meta_path if "rankscope" in repr(finder)], "torch" in sys.modules)
print(hasattr(xarray.Dataset, "rankscope"))
"""
    assert python(code).splitlines() == ["True SourceFileLoader", "[] False", "True"]


@pytest.mark.parametrize("broken", ["find_spec", "register"])
def test_a_broken_hook_does_not_break_xarray(broken: str) -> None:
    code = """
import sys, rankscope
class Broken:
    def find_spec(self, *arguments):
        if sys._getframe(1).f_globals["__name__"] == "rankscope.xarray_hook":
            raise RuntimeError("broken")
""" + {
        "find_spec": "sys.meta_path.insert(1, Broken())",
        "register": "rankscope.xarray_hook._accessor = None; rankscope.xarray_hook.import_module"
        " = lambda name: 1 / 0",
    }[broken]
    assert python(code + "\nimport xarray; print(xarray.Dataset().sizes)").endswith("({})")
