"""A headless Chromium that watches what a page does: its messages, and where it sends requests."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import pytest

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
NAMES = ("chromium", "chromium-browser", "google-chrome")
RESULTS = Path(__file__).parents[2] / "results"

playwright = pytest.importorskip("playwright.sync_api", reason="install the extra dev")


def executable() -> str | None:
    """The browser to use: RANKSCOPE_CHROMIUM, or the first on the path."""
    return os.environ.get("RANKSCOPE_CHROMIUM") or next(
        filter(None, map(shutil.which, NAMES)), None
    )


@dataclass
class Watched:
    """A page and everything that should not happen on it."""

    page: "playwright.Page"
    origin: str
    faults: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def go(self, **state: str | list[str]) -> "playwright.Page":
        """Open an address of the page, and wait until its view is there."""
        query = "&".join(
            f"{name}={quote(value, safe='')}"
            for name, values in state.items()
            for value in ([values] if isinstance(values, str) else values)
        )
        self.page.goto(f"{self.origin}/?{query}" if query else f"{self.origin}/")
        self.page.wait_for_selector("main h1, main .nothing h2")
        return self.page

    def settled(self) -> None:
        """Wait until no panel waits for data."""
        self.page.wait_for_function(
            "() => !document.querySelector('.loading, .placeholder')"
            " && !document.body.innerText.includes('Reading…')"
        )

    def check(self) -> None:
        """Fail if the page reported an error or asked another machine."""
        elsewhere = [
            url for url in self.requests if not url.startswith((self.origin, "blob:", "data:"))
        ]
        assert not elsewhere, elsewhere
        assert not self.faults, self.faults


@contextlib.contextmanager
def chromium() -> "Iterator[playwright.Browser]":
    """Start a browser; skip where there is none."""
    path = executable()
    if path is None:
        pytest.skip("no Chromium: install the Debian package chromium, or set RANKSCOPE_CHROMIUM")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield browser
        browser.close()


@contextlib.contextmanager
def watched(
    browser: "playwright.Browser",
    address: str,
    *,
    width: int = 1280,
    height: int = 860,
    **options: str,
) -> Iterator[Watched]:
    """Open the address that the server prints, and check at the end that nothing went wrong."""
    context = browser.new_context(viewport={"width": width, "height": height}, **options)
    page = context.new_page()
    page.set_default_timeout(30_000)
    result = Watched(page, address.split("/?")[0])
    page.on(
        "console",
        lambda message: result.faults.append(message.text) if message.type == "error" else None,
    )
    page.on("pageerror", lambda error: result.faults.append(str(error)))
    page.on("request", lambda request: result.requests.append(request.url))
    page.goto(address)
    page.wait_for_selector("main h1, main .nothing h2")
    yield result
    result.check()
    context.close()
