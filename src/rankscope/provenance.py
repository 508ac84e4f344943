"""Origin of a result: versions, device, and the commit of the code that computed it."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

import torch


def origin(device: torch.device) -> dict[str, str]:
    """Return the attributes that say where a run came from, as plain strings."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return {
        "rankscope": _version(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": f"{device.type} ({name})",
        "commit": _commit(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _version() -> str:
    try:
        return version("rankscope")
    except PackageNotFoundError:  # a source tree on the path
        return "not installed"


def _commit() -> str:
    """Return the commit checked out in the working directory, or "" outside a repository.

    Set RANKSCOPE_COMMIT where the code is a copy without its history.
    """
    if commit := os.environ.get("RANKSCOPE_COMMIT"):
        return commit
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""
