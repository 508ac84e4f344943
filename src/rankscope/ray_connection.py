"""A connection to a Ray cluster for a while; Ray is the extra `ray`."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray

from rankscope.environment import environment

OBJECT_MEMORY = 100 * 2**20  # bytes; only declarations, names, spectra and a few numbers travel
USAGE = "RAY_USAGE_STATS_ENABLED"


@contextmanager
def connected(address: str | None = None, *, cores: int | None = None) -> Iterator[bool]:
    """Connect to Ray, or start it, while the body runs; yield whether it was started for the body.

    A connection that exists already is left alone.

    address: that of a cluster; None for the environment variable RAY_ADDRESS, then for a Ray on
        this machine.
    cores: number of cores of a Ray that is started; None for those that Ray may use.
    """
    if ray.is_initialized():
        yield False
        return
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    is_local = address == "local"
    options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    settings = {}
    if is_local:
        settings = {USAGE: os.environ.get(USAGE, "0")}  # no report, unless the user asked for it
        options |= {"include_dashboard": False, "object_store_memory": OBJECT_MEMORY}
        options["num_cpus"] = cores
    with environment(settings):
        ray.init(address, **options)
    try:
        yield is_local
    finally:
        ray.shutdown()
