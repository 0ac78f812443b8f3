"""Clients that are slow, do not read, or go away: none keeps the server from others, or working for nobody."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from recur.errors import RunError
from recur.serve import server
from recur.serve.server import listen
from recur.studio.workers import STREAMS, TextStream, WorkerPool
from tests.studio.conftest import Served, Serving
from tests.studio.raw import HOST, JSON, NEXT, closed, post, request, talk, until

pytestmark = pytest.mark.usefixtures("log")


# Time ---------------------------------------------------------------------------------------------------------


def test_requests_that_take_their_time_are_cut(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_SECONDS", 0.3)
    monkeypatch.setattr(server, "LINGER_SECONDS", 0.1)
    served = Served(tiny)
    lines = [socket.create_connection(("127.0.0.1", served.port), timeout=20) for _ in range(4)]
    silent, head, body, behind = lines
    head.sendall(b"GET / HTTP/1.1\r\nHost:")
    begun = request(NEXT, HOST, JSON, "Content-Length: 20").replace(b"Connection: close\r\n", b"")
    body.sendall(begun + b'{"text"')
    behind.sendall(request("GET /x HTTP/1.1", HOST).replace(b"Connection: close\r\n", b"") + begun)
    assert closed(silent) == b"", "who says nothing hears nothing"
    assert b" 408 " in closed(head)
    assert b"not complete after" in closed(body)
    answers = closed(behind)
    assert b" 404 " in answers
    assert b" 408 " in answers, "a request that came along with another one"
    for line in lines:
        line.close()
    served.stop()


async def large(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(100):
        await send({"type": "http.response.body", "body": b"a" * 2**20, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def short(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


def test_a_connection_without_a_next_request_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "IDLE_SECONDS", 0.1)
    served = Serving(short)
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as line:
        line.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert closed(line).endswith(b"ok")
    served.stop()


def test_headers_that_never_end_are_too_large(small: Served) -> None:
    with socket.create_connection(("127.0.0.1", small.port), timeout=20) as line:
        line.sendall(b"GET / HTTP/1.1\r\nX: " + b"a" * 20_000)
        assert closed(line).startswith(b"HTTP/1.1 431 ")


def test_who_does_not_read_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "UNREAD_SECONDS", 0.2)
    served = Serving(large)
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as line:
        line.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        until(lambda: served.server.server_state.connections)
        until(lambda: not served.server.server_state.connections)
        assert len(closed(line)) < 100 * 2**20
    served.stop()


def test_who_goes_on_sending_after_the_answer_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "LINGER_SECONDS", 0.1)
    served = Serving(short)
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as line:
        line.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n")
        assert closed(line).endswith(b"ok")
    served.stop()


def test_the_oldest_that_waits_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 4)
    served = Serving(short)
    lines = []
    for k in range(10):
        lines.append(socket.create_connection(("127.0.0.1", served.port), timeout=20))
        if k == 2:
            lines[k].sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n")
        until(lambda: len(served.server.server_state.connections) == min(k + 1, 4))  # noqa: B023
    lines[-1].sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    assert closed(lines[-1]).endswith(b"ok")
    for line in lines[:6]:
        assert closed(line) == b""
    for line in lines:
        line.close()
    served.stop()


def test_where_nobody_waits_the_newest_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 2)
    release = threading.Event()

    async def busy(scope: Any, receive: Any, send: Any) -> None:
        while not release.is_set():
            await asyncio.sleep(0.01)
        await short(scope, receive, send)

    served = Serving(busy)
    asked = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    lines = [socket.create_connection(("127.0.0.1", served.port), timeout=20) for _ in range(2)]
    for line in lines:
        line.sendall(asked)
    until(lambda: len(served.server.server_state.tasks) == 2)
    status, _ = talk(served.port, asked)
    assert status in (0, 503), "the line is lost where the request was on its way when it was closed"
    release.set()
    assert all(closed(line).endswith(b"ok") for line in lines)
    for line in lines:
        line.close()
    served.stop()


# Who goes away --------------------------------------------------------------------------------------------------


def test_text_that_nobody_reads_is_not_generated() -> None:
    drawn, ended = [0], threading.Event()

    def pieces() -> Any:
        try:
            while True:
                drawn[0] += 1
                yield "word "
                time.sleep(0.001)
        finally:
            ended.set()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await (await TextStream.begin(pieces(), WorkerPool()))(scope, receive, send)

    served = Serving(app)
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as line:
        line.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert line.recv(100).startswith(b"HTTP/1.1 200")
    assert ended.wait(20)
    served.stop()


def test_an_error_amid_a_text_cuts_it_off_and_one_before_it_is_a_line(log: list[str]) -> None:
    def pieces() -> Any:
        yield "one "
        raise RunError("the model's output is not a number")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await (await TextStream.begin(pieces(), WorkerPool()))(scope, receive, send)

    served = Serving(app)
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as line:
        line.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        answer = closed(line)
    assert b"one " in answer
    assert not answer.endswith(b"0\r\n\r\n"), "not as a whole text ends"
    served.stop()
    assert log.pop() == "ASGI callable returned without completing response."


def test_texts_that_are_generated_at_once_are_counted(small: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small.studio.workers, "streams", STREAMS)
    answer = post(small, "tiny/generate", {"length": 3})
    assert answer.status_code == 503
    assert answer.headers["Retry-After"] == "1"


def test_who_leaves_the_line_is_not_waited_for(small: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    from recur.studio import app

    entered, release, computed = threading.Event(), threading.Event(), [0]

    def slow(model: Any, request: Any) -> Any:
        entered.set()
        computed[0] += 1
        release.wait(20)
        return {}

    monkeypatch.setitem(app.VIEWS, "gradients", slow)
    lines = small.studio.workers.lines
    asked = request("POST /api/runs/tiny/gradients HTTP/1.1", HOST, JSON, "Content-Length: 2", body="{}")
    waiting = [socket.create_connection(("127.0.0.1", small.port), timeout=20) for _ in range(9)]
    for line in waiting:
        line.sendall(asked)
    assert entered.wait(20)
    until(lambda: lines["tiny"].length == 9)
    for line in waiting:
        line.close()
    until(lambda: lines["tiny"].length == 1)
    release.set()
    until(lambda: "tiny" not in lines)
    assert computed == [1]


# Sockets ------------------------------------------------------------------------------------------------------


def test_accepted_sockets_send_at_once() -> None:
    """The listening socket is the one that both commands open, for which asyncio does not set the option."""
    with listen("127.0.0.1", 0) as listening:
        made = server.make_server(short)
        thread = threading.Thread(target=lambda: made.run(sockets=[listening]), daemon=True)
        thread.start()
        until(lambda: made.started)
        with socket.create_connection(listening.getsockname(), timeout=20) as line:
            line.sendall(request("GET / HTTP/1.1", HOST).replace(b"Connection: close\r\n", b""))
            assert line.recv(1000).startswith(b"HTTP/1.1 200")
            (connection,) = made.server_state.connections
            accepted = connection.transport.get_extra_info("socket")
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        made.should_exit = True
        thread.join(20)


@pytest.mark.parametrize(
    ("version", "headers", "line"),
    [
        ("1.1", ["Content-Length: 4", "Transfer-Encoding: chunked"], b"both Content-Length and Transfer-Encoding"),
        ("1.1", ["Transfer-Encoding: chunked", "Content-Length: 4"], b"both Content-Length and Transfer-Encoding"),
        ("1.0", ["Transfer-Encoding: chunked"], b"HTTP/1.0 has no Transfer-Encoding"),
    ],
)
def test_requests_of_ambiguous_length_are_refused_and_closed(version: str, headers: list[str], line: bytes) -> None:
    served = Serving(short)
    sent = request(f"POST / HTTP/{version}", HOST, "Connection: keep-alive", *headers, body="0\r\n\r\n")
    sent = sent.replace(b"Connection: close\r\n", b"")
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as client:
        client.sendall(sent + request("GET /smuggled HTTP/1.1", HOST))
        answer = closed(client)  # ends only where the server closes the connection
    assert answer.startswith(b"HTTP/1.1 400")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert line in answer
    served.stop()
