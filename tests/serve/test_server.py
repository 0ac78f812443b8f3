"""The server itself: stopped, killed, reloaded; slow clients and those that leave; limits, metrics, and one line for
every mistake."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

import recur
from recur.cli.app import run
from tests.serve.conftest import Serving


def until(what: Any, seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def newer(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`chars`, trained a little longer."""
    folder = tmp_path_factory.mktemp("newer")
    shutil.copytree(runs / "chars", folder / "chars")
    shutil.copy(runs / "book.txt", folder)
    assert run(["resume", str(folder / "chars"), "--steps", "40", "-q"]) == 0
    return folder / "chars"


# A process ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def process(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    command = [sys.executable, "-m", "recur", "serve", *arguments, "--port", "0", "--json", "--device", "cpu"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert server.stdout is not None
        yield server, json.loads(server.stdout.readline())
    finally:
        if server.poll() is None:
            server.kill()
        server.communicate(timeout=20)


def test_signals_and_newer_weights(runs: Path, newer: Path, tmp_path: Path) -> None:
    """SIGHUP loads newer weights, --watch without being told. SIGTERM: streams go on to their end, a WebSocket is
    told, nothing new is taken, and sessions are on disk."""
    spill, copy = tmp_path / "sessions", tmp_path / "chars"
    shutil.copytree(runs / "chars", copy)
    with process(str(copy), "--spill", str(spill), "--grace", "120", "--watch") as (server, found):
        headers = {"Authorization": f"Bearer {found['token']}"}
        client = httpx.Client(base_url=found["address"], headers=headers, timeout=30)

        def loaded(times: int) -> bool:
            return f"recur_reloads_total {times}\n" in client.get("/metrics").text

        assert loaded(0)
        manifest = (copy / "manifest.json").stat()
        shutil.copytree(newer, copy, dirs_exist_ok=True)
        os.utime(copy / "manifest.json", ns=(manifest.st_atime_ns, manifest.st_mtime_ns))  # --watch sees no change
        server.send_signal(signal.SIGHUP)
        until(lambda: loaded(1))
        (copy / "manifest.json").write_text("{")  # half written: it stays as it was, and is tried again
        shutil.copytree(runs / "chars", copy, dirs_exist_ok=True)
        os.utime(copy / "manifest.json")
        until(lambda: loaded(2))
        session = client.post("/v1/sessions", json={"input": "the"}).json()["id"]
        address = found["address"].replace("http", "ws") + "/v1/step"
        texts: list[str] = []
        begun = threading.Barrier(4)

        def stream() -> None:
            ask = {"prompt": "the", "max_tokens": 2000, "stream": True}
            own = httpx.Client(base_url=found["address"], headers=headers, timeout=30)
            with own, own.stream("POST", "/v1/completions", json=ask) as answer:
                pieces = answer.iter_text()
                first = next(pieces)
                begun.wait(20)
                texts.append(first + "".join(pieces))

        threads = [threading.Thread(target=stream) for _ in range(3)]
        for thread in threads:
            thread.start()
        begun.wait(20)
        with connect(address, additional_headers=headers) as line:
            server.send_signal(signal.SIGTERM)
            with pytest.raises(ConnectionClosed) as closed:
                line.recv(10)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1012
        for thread in threads:
            thread.join(120)
        assert [text.count('"finish_reason":null') for text in texts] == [2000] * 3
        assert all(text.endswith("data: [DONE]\n\n") for text in texts)
        assert server.wait(60) == 0
        with pytest.raises(httpx.TransportError):
            client.get("/health")
        client.close()
        assert (spill / f"{session}.safetensors").is_file()


def test_killed_and_begun_again(runs: Path, tmp_path: Path) -> None:
    """What was on disk is there, what was in memory is not, and nothing is in the way of the next server."""
    spill = str(tmp_path / "sessions")
    with process(str(runs / "chars"), "--spill", spill, "--sessions", "1") as (server, found):
        headers = {"Authorization": f"Bearer {found['token']}"}
        with httpx.Client(base_url=found["address"], headers=headers, timeout=30) as client:
            stored, lost = (client.post("/v1/sessions", json={"input": "the"}).json()["id"] for _ in range(2))
        server.kill()
        server.wait(10)
    again = Serving(runs / "chars", tokens=(found["token"],), spill=Path(spill))
    try:
        assert again.get(f"/v1/sessions/{stored}")["steps"] == 3
        again.get(f"/v1/sessions/{lost}", 404)
    finally:
        again.stop()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["nowhere"], "is not a run"),
        (["chars", "--host", "0.0.0.0"], "needs --token"),
        (["chars", "--token", "x", "--no-token"], "exclude each other"),
        (["chars", "--port", "70000"], "--port must lie in"),
        (["chars", "--port", "TAKEN"], "in use"),
        (["chars", "--idle", "0"], "--idle must be"),
        (["chars", "--sessions", "0"], "--sessions must lie in"),
        (["chars", "chars"], "two runs have the same name"),
        ([], "missing argument RUN"),
    ],
)
def test_a_mistake_is_one_line(runs: Path, arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        given = [str(runs / a) if a == "chars" else a for a in arguments]
        given = [str(taken.getsockname()[1]) if a == "TAKEN" else a for a in given]
        assert run(["serve", *given]) == 2
    said = capsys.readouterr().err.strip()
    assert line in said
    assert "\n" not in said


# Newer weights ------------------------------------------------------------------------------------------------------


def test_newer_weights_take_over_without_a_dropped_request(
    runs: Path, newer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While clients ask all the time: every answer is of the old weights or of the new ones, and sessions end with
    those they began with."""
    copy = tmp_path / "chars"
    shutil.copytree(runs / "chars", copy)
    ask = {"prompt": "the net", "max_tokens": 24, "temperature": 0}
    monkeypatch.setattr("recur.serve.registry.SWEEP", 0.05)
    made = Serving(copy)
    try:
        old = made.post("/v1/completions", **ask)["choices"][0]["text"]
        session = made.post("/v1/sessions", 201, input="the net")["id"]
        answers: list[tuple[int, str]] = []
        ended = threading.Event()

        def client() -> None:
            with httpx.Client(base_url=made.address, headers=made.headers, timeout=30) as own:
                while not ended.is_set():
                    answer = own.post("/v1/completions", json=ask)
                    fine = answer.status_code == 200
                    answers.append((answer.status_code, answer.json()["choices"][0]["text"] if fine else answer.text))

        threads = [threading.Thread(target=client) for _ in range(2)]
        for thread in threads:
            thread.start()
        until(lambda: answers)
        (copy / "manifest.json").write_text("{")  # half written: it stays as it was
        watching = asyncio.run_coroutine_threadsafe(made.registry.watch(), made.registry.loop)
        assert asyncio.run_coroutine_threadsafe(made.registry.reload(), made.registry.loop).result(20) == []
        shutil.copytree(newer, copy, dirs_exist_ok=True)
        new = recur.load(copy, device="cpu").generate("the net", 24, top_k=1)[0]
        assert new != old
        until(lambda: answers[-1][1] == new)
        watching.cancel()
        assert (
            asyncio.run_coroutine_threadsafe(made.registry.reload(), made.registry.loop).result(20) == []
        )  # it is the newest
        ended.set()
        for thread in threads:
            thread.join()
        assert {status for status, _ in answers} == {200}
        assert {text for _, text in answers} == {old, new}
        went_on = made.post("/v1/completions", **{**ask, "prompt": ""}, session=session)
        assert went_on["choices"][0]["text"] == old
    finally:
        made.stop()


# Clients ------------------------------------------------------------------------------------------------------------


def ask_raw(served: Serving, body: dict[str, Any]) -> socket.socket:
    """A request whose answer nobody reads yet."""
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    line.connect(("127.0.0.1", served.port))
    content = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {served.headers['Authorization']}\r\n"
    more = f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    line.sendall(head.encode() + more.encode() + content)
    return line


def test_who_reads_slowly_or_leaves_blocks_nobody(runs: Path) -> None:
    made = Serving(runs / "chars", max_tokens=50_000, grace=2.0)
    try:
        # The system would take megabytes that nobody reads; connections have what the listening socket has.
        made.server.servers[0].sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)
        endless = {"prompt": "the", "max_tokens": 50_000, "stream": True, "logprobs": 20}
        slow = [ask_raw(made, endless) for _ in range(2)]
        until(lambda: made.registry.engine.active == 2)

        def stand_still() -> bool:
            """Whether they are passed over for good, and not only until the server has sent what it has."""
            before = made.registry.engine.counts.written["chars"]
            for _ in range(10):
                made.get("/health")  # a turn of the server's
            return all(row.paused for row in made.registry.engine._rows) and counts.written["chars"] == before

        counts = made.registry.engine.counts
        until(stand_still, 40)
        written = counts.written["chars"]
        assert written < 10_000  # of 100,000 that were asked for
        made.post("/v1/completions", prompt="the", max_tokens=50)
        assert 50 <= counts.written["chars"] - written < 500  # of theirs no more than what the system takes meanwhile
        for line in slow:
            line.close()
        until(lambda: made.registry.engine.active == 0)  # and what they have left is called off
        until(lambda: made.registry.in_flight == 0)
        assert made.registry.models.get("chars").pool.taken == 0
        whole = ask_raw(made, {"prompt": "the", "max_tokens": 50_000})
        until(lambda: made.registry.engine.active == 1)
        whole.close()
        until(lambda: made.registry.engine.active == 0)
        assert made.registry.models.get("chars").pool.taken == 0
    finally:
        made.stop()


def test_limits(runs: Path) -> None:
    made = Serving(runs / "chars", body=2000, rate=1.0, max_tokens=5)
    try:
        assert made.http.post("/v1/completions", json={"prompt": "t" * 3000}).status_code == 413
        made.post("/v1/completions", 400, max_tokens=6)
        statuses = [made.http.post("/tokenize", json={}).status_code for _ in range(12)]
        assert statuses.count(429) >= 2
        assert made.http.post("/tokenize", json={}).headers["retry-after"] == "1"
    finally:
        made.stop()


def test_a_request_has_its_time(runs: Path) -> None:
    made = Serving(runs / "chars", seconds=0.05, max_tokens=10**6)
    try:
        assert "took more than" in made.post("/v1/completions", 503, max_tokens=10**6)["error"]["message"]
        until(lambda: made.registry.engine.active == 0)  # and nobody works on it any more
        made.registry.draining = True
        assert "is stopping" in made.post("/v1/completions", 503)["error"]["message"]
        assert made.get("/health", 503) == {"status": "stopping"}
    finally:
        made.stop()


def test_health_and_metrics(served: Serving) -> None:
    assert httpx.get(f"{served.address}/health").json() == {"status": "ok"}
    assert httpx.get(f"{served.address}/metrics").status_code == 401
    parser = pytest.importorskip("prometheus_client.parser", reason="needs prometheus-client")
    served.post("/v1/completions", model="chars", prompt="the", max_tokens=3)
    answer = served.http.get("/metrics")
    families = {family.name: family for family in parser.text_string_to_metric_families(answer.text)}
    assert families["recur_tokens_written"].type == "counter"
    assert families["recur_sessions"].type == "gauge"
    histogram = families["recur_batch_rows"]
    assert histogram.type == "histogram"
    buckets = [sample.value for sample in histogram.samples if sample.name.endswith("_bucket")]
    assert buckets == sorted(buckets)
    assert buckets[-1] == next(s.value for s in histogram.samples if s.name.endswith("_count")) > 0


def test_other_sites_are_refused(served: Serving) -> None:
    for headers in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        answer = served.http.get("/v1/models", headers=headers)
        assert answer.status_code in (400, 403)
        assert answer.json()["error"]["message"]
    address = served.address.replace("http", "ws") + "/v1/step"
    with pytest.raises(Exception, match="403"), connect(address, origin="http://evil.example",
                                                        additional_headers=served.headers):  # fmt: skip
        pass


def test_what_is_no_handshake_is_answered_as_http(served: Serving) -> None:
    asked = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    assert served.http.get("/health", headers=asked).json() == {"status": "ok"}  # it lacks a key
    whole = {**asked, "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="}
    for wrong in ({"Sec-WebSocket-Version": "8"}, {"Sec-WebSocket-Key": "short"}, {"Sec-WebSocket-Key": "no base64"}):
        answer = served.http.get("/v1/step", headers={**whole, **wrong})
        assert answer.status_code == 405
        assert answer.json()["error"]["message"]
    answer = served.http.post("/v1/completions", headers=whole, json={"model": "chars", "max_tokens": 2})
    assert answer.json()["usage"]["completion_tokens"] == 2


def test_hostile_requests(runs: Path) -> None:
    """A few of `python -m campaigns serve`."""
    from campaigns.http import attack
    from campaigns.serve import Served

    made = Serving(runs / "chars", tokens=("tiny",), seconds=5.0)
    try:
        found = list(attack(Served(made.port, "tiny"), 0, range(120), slow=6))
        assert len(found) == 120
        assert [attempt for attempt in found if attempt.failure is not None] == []
        until(lambda: made.registry.in_flight == 0)
        until(lambda: made.registry.models.get("chars").pool.taken == len(made.registry.sessions))
        assert not [key for key in made.registry.requests if key[1] >= 500 and key[1] != 503]
    finally:
        made.stop()
