"""A file system so small that it fills up."""

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def tmpfs(folder: Path, size: str) -> Iterator[Callable[[str], None]]:
    """A tiny file system at `folder`; yields what mounts it again with other options."""

    def mount(options: str) -> bool:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    if not mount(f"size={size}"):
        pytest.skip("mounting a tmpfs needs privileges")
    try:
        yield lambda options: None if mount(f"remount,{options}") else pytest.fail("no remount")
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
