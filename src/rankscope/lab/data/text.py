"""Text without a download: the source of the Python standard library."""

import sysconfig
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import UInt8
from torch import Tensor


@dataclass(frozen=True)
class Text:
    """Bytes of a text, split into training and validation parts."""

    train: UInt8[Tensor, " train"]
    validation: UInt8[Tensor, " validation"]


@dataclass(frozen=True)
class StandardLibraryText:
    """The top-level modules of the standard library in order of name, up to `size` bytes.

    The last tenth is for validation. The text differs a little between Python versions.
    folder: the folder of the modules; None for that of the running interpreter.
    """

    size: int = 4_000_000
    validation_share: float = 0.1
    folder: Path | None = None

    def __post_init__(self) -> None:
        if self.size < 1 or not 0 < self.validation_share < 1:
            raise ValueError(f"expected size >= 1 and 0 < validation_share < 1, got {self}")

    def build(self) -> Text:
        folder = self.folder or Path(sysconfig.get_path("stdlib"))
        text = b"".join(path.read_bytes() for path in source_files(folder))[: self.size]
        if not text:
            raise ValueError(
                f"no Python source files in {folder}; this Python's standard library is zipped, "
                "frozen or stripped: use a Python installed with its sources"
            )
        data = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        split = len(data) - int(len(data) * self.validation_share)
        return Text(train=data[:split], validation=data[split:])


def source_files(folder: Path) -> list[Path]:
    """Return Python files by name, without `_sysconfigdata...`, which differs between machines."""
    return sorted(p for p in folder.glob("*.py") if not p.name.startswith("_sysconfigdata"))
