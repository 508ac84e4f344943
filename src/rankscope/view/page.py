"""The page and its files, which are answered while everything that reads runs is being imported."""

import asyncio
import re
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from threading import Thread
from typing import Generic, TypeVar

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from rankscope.view.safety import Gate, Guarded, refused

STATIC = Path(__file__).parent / "static"
FILE = re.compile(r"(?:[\w-][\w.-]{0,99}/){0,8}[\w-][\w.-]{0,99}")
KINDS = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".woff2": "font/woff2",
    ".json": "application/json",
    ".txt": "text/plain",
}

Made = TypeVar("Made")


class Later(Generic[Made]):
    """Something that a thread makes from now on."""

    def __init__(self, make: Callable[[], Made]) -> None:
        self._made: Future[Made] = Future()
        Thread(target=self._run, args=(make,), daemon=True).start()

    def _run(self, make: Callable[[], Made]) -> None:
        try:
            self._made.set_result(make())
        except BaseException as failure:
            self._made.set_exception(failure)

    async def ready(self) -> Made:
        """Return it once it is made."""
        return await asyncio.wrap_future(self._made)

    def now(self) -> Made | None:
        """Return it if it is made."""
        done = self._made.done() and self._made.exception() is None
        return self._made.result() if done else None


def application(answers: Later[Starlette], gate: Gate) -> Guarded:
    """Return the application: the page at once, answers about runs as soon as they can be given."""

    async def api(scope: Scope, receive: Receive, send: Send) -> None:
        app = await answers.ready()
        await app(scope, receive, send)

    routes = [Route("/", _page), Route("/static/{path:path}", _static), Mount("/api", api)]
    return Guarded(Starlette(routes=routes, exception_handlers=MISTAKES), gate)


async def _page(request: Request) -> Response:
    return _file("index.html")


async def _static(request: Request) -> Response:
    return _file(request.path_params["path"])


def _file(name: str) -> Response:
    """Return a file of the page; its name is checked, and links may not lead out."""
    path = STATIC / name
    media = KINDS.get(path.suffix)
    if not FILE.fullmatch(name) or media is None or not path.is_file():
        return refused(404, "there is no such file")
    if not path.resolve().is_relative_to(STATIC.resolve()):
        return refused(404, "there is no such file")
    return FileResponse(path, media_type=media)


async def _missing(request: Request, exception: Exception) -> Response:
    return refused(404, "there is nothing at this address")


async def _broken(request: Request, exception: Exception) -> Response:
    """Answer in the page's terms; the server prints the traceback."""
    return refused(500, f"the server failed here ({type(exception).__name__})")


MISTAKES = {404: _missing, 500: _broken}
