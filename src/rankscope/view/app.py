"""Answers about runs: every endpoint by its address, and what becomes of mistakes."""

import hashlib
import threading
from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from rankscope.view.describe import describe
from rankscope.view.events import events
from rankscope.view.export import export
from rankscope.view.library import Library, Unknown
from rankscope.view.moved import moved
from rankscope.view.opened import TooLarge
from rankscope.view.page import MISTAKES
from rankscope.view.panels import PANELS
from rankscope.view.papers import figure, papers
from rankscope.view.query import Mistake, Query
from rankscope.view.safety import refused
from rankscope.view.theory import theory

AT_ONCE = 4  # answers that read runs at the same time
BINARY = "application/octet-stream"

Endpoint = Callable[[Query], Any]
TABLES: dict[str, Endpoint] = {
    "run": describe,
    "moved": moved,
    "events": events,
    "theory": theory,
    "papers": papers,
}
TAGGED = {*PANELS, "moved", "events"} - {"compare"}  # answers that follow from one run's files
INCOMPLETE = (b'"complete": false', b'"complete":false')


def answers(library: Library) -> Starlette:
    """Return the application that answers about the runs of `library`."""
    turns = threading.BoundedSemaphore(AT_ONCE)
    routes = [Route("/version", _version(library)), Route("/runs", _runs(library))]
    for name, endpoint in {**PANELS, **TABLES, "export": export, "figure": figure}.items():
        routes.append(Route(f"/{name}", _answering(name, endpoint, library, turns)))
    app = Starlette(routes=routes, exception_handlers=MISTAKES)
    app.state.library = library
    return app


def _answering(
    name: str, endpoint: Endpoint, library: Library, turns: threading.BoundedSemaphore
) -> Callable[[Request], Any]:
    """Return the handler of an endpoint: one thread per answer, a few at a time."""

    def answer(request: Request) -> Response:
        tag = _tag(name, request, library)
        if tag and request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={"ETag": tag})
        try:
            with turns:
                content = endpoint(Query(request.query_params, library))
        except TooLarge as refusal:
            return _failed(413, refusal)
        except Mistake as mistake:
            return _failed(400, mistake)
        except Unknown as unknown:
            return _failed(404, unknown)
        except LookupError as missing:
            return _failed(404, missing)
        except (ValueError, OSError) as damage:
            return _failed(409, damage)
        response = _response(name, content)
        if tag and not any(mark in bytes(response.body)[:1_000_000] for mark in INCOMPLETE):
            response.headers["ETag"] = tag
        return response

    async def handler(request: Request) -> Response:
        return await run_in_threadpool(answer, request)

    return handler


def _response(name: str, content: Any) -> Response:
    if name == "figure":
        return Response(content, media_type="image/png")
    if name == "export":
        text, kind = content
        media, suffix = ("text/csv", "csv") if kind == "csv" else ("text/plain", "py")
        attachment = f'attachment; filename="rankscope.{suffix}"'
        headers = {"Content-Disposition": attachment} if kind == "csv" else None
        return Response(text, media_type=media, headers=headers)
    return Response(content, media_type=BINARY) if name in PANELS else JSONResponse(content)


def _tag(name: str, request: Request, library: Library) -> str:
    """Return the ETag of an answer that is complete; "" for answers that have none."""
    if name not in TAGGED:
        return ""
    try:
        commits = [library.place(key).commit for key in request.query_params.getlist("run")]
    except Unknown:
        return ""
    text = "\n".join([name, str(request.query_params), *commits])
    return f'"{hashlib.sha256(text.encode()).hexdigest()[:24]}"'


def _version(library: Library) -> Callable[[Request], Any]:
    def answer(request: Request) -> Response:
        runs = library.versions(request.query_params.getlist("run")[:64])
        return JSONResponse(
            {"version": library.version, "list": library.list_version, "runs": runs}
        )

    async def handler(request: Request) -> Response:
        return await run_in_threadpool(answer, request)

    return handler


def _runs(library: Library) -> Callable[[Request], Any]:
    def answer(request: Request) -> Response:
        rows = library.summaries()
        return JSONResponse(
            {
                "list": library.list_version,
                "folders": [str(folder) for folder in library.folders],
                "runs": rows,
                "skipped": library.search().skipped,
            }
        )

    async def handler(request: Request) -> Response:
        return await run_in_threadpool(answer, request)

    return handler


def _failed(status: int, reason: Exception) -> Response:
    return refused(status, str(reason.args[0]) if reason.args else type(reason).__name__)
