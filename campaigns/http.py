"""Hostile requests and slow sockets on the studio: no 500, no traceback, no hang, no NaN, no neighbour that waits."""

from __future__ import annotations

import contextlib
import json
import random
import re
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from campaigns.campaign import Attempt, dice
from campaigns.requests import Hostile, hostile

TRIES = 20_000
SLOW = 500
"""Sockets that are held open meanwhile; each that is closed is opened again."""
BATCH = 100
AT_ONCE = 12
BLOCKED = 2.0
"""Seconds after which a neighbour counts as blocked."""
HANG = 15.0
"""Seconds in which every request is answered or its connection closed."""
QUIET = 0.5
"""Seconds of silence after which a client shows that nothing more will come from it."""
SMUGGLED = 20
"""One attempt of so many sends two lengths, and a second request where one of them ends the first."""
UPLOADS = 50
"""One attempt of so many uploads texts in parallel."""
GROWTH = 300
"""MiB that the server may grow."""

TEXT = "the network keeps a word and the word is kept\n" * 60


class Target:
    """A server of a folder with a run named tiny."""

    asks = (b"GET /api/runs", b"POST /api/runs/tiny/next")
    """What an honest client asks in turn."""
    uploads = True
    """Whether it stores texts."""

    def __init__(
        self, port: int, token: str, process: subprocess.Popen[str] | None = None, log: Path | None = None
    ) -> None:
        self.port, self.token, self.process, self.log = port, token, process, log
        self.memory = 0.0

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=HANG)

    def hostile(self, dice: random.Random) -> Hostile:
        return hostile(dice, self.token)

    def special(self, dice: random.Random, number: int) -> Attempt | None:
        """An attempt that takes more than one request, at certain numbers."""
        if number % SMUGGLED == 3:
            return Attempt(number, "two lengths and a second request", smuggle(self, dice))
        if number % UPLOADS == 7 and self.uploads:
            return Attempt(number, "parallel uploads", upload(self, dice, number))
        return None

    def complaint(self) -> str | None:
        """What is wrong with the process itself."""
        if self.process is None or self.log is None:
            return None
        if self.process.poll() is not None:
            return f"the server ended with {self.process.returncode}"
        if "Traceback" in (said := self.log.read_text(errors="replace")):
            return f"a traceback: {said.strip().splitlines()[-1]}"
        status = Path(f"/proc/{self.process.pid}/status")
        if status.exists():
            now = int(re.findall(r"VmRSS:\s+(\d+) kB", status.read_text())[0]) / 1024
            self.memory = self.memory or now
            if now - self.memory > GROWTH:
                return f"the server has grown from {self.memory:.0f} to {now:.0f} MiB"
        return None


def studio() -> contextlib.AbstractContextManager[Target]:
    """`recur studio` over a run that was hardly trained."""
    return server_of("studio", ".", Target)


@contextlib.contextmanager
def server_of(verb: str, named: str, kind: type[Target], **texts: str) -> Iterator[Target]:
    """Serve a folder with a run named tiny, and further runs, each trained on its text."""
    with tempfile.TemporaryDirectory() as name:
        folder, log = Path(name), Path(name) / "log"
        recur = [sys.executable, "-m", "recur"]
        train = ["--cell", "gru", "--hidden-size", "8", "--steps", "2", "--threads", "1", "--no-baseline", "-q"]
        runs = folder / "runs"
        for run, text in {"tiny": TEXT, **texts}.items():
            (folder / f"{run}.txt").write_text(text)
            subprocess.run([*recur, "train", str(folder / f"{run}.txt"), *train, "--out", str(runs / run)], check=True,
                           stdout=subprocess.DEVNULL)  # fmt: skip
        (runs / "way-out").symlink_to("/etc")
        (runs / "not-a-run").mkdir()
        with log.open("w") as out:
            served = [str(runs / run) for run in (named, *texts)]
            command = [*recur, verb, *served, "--port", "0", "--json"]
            server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=out, text=True)
        try:
            assert server.stdout is not None
            said = json.loads(server.stdout.readline())
            port, token = re.findall(r":(\d+)(?:/\?token=(.*))?$", said["address"])[0]
            yield kind(int(port), token or said.get("token", ""), server, log)
        finally:
            server.terminate()
            server.wait(60)  # what runs has half a minute


def attempts(seed: int, numbers: Iterable[int]) -> Iterator[Attempt]:
    with studio() as target:
        yield from attack(target, seed, numbers, SLOW)


def attack(target: Target, seed: int, numbers: Iterable[int], slow: int) -> Iterator[Attempt]:
    """Make these attempts, so many sockets open meanwhile, and say how long a neighbour waited."""
    waited: list[float] = []
    neighbour(target, 1)  # the run is loaded: what that takes is not the attack's doing
    with ThreadPoolExecutor(AT_ONCE) as pool, slow_sockets(target, slow) as reopened:
        for batch in batches(list(numbers)):
            made = [pool.submit(attempt, target, seed, number) for number in batch]
            begun, complaint = len(waited), None
            while not all(one.done() for one in made) or len(waited) == begun:
                seconds, wrong = neighbour(target, len(waited))
                waited.append(seconds)
                complaint = complaint or wrong
                time.sleep(0.02)
            yield from (one.result() for one in made)
            complaint = complaint or target.complaint()
            if complaint is not None:
                yield Attempt(batch[-1], f"after {batch[0]} … {batch[-1]}", complaint)
                if target.process is not None and target.process.poll() is not None:
                    return
    ordered = sorted(waited)
    p50, p99 = statistics.median(ordered), ordered[int(0.99 * (len(ordered) - 1))]
    times = f"p50 {p50 * 1e3:.0f} ms, p99 {p99 * 1e3:.0f} ms, most {ordered[-1] * 1e3:.0f} ms"
    print(f"neighbour: {len(waited)} requests, {times}; {slow} slow sockets, opened again {reopened[0]} times")


def batches(numbers: list[int]) -> Iterator[list[int]]:
    for k in range(0, len(numbers), BATCH):
        yield numbers[k : k + BATCH]


def neighbour(target: Target, k: int) -> tuple[float, str | None]:
    """How long an honest request takes, and what is wrong with its answer."""
    body = b'{"text": "the network"}'
    ask = target.asks[k % 2]
    head = b"%s HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n" % (ask, target.token.encode())
    more = b"Content-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(body), body)
    begun = time.monotonic()
    try:
        with target.connect() as line:
            line.sendall(head + more)
            answer = b"".join(iter(lambda: line.recv(65536), b""))
    except OSError as error:
        return time.monotonic() - begun, f"a neighbour is cut off: {error}"
    seconds = time.monotonic() - begun
    if not answer.startswith(b"HTTP/1.1 200"):
        return seconds, f"a neighbour is told {answer[:60]!r}"
    return seconds, f"a neighbour waited {seconds:.1f} s" if seconds > BLOCKED else None


# One request ----------------------------------------------------------------------------------------------------


def attempt(target: Target, seed: int, number: int) -> Attempt:
    sent = target.hostile(dice(seed, number))
    try:
        special = target.special(dice(seed, number), number)
        if special is not None:
            return special
        return Attempt(number, sent.what, judge(sent, talk(target, sent)))
    except TimeoutError:
        return Attempt(number, sent.what, f"neither answered nor closed after {HANG:g} s")


def smuggle(target: Target, dice: random.Random) -> str | None:
    """Send a request with Content-Length and Transfer-Encoding, and another behind it: one 400, then the end."""
    lengths = ["Content-Length: 5", dice.choice(["Transfer-Encoding: chunked", "transfer-encoding: CHUNKED"])]
    dice.shuffle(lengths)
    ask = target.asks[1].decode()
    head = "\r\n".join([f"{ask} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {target.token}", *lengths])
    with target.connect() as line:
        line.sendall(f"{head}\r\n\r\n0\r\n\r\n".encode() + _head(target.asks[0].decode(), target.token) + b"\r\n")
        found = b""
        with contextlib.suppress(ConnectionError):
            while piece := line.recv(65536):
                found += piece
    if not found.startswith(b"HTTP/1.1 400"):
        return f"two lengths are answered by {found[:60]!r}"
    return None if found.count(b"HTTP/1.1 ") == 1 else "the request behind two lengths is answered"


def upload(target: Target, dice: random.Random, number: int) -> str | None:
    """Announce more bytes than all texts may have, in parallel: what is stored and announced stays below the quota."""
    count, size = 20, 250 << 20  # 5,000 MiB of 4,096
    lines = [target.connect() for _ in range(count)]
    refused = 0
    try:
        for k, line in enumerate(lines):
            name = f"PUT /api/texts/c{number}-{k}.txt"
            line.sendall(_head(name, target.token) + b"Content-Length: %d\r\n\r\n" % size + b"a word\n" * 9)
        for line in lines:
            line.settimeout(QUIET)
            with contextlib.suppress(TimeoutError):
                refused += line.recv(100).startswith(b"HTTP/1.1 413")
    except ConnectionError:
        refused += 1
    finally:
        for line in lines:
            line.close()
    return None if refused >= count - (4 << 30) // size else f"{count - refused} uploads of 250 MiB under 4 GiB"


def talk(target: Target, sent: Hostile) -> bytes | None:
    """All that comes back; None where nothing was waited for, or the connection was cut before it came."""
    with target.connect() as line:
        found = b""
        try:
            for piece in sent.pieces:
                line.sendall(piece)
            if sent.ending in ("close", "reset"):
                if sent.ending == "reset":
                    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return None
            if sent.ending == "half":
                line.shutdown(socket.SHUT_WR)
            line.settimeout(QUIET)
            with contextlib.suppress(TimeoutError):
                while piece := line.recv(65536):
                    found += piece
                return found
            line.shutdown(socket.SHUT_WR)
            line.settimeout(HANG)
            while piece := line.recv(65536):
                found += piece
        except TimeoutError:
            raise
        except OSError:  # the server has closed it: what was sent so far was enough to tell
            return found or None
    return found


def judge(sent: Hostile, answer: bytes | None) -> str | None:
    """What is wrong with an answer."""
    if answer is None:
        return None
    if b"HEAD" in b"".join(sent.pieces):  # answers without the bodies that their lengths speak of
        return next(
            (f"{code.decode()} for HEAD" for code in re.findall(rb"^HTTP/1.1 (5\d\d)", answer) if code != b"503"), None
        )
    for status, kind, body in answers(answer):
        if status >= 500 and status != 503:
            return f"{status}: {body[:80]!r}"
        if status >= 400 and not _is_error(body):
            return f"{status} without a line of JSON: {body[:80]!r}"
        if kind == b"application/json" and body and not _is_json(body):
            return f"no JSON: {body[:80]!r}"
        if tempfile.gettempdir().encode() in body:
            return f"a path of this machine: {body[:200]!r}"
    return None


def answers(content: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Status, type and body of the responses that stand one behind the other; what is cut off is left out."""
    while content.startswith(b"HTTP/1.1 "):
        head, end, content = content.partition(b"\r\n\r\n")
        if not end:
            return
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        status = int(head[9:12])
        if status < 200 or status == 304:
            continue
        length = fields.get(b"content-length", b"%d" % len(content))
        if len(content) < int(length):
            return
        body, content = content[: int(length)], content[int(length) :]
        yield status, fields.get(b"content-type", b""), body


def _is_json(body: bytes) -> bool:
    def refuse(name: str) -> None:
        raise ValueError(name)

    try:
        json.loads(body, parse_constant=refuse)
    except ValueError:
        return False
    return True


def _is_error(body: bytes) -> bool:
    return _is_json(body) and list(json.loads(body)) == ["error"] and b"\n" not in body


# Sockets that are slow --------------------------------------------------------------------------------------------


@contextlib.contextmanager
def slow_sockets(target: Target, count: int) -> Iterator[list[int]]:
    """So many connections that say nothing, or little by little, or never read; how often one was opened again."""
    ended, reopened = threading.Event(), [0]
    lines: list[socket.socket | None] = [None] * count

    def hold() -> None:
        while not ended.is_set():
            for k, line in enumerate(lines):
                if ended.is_set():
                    break
                try:
                    if line is None:
                        lines[k] = line = socket.socket()
                        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # so that unread answers are felt
                        line.settimeout(5)
                        line.connect(("127.0.0.1", target.port))
                        line.sendall(BEGINNINGS[k % len(BEGINNINGS)](target.token))
                        line.setblocking(False)
                    elif k % len(BEGINNINGS) < TRICKLING:
                        line.send(b"a")
                    elif line.recv(1, socket.MSG_PEEK) == b"":
                        raise ConnectionResetError
                except BlockingIOError:
                    pass
                except OSError:
                    if line is not None:
                        line.close()
                    lines[k] = None
                    reopened[0] += 1
            ended.wait(0.5)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        yield reopened
    finally:
        ended.set()
        thread.join()
        for line in lines:
            if line is not None:
                line.close()


def _head(ask: str, token: str) -> bytes:
    return f"{ask} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n".encode()


BEGINNINGS: list[Callable[[str], bytes]] = [
    lambda token: b"GET /",
    lambda token: b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ",
    lambda token: (
        _head("POST /api/runs/tiny/next", token) + b"Content-Type: application/json\r\nContent-Length: 60000\r\n\r\n"
    ),
    lambda token: b"",
    lambda token: (_head("GET /page/app.js", token) + b"\r\n") * 60,  # and none of the answers is read
    lambda token: _head("GET /", token) + b"\r\n",
]
TRICKLING = 3
"""The first so many go on, a letter at a time."""
