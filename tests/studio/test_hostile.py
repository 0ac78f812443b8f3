"""Requests that mean no good, or are broken: each gets one line and leaves the server as it was."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from campaigns import http
from campaigns.requests import Hostile
from recur.runs import Run
from recur.runs.weights import to_bytes
from recur.serve import server
from recur.serve.http import encode_json, without_folders
from recur.studio.app import BODY
from tests.studio.conftest import TOKEN, Served
from tests.studio.raw import HOST, JSON, NEXT, post, request, talk

httpx = pytest.importorskip("httpx")
pytestmark = pytest.mark.usefixtures("log")


# What is no request, or one that nobody sends -------------------------------------------------------------

REQUESTS = {
    "half a bracket": request("GET / HTTP/1.1", "Host: ["),
    "half a bracket's origin": request("GET /api/runs HTTP/1.1", HOST, "Origin: http://["),
    "a port of letters": request("GET / HTTP/1.1", "Host: 127.0.0.1:abc"),
    "somebody at": request("GET / HTTP/1.1", "Host: a@127.0.0.1"),
    "bytes as a host": request("GET / HTTP/1.1", "Host: \udcff\udcfe"),
    "two hosts": request("GET / HTTP/1.1", HOST, "Host: evil.example"),
    "no host": request("GET / HTTP/1.1"),
    "no host of 1.0": request("GET / HTTP/1.0"),
    "a cookie that is none": request("GET /x HTTP/1.1", HOST, "Cookie: a,b/c:d=1; =; ;;"),
    "NUL": request("GET /api/runs/%00 HTTP/1.1", HOST),
    "NUL for a file": request("GET /page/%00 HTTP/1.1", HOST),
    "a file with a long name": request(f"GET /page/{'a' * 5000} HTTP/1.1", HOST),
    "a run with a long name": request(f"GET /api/runs/{'a' * 5000} HTTP/1.1", HOST),
    "not a percentage": request("GET /api/runs/%zz%%%ff HTTP/1.1", HOST),
    "a line's end": request("GET /api/runs/%0d%0aX:%20y HTTP/1.1", HOST),
    "the folder above": request("GET /api/runs/%2e%2e HTTP/1.1", HOST),
    "this folder": request("GET /api/runs/. HTTP/1.1", HOST),
    "a file above": request("GET /page/%2e%2e%2fapp.py HTTP/1.1", HOST),
    "a slash too many": request("GET /api/runs/ HTTP/1.1", HOST),
    "two slashes": request("GET //evil.example/ HTTP/1.1", HOST),
    "elsewhere": request("GET http://evil.example/ HTTP/1.1", "Host: evil.example"),
    "a star": request("OPTIONS * HTTP/1.1", HOST),
    "a tunnel": request("CONNECT evil.example:443 HTTP/1.1", HOST),
    "TRACE": request("TRACE /api/runs HTTP/1.1", HOST),
    "DELETE": request("DELETE /api/runs/tiny HTTP/1.1", HOST),
    "a method of one's own": request("FROB /api/runs HTTP/1.1", HOST),
    "a read of a view": request("GET /api/runs/tiny/next HTTP/1.1", HOST),
    "large headers": request("GET / HTTP/1.1", HOST, f"X: {'a' * 40_000}"),
    "many headers": request("GET / HTTP/1.1", HOST, *[f"X{k}: a" for k in range(4000)]),
    "a negative length": request(NEXT, HOST, JSON, "Content-Length: -1"),
    "two lengths": request(NEXT, HOST, JSON, "Content-Length: 2", "Content-Length: 3", body="{}"),
    "a length of letters": request(NEXT, HOST, JSON, "Content-Length: abc"),
    "too large": request(NEXT, HOST, JSON, f"Content-Length: {BODY + 1}", body="x" * (BODY + 1)),
    "chunks of no size": request(NEXT, HOST, JSON, "Transfer-Encoding: chunked", body="zz\r\n{}\r\n0\r\n\r\n"),
    "an unknown coding": request(NEXT, HOST, JSON, "Transfer-Encoding: gzip", body="{}"),
    "no type": request(NEXT, HOST, "Content-Length: 2", body="{}"),
    "UTF-16": request(NEXT, HOST, JSON, "Content-Length: 4", body="{\0}\0"),
    "another protocol": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 40 + b"\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\nConnection: close\r\n\r\n",
    "a line": b"hello\r\n\r\n",
}


@pytest.mark.parametrize("name", REQUESTS)
def test_every_refusal_is_a_line_of_json(small: Served, name: str) -> None:
    asked = REQUESTS[name]
    for sent in (asked, asked.replace(TOKEN.encode(), b"\xff\xfe not it")):
        status, body = talk(small.port, sent)
        assert 400 <= status < 500, body
        found = json.loads(body)
        assert list(found) == ["error"]
        assert "\n" not in found["error"]
        assert str(Path(server.__file__).parent) not in found["error"]


def test_websockets_are_not_spoken(small: Served) -> None:
    upgrade = ("Upgrade: websocket", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Version: 13")
    with_token = request("GET /ws HTTP/1.1", HOST, *upgrade).replace(b"Connection: close", b"Connection: upgrade")
    with socket.create_connection(("127.0.0.1", small.port), timeout=20) as line:
        line.sendall(with_token)
        assert line.recv(65536).startswith(b"HTTP/1.1 404")


def test_a_broken_chunk_behind_an_answer_is_no_error_of_the_server(small: Served) -> None:
    """The answer is there before the body: its second piece is no chunk, when nothing can be answered any more."""
    begun = request(NEXT, HOST, JSON, "Transfer-Encoding: chunked", token=False).replace(b"Connection: close\r\n", b"")
    with socket.create_connection(("127.0.0.1", small.port), timeout=20) as line:
        line.sendall(begun)
        found = b""
        while not found.endswith(b"}"):
            found += line.recv(65536)
        assert found.startswith(b"HTTP/1.1 401")
        line.sendall(b"zz\r\n\r\n")
        assert line.recv(65536) == b"", "closed"


def test_a_broken_body_of_a_head_is_answered_by_a_head(small: Served) -> None:
    head = request("HEAD /api/runs/tiny/next HTTP/1.1", HOST, JSON, "Transfer-Encoding: chunked", body="zz\r\n")
    status, body = talk(small.port, head)
    assert status in (400, 405)
    assert body == b""


def test_requests_in_one_piece_are_answered_in_turn(small: Served) -> None:
    one = request("GET /api/runs/none HTTP/1.1", HOST).replace(b"Connection: close\r\n", b"")
    with socket.create_connection(("127.0.0.1", small.port), timeout=20) as line:
        line.sendall(one * 50 + b"hello\r\n\r\n")
        found = b""
        while piece := line.recv(65536):
            found += piece
    assert found.count(b"HTTP/1.1 404") == 50
    assert found.count(b"HTTP/1.1 400") == 1


# What it is asked for -------------------------------------------------------------------------------------

ODD = [
    "NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1" + "0" * 400, "-1" + "0" * 400, "1" + "0" * 5000, "null",
    "true", "[]", "{}", "[" * 30_000, '"\\ud800"', '"\\udc80x"', '"\\u0000"', '"龘"', f'"{"a" * 5000}"', "0.5", "-1",
]  # fmt: skip
FIELDS = {
    "next": ("text", "temperature", "top_k", "top_p"),
    "generate": ("text", "temperature", "top_k", "top_p", "length", "seed"),
    "activations": ("text", "layer", "signal", "unit"),
    "similar": ("text", "layer", "begin", "end"),
    "gradients": ("text", "tau"),
}


@pytest.mark.parametrize("view", FIELDS)
def test_odd_values_of_every_field_are_refused(small: Served, view: str) -> None:
    with httpx.Client(headers={**small.headers, "Content-Type": "application/json"}, timeout=60) as client:
        for name in FIELDS[view]:
            for value in ODD:
                text = "" if name == "text" else '"text": "the network keeps", '
                content = f'{{{text}"{name}": {value}}}'
                answer = client.post(f"{small.address}/api/runs/tiny/{view}", content=content)
                assert answer.status_code in (200, 400), (name, value[:20], answer.text)
                if value not in ("0.5", "-1", '"\\u0000"', '"龘"'):
                    assert answer.status_code == 400, (name, value[:20])
                if answer.status_code == 400:
                    assert answer.json()["error"]
                    assert len(answer.content) < 700, "no echo of what was sent"


def test_json_has_finite_numbers_and_any_characters() -> None:
    content = {"a": [float("nan"), (1.5, -float("inf"))], "\udcff": "\ud800 词", "b": {"c": float("inf")}}
    found = json.loads(encode_json(content))
    assert found == {"a": [None, [1.5, None]], "\udcff": "\ud800 词", "b": {"c": None}}
    assert "词".encode() in encode_json(content)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e30])
def test_a_model_of_odd_weights_has_answers_without_nan(copied: Served, tmp_path: Path, value: float) -> None:
    rewritten(tmp_path / "tiny", lambda w: torch.full_like(w, value))
    for view in ("next", "activations", "similar", "gradients", "unfold", "example", "generate"):
        answer = post(copied, f"tiny/{view}", {"text": "the network keeps"})
        assert answer.status_code in (200, 409), (view, answer.text)
        assert "NaN" not in answer.text
        assert "Infinity" not in answer.text


# Where it comes from --------------------------------------------------------------------------------------

LINK = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
FRAME = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}


@pytest.mark.parametrize(
    ("site", "others", "status"),
    [
        ("same-origin", {}, 200),
        ("none", LINK, 200),
        ("same-site", LINK, 200),
        ("same-site", FRAME, 403),
        ("same-site", {}, 403),
        ("cross-site", {}, 403),
        ("cross-site", LINK, 403),
        ("nonsense", {}, 403),
    ],
)
def test_the_site_of_a_request_counts_without_an_origin(small: Served, site: str, others: Any, status: int) -> None:
    headers = {**small.headers, **others, "Sec-Fetch-Site": site}
    assert httpx.get(small.address, headers=headers).status_code == status
    headers["Content-Type"] = "application/json"
    answer = httpx.post(f"{small.address}/api/runs/tiny/next", content="{}", headers=headers)
    assert answer.status_code == (200 if site in ("same-origin", "none") else 403), "a link is followed with GET"


@pytest.mark.parametrize(
    "origin", ["null", "http://evil.example", "http://127.0.0.1:1", "", "127.0.0.1", "http://a@127.0.0.1"]
)
def test_other_origins_are_refused(small: Served, origin: str) -> None:
    assert httpx.get(small.address, headers={**small.headers, "Origin": origin}).status_code == 403
    assert httpx.get(small.address, headers={**small.headers, "Origin": small.address}).status_code == 200


# Files that change --------------------------------------------------------------------------------------------


def test_a_cell_swapped_in_after_the_first_opening_is_not_run(copied: Served, tmp_path: Path) -> None:
    assert post(copied, "tiny/next", {"text": "the"}).status_code == 200
    mark = tmp_path / "ran"
    (tmp_path / "mine.py").write_text(
        f"import pathlib\npathlib.Path({str(mark)!r}).touch()\n"
        "from recur.cells import GRU\nclass Mine(GRU): name = ''\n"
    )
    run = Run.open(tmp_path / "tiny", writing=True)
    run.write_config(run.config_text().replace('cell = "gru"', f'cell = "{tmp_path}/mine.py:Mine"'))
    run.release()
    for view in ("activations", "gradients", "next", "generate"):
        assert post(copied, f"tiny/{view}", {"text": "the network"}).status_code in (400, 409)
    assert not mark.exists()


DAMAGE: dict[str, tuple[str, bytes | None]] = {
    "no weights": ("model.safetensors", None),
    "a letter for weights": ("model.safetensors", b"x"),
    "nothing for weights": ("model.safetensors", b""),
    "a configuration that is none": ("config.toml", b"\xff\xfe"),
    "a manifest that is a list": ("manifest.json", b"[]"),
    "a deep manifest": ("manifest.json", b"[" * 100_000),
    "a vocabulary that is none": ("vocab.json", b'{"tokens": 3}'),
    "a deep vocabulary": ("vocab.json", b'{"a":' * 100_000),
    "odd metrics": ("metrics.jsonl", b'{"step": [1]}\n[[[\n{"step": 1e999, "a": NaN}\n[]\n' + b"[" * 100_000),
    "odd samples": ("samples.jsonl", b'{"step": [1], "text": {}}\n{"step": {}}\n[]\n' + b"[" * 100_000),
    "an odd baseline": ("baselines.json", b'{"models": [{"name": [], "value": {}}, 3], "metric": "valid_perplexity"}'),
    "no run": ("", None),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_run_that_changes_while_it_is_loaded_is_refused_by_a_line(copied: Served, tmp_path: Path, kind: str) -> None:
    assert post(copied, "tiny/activations", {"text": "the network"}).status_code == 200
    name, content = DAMAGE[kind]
    if not name:
        shutil.rmtree(tmp_path / "tiny")
    elif content is None:
        (tmp_path / "tiny" / name).unlink()
    else:
        (tmp_path / "tiny" / name).write_bytes(content)
    refused = 404 if kind == "no run" else 409
    for view in ("next", "gradients", "generate"):
        answer = post(copied, f"tiny/{view}", {"text": "the network", "length": 3})
        beside = name in ("manifest.json", "samples.jsonl", "baselines.json", "metrics.jsonl")  # the model is as it was
        shown = view == "gradients" and name == "metrics.jsonl"
        assert answer.status_code == (200 if beside and not shown else refused), (view, answer.text)
        assert str(tmp_path) not in answer.text
    copied.studio.folder._loaded.clear()
    fine = name in ("samples.jsonl", "baselines.json", "metrics.jsonl")
    assert post(copied, "tiny/next", {"text": "the"}).status_code == (200 if fine else refused)
    curves = httpx.get(f"{copied.address}/api/runs/tiny", headers=copied.headers)
    assert curves.status_code == (404 if kind == "no run" else 200)
    listed = httpx.get(f"{copied.address}/api/runs", headers=copied.headers)
    assert listed.status_code == 200
    assert str(tmp_path) not in listed.text + curves.text


def rewritten(path: Path, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Other weights, written as whoever trains a run writes them."""
    run = Run.open(path, writing=True)
    weights = load_file(path / "model.safetensors")
    run.replace("model.safetensors", to_bytes({k: change(w) for k, w in weights.items()}, {}))
    run.commit()
    run.release()


def test_a_name_that_no_browser_can_ask_for_is_left_out(copied: Served, tmp_path: Path) -> None:
    try:
        shutil.copytree(tmp_path / "tiny", tmp_path / os.fsdecode(b"\xff"))
    except OSError:
        pytest.skip("this file system takes names of UTF-8 only")
    assert copied.studio.folder.names() == ["tiny"]
    assert httpx.get(f"{copied.address}/api/runs/%ff", headers=copied.headers).status_code == 404


def test_a_run_that_is_trained_on_answers_as_the_new_one(copied: Served, tmp_path: Path) -> None:
    before = post(copied, "tiny/next", {"text": "the"}).json()["bars"]
    model = copied.studio.folder.open("tiny")
    (tmp_path / "tiny" / ".metrics.jsonl.0123abcd.part").write_text("half")
    assert copied.studio.folder.open("tiny") is model, "what is being written beside it is not it"
    rewritten(tmp_path / "tiny", torch.neg)
    assert post(copied, "tiny/next", {"text": "the"}).json()["bars"] != before


def test_errors_name_files_and_no_folders(tmp_path: Path) -> None:
    text = f"{tmp_path}/runs/a/config.toml is damaged; see /home/someone/else/book.txt, 3/4 of 'runs' and https://a.b/c"
    said = "a/config.toml is damaged; see book.txt, 3/4 of 'runs' and https://a.b/c"
    assert without_folders(text, tmp_path / "runs") == said


# All of it at random -----------------------------------------------------------------------------------------------


def test_a_short_campaign_leaves_the_server_as_it_was(small: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "BLOCKED", 30.0)  # how long a neighbour waits is for the long form to say
    monkeypatch.setattr(http, "QUIET", 0.1)
    found = list(http.attack(http.Target(small.port, TOKEN), 1, range(300), 20))
    assert [attempt for attempt in found if attempt.failure is not None] == []
    assert len(found) == 300


def test_the_campaign_tells_what_is_wrong() -> None:
    sent = Hostile("", [b"GET / HTTP/1.1"], "read", True)

    def answer(status: int, body: bytes) -> bytes:
        head = f"HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        return head.encode() + body

    fine = answer(400, b'{"error":"no"}')
    assert http.judge(sent, fine + fine) is None
    assert http.judge(sent, fine + answer(500, b"oh")) is not None
    assert http.judge(sent, answer(404, b"Not Found")) is not None
    assert http.judge(sent, answer(200, b'{"a":NaN}')) is not None
