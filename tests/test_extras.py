"""Packages that are missing: one sentence with the command that installs them."""

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
import torch

import rankscope as rs
import rankscope.lab.running
from rankscope.extras import EXTRAS, needed_by
from rankscope.lab.running.placement import choose_placement
from rankscope.scanning.command import run_scan


def view(folder: Path) -> None:
    with rs.Tracker(torch.nn.Linear(3, 3), folder / "run") as tracker:
        tracker.observe(0)
    rs.open(folder / "run").rankscope.view()


def quantised(folder: Path) -> None:
    """Read a GGUF file with one tensor of type 8, Q8_0: 34 bytes for 32 numbers."""

    def number(value: int, size: int) -> bytes:
        return value.to_bytes(size, "little")

    name = b"a.weight"
    header = b"GGUF" + number(3, 4) + number(1, 8) + number(0, 8)
    header += number(len(name), 8) + name + number(2, 4) + number(32, 8) + number(2, 8)
    header += number(8, 4) + number(0, 8)
    header += bytes(-len(header) % 32)
    (folder / "x.gguf").write_bytes(header + bytes(2 * 34))
    rs.open_checkpoint(folder / "x.gguf").read("a.weight")


def imported(name: str) -> Callable[[Path], object]:
    return lambda _: import_module(f"rankscope.integrations.{name}")


MISSING: dict[str, tuple[str, Callable[[Path], object]]] = {
    "anywidget": ("run.rankscope.view() needs", view),
    "gguf": ("x.gguf, which is quantised, needs", quantised),
    "lightning": ("rankscope.integrations.lightning needs", imported("lightning")),
    "ray": ("ray as the place to scan needs", lambda folder: run_scan([str(folder)], on="ray")),
    "transformers": ("rankscope.integrations.transformers needs", imported("transformers")),
}


@pytest.mark.parametrize("package", MISSING)
def test_a_missing_package_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    others = {"lightning": ("pytorch_lightning",)}.get(package, ())
    for name in list(sys.modules):
        ours = name in (
            "rankscope.view.widget",
            "rankscope.scanning.cluster",
            "rankscope.checkpoints.gguf_blocks",
        )
        ours = ours or name.startswith("rankscope.integrations.")
        if ours or name.split(".")[0] in (package, *others):
            monkeypatch.delitem(sys.modules, name)
    for name in (package, *others):
        monkeypatch.setitem(sys.modules, name, None)
    beginning, use = MISSING[package]
    with pytest.raises(ModuleNotFoundError) as missing:
        use(tmp_path)
    sentence = str(missing.value)
    assert beginning in sentence and "\n" not in sentence
    assert sentence.endswith(
        f"the package {package}; install it with "
        f"pip install 'rankscope[{EXTRAS[package]}]', or '.[{EXTRAS[package]}]' in a clone"
    )


def test_experiments_on_ray_name_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "rankscope.lab.running.ray", raising=False)
    monkeypatch.delattr(rankscope.lab.running, "ray", raising=False)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ModuleNotFoundError, match=r"^ray as the place to run needs .*\[ray\]'"):
        choose_placement(device="cpu", on="ray")


def test_other_packages_are_not_explained() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'nonsense'$"), needed_by("it"):
        import_module("nonsense")
