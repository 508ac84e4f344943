"""A browser, and the page of archived runs in it. Without playwright the tests that ask skip."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from view.browsing import Watched
    from view.viewed_runs import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Server]":
    from view.archived_site import archive

    with archive(tmp_path_factory.mktemp("results")) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from view.browsing import chromium

    with chromium() as running:
        yield running


@pytest.fixture
def site(server: "Server", browser: Any) -> "Iterator[Watched]":
    from view.archived_site import address
    from view.browsing import watched

    with watched(browser, address(server)) as result:
        yield result
