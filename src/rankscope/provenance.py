"""Where a result came from: versions, device, the commit of the code that asked for it."""

import os
import platform
import subprocess
from datetime import UTC, datetime

import torch

from rankscope import __version__


def origin(device: torch.device) -> dict[str, str]:
    """Plain strings for a run's attributes."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return {
        "rankscope": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": f"{device.type} ({name})",
        "commit": _commit(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _commit() -> str:
    """The commit checked out where the program runs, or "" outside a repository.

    A copy of the code that is no checkout can be told by RANKSCOPE_COMMIT where it is from.
    """
    if told := os.environ.get("RANKSCOPE_COMMIT"):
        return told
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""
