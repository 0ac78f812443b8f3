"""Requests as bytes on a socket, for tests of what no HTTP client would send."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.studio.conftest import TOKEN, Served

httpx = pytest.importorskip("httpx")

HOST = "Host: 127.0.0.1"
JSON = "Content-Type: application/json"
NEXT = "POST /api/runs/tiny/next HTTP/1.1"


def talk(port: int, *parts: bytes) -> tuple[int, bytes]:
    """Send these bytes; the status and the body of the answer. 0 where there is none."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as line:
        found = b""
        try:
            for part in parts:
                line.sendall(part)
            while piece := line.recv(65536):
                found += piece
        except ConnectionError:
            pass
    head, _, body = found.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]) if head else 0, body


def request(line: str, *headers: str, body: str = "", token: bool = True) -> bytes:
    authorization = [f"Authorization: Bearer {TOKEN}"] if token else []
    lines = [line, *headers, *authorization, "Connection: close", "", body]
    return "\r\n".join(lines).encode("utf-8", "surrogateescape")


def post(served: Served, path: str, body: Any) -> Any:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {**served.headers, "Content-Type": "application/json"}
    return httpx.post(f"{served.address}/api/runs/{path}", content=content, headers=headers, timeout=60)


def closed(line: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    found = b""
    try:
        while piece := line.recv(65536):
            found += piece
    except ConnectionError:
        pass
    return found


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)
