"""Watch the rank of neural networks while they learn.

Names are imported when they are first used, so `import rankscope` loads neither torch nor xarray.
`__init__.pyi` lists them for this module and for type checkers (Scientific Python, SPEC 1).
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

from rankscope.xarray_hook import register_accessor

__version__ = "0.1.0"


def _modules_by_name() -> dict[str, str]:
    """Return the module that each name in the stub comes from."""
    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text())
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


MODULE_OF = _modules_by_name()

__all__ = ["__version__", *MODULE_OF]


def __getattr__(name: str) -> Any:
    """Import an exported name when it is first used."""
    if name not in MODULE_OF:
        raise AttributeError(f"module 'rankscope' has no attribute {name!r}")
    if MODULE_OF[name] == "rankscope":  # a module of its own
        return import_module(f"rankscope.{name}")
    value = getattr(import_module(MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


register_accessor()
