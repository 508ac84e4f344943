"""Distribution of the tests over the processes of `pytest -n`."""

from functools import cache
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling


class Spread(LoadScopeScheduling):
    """Distributes single tests, but keeps files with a module's fixture whole: it is made once.

    xdist's own groups (`--dist loadgroup`, 3.8.0) do nothing under pytest 9.2.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return file if has_shared_fixture(self.config.rootpath / file) else nodeid


@cache
def has_shared_fixture(file: Path) -> bool:
    return '@pytest.fixture(scope="module")' in file.read_text()


@pytest.hookimpl(optionalhook=True)  # for `pytest -p no:xdist`
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Spread:
    return Spread(config, log)
