"""`rankscope view`: the server, from its first line to Ctrl-C."""

import contextlib
import socket
import sys
import threading
import webbrowser
from collections.abc import Sequence
from pathlib import Path

import uvicorn
from starlette.applications import Starlette

from rankscope.view.page import Later, application
from rankscope.view.safety import Gate

LOOPBACK = "127.0.0.1"
TRIES = 20  # ports after the wanted one, if that is taken


def serve(
    folders: Sequence[Path], *, port: int | None, host: str = LOOPBACK, browser: bool = True
) -> None:
    """Show the runs in `folders` until Ctrl-C.

    port: by default 8765, or the next one that is free. host: an address of this machine; other
        machines can ask if it is not loopback, and need the token too.
    """
    listener = listen(host, port)
    with contextlib.closing(listener):
        number = listener.getsockname()[1]
        hosts = [] if host == LOOPBACK else [f"[{host}]" if ":" in host else host]
        gate = Gate(number, hosts)
        later = Later(lambda: _answers(folders))
        name = hosts[0] if hosts and host not in ("0.0.0.0", "::") else LOOPBACK
        url = f"http://{name}:{number}/?token={gate.token}"
        print(f"rankscope view: {url}  (Ctrl-C ends)", flush=True)
        if browser:
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
        try:
            with contextlib.suppress(KeyboardInterrupt):
                http_server(later, gate).run(sockets=[listener])
        finally:
            if answers := later.now():
                answers.state.library.close()


def _answers(folders: Sequence[Path]) -> Starlette:
    """Return what answers about the runs in `folders`; its imports take longer than the page."""
    from rankscope.view.app import answers
    from rankscope.view.library import Library

    return answers(Library(folders))


def http_server(answers: Later[Starlette], gate: Gate) -> uvicorn.Server:
    """Return the server, which keeps no log: the first address holds the token."""
    config = uvicorn.Config(
        application(answers, gate),
        log_level="error",
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        proxy_headers=False,
        limit_concurrency=200,
        timeout_graceful_shutdown=1,
    )
    return uvicorn.Server(config)


def listen(host: str, port: int | None) -> socket.socket:
    """Return a socket that listens; ValueError if the port is taken or the host is not ours."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    ports = range(8765, 8765 + TRIES) if port is None else [port]
    for number in ports:
        listener = socket.socket(family, socket.SOCK_STREAM)
        if sys.platform != "win32":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, number))
            listener.listen(128)
            return listener
        except OSError as trouble:
            listener.close()
            reason = trouble.strerror
    where = f"port {ports[0]}" if len(ports) == 1 else f"ports {ports[0]} to {ports[-1]}"
    raise ValueError(f"{where} on {host} cannot be used ({reason}); choose another with --port")
