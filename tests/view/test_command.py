"""`rankscope view` as it is typed: one line, a quiet end, sentences for mistakes."""

import re
import signal
import socket
import subprocess
import sys
import urllib.request
from http.cookiejar import CookieJar
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rankscope.cli import app
from view.viewed_runs import write

COMMAND = [sys.executable, "-m", "rankscope", "view", "--no-open"]


def test_it_prints_one_address_and_ends_quietly(tmp_path: Path) -> None:
    write(tmp_path / "first", range(3))
    command = [*COMMAND, str(tmp_path), "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            address = re.search(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{43}", line)
            assert address is not None, line
            opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
            with opener.open(address[0], timeout=20) as page:
                assert b"<!doctype html>" in page.read()[:100].lower()
            with opener.open(address[0].partition("/?")[0] + "/api/runs", timeout=20) as runs:
                assert b'"name":"first"' in runs.read()
        finally:
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=20)
    assert (process.returncode, output, errors) == (0, "", "")


def test_the_page_waits_for_no_library_that_only_runs_need() -> None:
    lines = "import sys, rankscope.view.server; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", lines], check=True, capture_output=True, text=True
    ).stdout.split()
    assert {"uvicorn", "rankscope.view.page"} <= set(loaded)
    assert not {"torch", "xarray", "pandas", "zarr", "numpy"} & set(loaded)


def test_folders_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments, words in ((["nowhere"], "nowhere does not exist"), ([], "no folder runs")):
        result = CliRunner().invoke(app, ["view", *arguments])
        assert isinstance(result.exception, ValueError)
        assert words in str(result.exception)


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = CliRunner().invoke(app, ["view", str(tmp_path), "--port", str(port), "--no-open"])
    assert isinstance(result.exception, ValueError)
    assert f"port {port} on 127.0.0.1 cannot be used" in str(result.exception)


def test_another_host_has_to_be_said_and_is_named(tmp_path: Path) -> None:
    help_text = CliRunner().invoke(app, ["view", "--help"]).output
    assert "127.0.0.1" in help_text
    result = CliRunner().invoke(app, ["view", str(tmp_path), "--host", "203.0.113.1", "--no-open"])
    assert "other machines can reach 203.0.113.1" in result.output + result.stderr
    assert isinstance(result.exception, ValueError)
