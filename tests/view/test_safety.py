"""Each rule of safety, attacked over a real connection."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from rankscope.view.safety import POLICY, Gate
from view.viewed_runs import Server, serving, write


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("runs")
    write(folder / "first")
    with serving(folder) as running:
        yield running


HOSTS = [
    *("evil.example", "127.0.0.1", "localhost", "127.0.0.1.evil.example:{port}", "evil:{port}"),
    *("", "127.0.0.1:{other}", "localhost:{port}.", "localhost:{port}@evil", "0.0.0.0:{port}"),
]
OUTSIDE = [
    *("/static/../safety.py", "/static/%2e%2e/safety.py", "/static/..%2fsafety.py", "/static/"),
    *("/static//etc/passwd", "/static/%2fetc%2fpasswd", "/static/..%5csafety.py"),
    *("/static/.hidden.js", "/static/a%00.js", "/static/" + "a/" * 500 + "a.js"),
]
ADDRESSES = ["/", "/api/runs", "/api/version", "/static/app.js", "/static/../app.py", "/nothing"]


@pytest.mark.parametrize("path", ADDRESSES)
def test_nothing_is_answered_without_the_cookie(server: Server, path: str) -> None:
    assert server.ask(path, cookie=False).status == 401
    wrong = {"Cookie": f"{server.gate.cookie}={'x' * 43}"}
    assert server.ask(path, headers=wrong).status == 401


@pytest.mark.parametrize("token", ["", "x", "é", "%00", "a" * 10_000])
def test_a_wrong_token_gives_no_cookie(server: Server, token: str) -> None:
    answer = server.ask(f"/?token={token.encode().hex() or ''}", cookie=False)
    assert answer.status == 401
    assert "set-cookie" not in answer.headers
    assert server.gate.token.encode() not in answer.body


def test_the_token_becomes_a_cookie_of_this_site_alone(server: Server) -> None:
    answer = server.ask(f"/?token={server.gate.token}&run=a%2Fb", cookie=False)
    assert answer.status == 303
    assert answer.headers["location"] == "/?run=a%2Fb"
    cookie = answer.headers["set-cookie"].lower()
    assert cookie.startswith(f"{server.gate.cookie}={server.gate.token}".lower())
    assert "httponly" in cookie
    assert "samesite=strict" in cookie


def test_a_redirect_stays_here(server: Server) -> None:
    for path in ("//evil.example/?token=", "/api/runs?token=", "/\\evil.example?token="):
        answer = server.ask(path + server.gate.token, cookie=False)
        assert answer.status == 401
        assert "location" not in answer.headers


@pytest.mark.parametrize("host", HOSTS)
def test_other_hosts_are_misdirected(server: Server, host: str) -> None:
    name = host.format(port=server.port, other=server.port + 1)
    for cookie in (True, False):
        answer = server.ask("/api/runs", headers={"Host": name}, cookie=cookie)
        assert answer.status in (400, 421)
    assert server.ask(f"/?token={server.gate.token}", headers={"Host": name}).status in (400, 421)


def test_two_hosts_or_none(server: Server) -> None:
    for hosts in ("", f"Host: 127.0.0.1:{server.port}\r\nHost: evil.example\r\n"):
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
            request = f"GET /api/runs HTTP/1.1\r\n{hosts}Connection: close\r\n\r\n"
            connection.sendall(request.encode())
            status = connection.recv(4096).split()[1]
        assert status in (b"400", b"421")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_names_of_loopback_are_answered(server: Server, host: str) -> None:
    headers = {"Host": f"{host}:{server.port}", "Origin": f"http://{host}:{server.port}"}
    assert server.ask("/api/runs", headers=headers).status == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1", "https://127.0.0.1:{port}"]
)
def test_other_origins_are_refused(server: Server, origin: str) -> None:
    headers = {"Origin": origin.format(port=server.port)}
    answer = server.ask("/api/runs", headers=headers)
    assert answer.status == 403
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize("site", ["cross-site", "same-site", "anything"])
def test_requests_from_other_sites_are_refused(server: Server, site: str) -> None:
    headers = {"Sec-Fetch-Site": site}
    assert server.ask("/api/runs", headers=headers).status == 403
    assert server.ask(f"/?token={server.gate.token}", headers=headers).status == 403
    for own in ("same-origin", "none"):
        assert server.ask("/api/runs", headers={"Sec-Fetch-Site": own}).status == 200


def test_a_second_site_is_not_overlooked(server: Server) -> None:
    lines = [
        "GET /api/runs HTTP/1.1",
        f"Host: 127.0.0.1:{server.port}",
        f"Cookie: {server.gate.cookie}={server.gate.token}",
        "Sec-Fetch-Site: none\r\nSec-Fetch-Site: cross-site",
        "Connection: close\r\n\r\n",
    ]
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall("\r\n".join(lines).encode())
        assert connection.recv(4096).split()[1] == b"403"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_nothing_can_be_changed(server: Server, method: str) -> None:
    assert server.ask("/api/runs", method=method).status == 405


@pytest.mark.parametrize("path", [*ADDRESSES, "/api/run?run=x", "/api/heat?run=%00"])
@pytest.mark.parametrize("cookie", [True, False])
def test_every_answer_keeps_the_page_to_itself(server: Server, path: str, cookie: bool) -> None:
    headers = server.ask(path, cookie=cookie).headers
    policy = headers["content-security-policy"]
    assert policy == "; ".join(f"{name} {value}" for name, value in POLICY.items())
    assert "unsafe" not in policy
    assert POLICY["default-src"] == POLICY["frame-ancestors"] == "'none'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert not [name for name in headers if name.startswith("access-control")]
    assert "server" not in headers


@pytest.mark.parametrize("path", OUTSIDE)
def test_no_file_outside_the_page_is_served(server: Server, path: str) -> None:
    answer = server.ask(path)
    assert answer.status == 404
    assert b"root:" not in answer.body
    assert b"import" not in answer.body


@pytest.mark.parametrize("run", ["../../etc", "/etc/passwd", "first", "%2e%2e", "a" * 5000, ""])
def test_a_run_is_a_key_and_no_path(server: Server, run: str) -> None:
    assert server.ask(f"/api/run?run={run}").status == 404
    assert server.ask(f"/api/figure?path={run}").status == 404


def test_tokens_are_long_and_differ() -> None:
    tokens = {Gate(1).token for _ in range(50)}
    assert len(tokens) == 50
    assert min(map(len, tokens)) >= 43


def test_a_run_that_a_link_leads_to_is_not_shown(tmp_path: Path) -> None:
    outside = write(tmp_path / "outside" / "secret")
    folder = tmp_path / "runs"
    write(folder / "first")
    (folder / "link").symlink_to(outside, target_is_directory=True)
    (folder / "above").symlink_to(tmp_path, target_is_directory=True)
    with serving(folder) as server:
        names = [row["name"] for row in server.get("runs").json["runs"]]
    assert names == ["first"]


def test_a_file_that_a_link_leads_to_is_not_read(tmp_path: Path) -> None:
    outside = write(tmp_path / "outside" / "secret")
    run = write(tmp_path / "runs" / "first")
    for file in (run / "singular_values").iterdir():
        if file.name != "zarr.json":
            file.unlink()
            file.symlink_to(outside / "singular_values" / file.name)
    root = write(tmp_path / "runs" / "second") / "zarr.json"
    root.unlink()
    root.symlink_to(outside / "zarr.json")
    with serving(tmp_path / "runs") as server:
        rows = {row["name"]: row for row in server.get("runs").json["runs"]}
        first = server.get("spectrum", run=server.key("first"), row=0)
        heat = server.get("heat", run=server.key("first"), format="float32")
    assert rows["second"]["status"] == "damaged"
    assert first.status == 409
    assert "outside" in first.json["error"]
    assert "outside" in heat.meta["damage"]


def test_a_web_socket_is_an_ordinary_question(
    server: Server, capfd: pytest.CaptureFixture[str]
) -> None:
    upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
    key = {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
    assert server.ask("/api/runs", headers=upgrade | key).status == 200
    assert server.ask("/api/runs", headers=upgrade | key, cookie=False).status == 401
    assert not capfd.readouterr().err
