"""Sinks: loggers that show the spectra of a run beside everything else they show.

Pass one to `Tracker(sinks=...)`, or replay a run. Each imports its library when it is first named.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rankscope.extras import install_command
from rankscope.sinks.digest import Digest as Digest
from rankscope.sinks.digest import digest as digest
from rankscope.sinks.replay import replay as replay

if TYPE_CHECKING:
    from rankscope.sinks.tensorboard import TensorBoard as TensorBoard
    from rankscope.sinks.trackio import Trackio as Trackio
    from rankscope.sinks.wandb import WandB as WandB

MODULES = {"TensorBoard": "tensorboard", "Trackio": "trackio", "WandB": "wandb"}


def __getattr__(name: str) -> Any:
    """Import a sink when it is first used."""
    if name not in MODULES:
        raise AttributeError(f"module 'rankscope.sinks' has no attribute {name!r}")
    try:
        module = import_module(f"rankscope.sinks.{MODULES[name]}")
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(
            f"sinks.{name} needs the package {missing.name}; install it with "
            + install_command(MODULES[name]),
            name=missing.name,
        ) from None
    return getattr(module, name)
