"""Requests that nobody should send: HTTP from a grammar whose every part may go wrong."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

VIEWS = {
    "next": ("text", "temperature", "top_k", "top_p"),
    "generate": ("text", "temperature", "top_k", "top_p", "length", "seed"),
    "activations": ("text", "layer", "signal", "unit"),
    "similar": ("text", "layer", "begin", "end"),
    "gradients": ("text", "tau"),
    "samples": (),
    "predict": ("input",),
    "mistakes": ("right", "said"),
    "saliency": ("text",),
    "example": (),
    "unfold": (),
    "step": ("text", "cell", "equations", "units", "seed", "weights", "x", "start", "held", "shown"),
    "nothing": ("text",),
}
METHODS = [
    "GET", "POST", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "PATCH", "CONNECT", "FROB", "get", "G\0T", "",
    "A" * 300,
]  # fmt: skip
NAMES = [
    "tiny", "..", ".", "%2e%2e", "..%2f..%2fetc%2fpasswd", "%00", "tiny%00", "%", "%zz", "%ff%fe", "a" * 3000,
    "tiny/..", "%0d%0aX: y", "way-out", "not-a-run", "\\..\\x", "龘", "%ed%a0%80", "tiny?x", "tiny#x", "*", "~root",
    "$(id)", "'\"<script>",
]  # fmt: skip
FILES = [
    "app.js", "style.css", "../app.py", "%2e%2e/app.py", "..%2fguard.py", "%00", "a" * 4000, "app.js%00.py", "",
]  # fmt: skip
HOSTS = [
    "127.0.0.1", "localhost", "[::1]", "[", "]", "[::1", "127.0.0.1:abc", "127.0.0.1:99999", "evil.example", "",
    "a@127.0.0.1", "127.0.0.1#", "127.0.0.1\t", "ÿ", "127.0.0.1, evil.example", "a" * 2000, "//127.0.0.1",
    "127.0.0.1/",
]  # fmt: skip
ORIGINS = [
    "null", "http://[", "http://evil.example", "http://127.0.0.1", "", "://", "http://127.0.0.1:99999", "file://",
    "ÿ",
]  # fmt: skip
SITES = [
    "same-origin", "none", "same-site", "cross-site", "", "ÿ", "same-origin, cross-site",
]  # fmt: skip
TYPES = [
    "application/json", "application/json; charset=utf-16", "text/plain", "", "application/JSON ;",
    "multipart/form-data", "ÿ",
]  # fmt: skip
COOKIES = [
    "a=b", "recur-token=x", "=", ";;;", "a,b/c:d=1", 'recur-token-80="\\', "a=" + "b" * 5000, "ÿ=ÿ", "$Path=/",
]  # fmt: skip
EXTRA = [
    "Range: bytes=0-,0-,0-", "Range: bytes=99999999999999999999-", "If-Modified-Since: ÿ", "Expect: 100-continue",
    "Expect: x", "Upgrade: websocket\r\nConnection: upgrade", "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings",
    "Connection: keep-alive", "Accept-Encoding: ÿ", "Content-Encoding: gzip", "X-Forwarded-For: ,,,ÿ",
    "X-Forwarded-Proto: [", "X: a\r\n folded", "X : a", ": a", "X", "X: \0", "X: \x7f", "X: " + "a" * 20_000,
    "\r\n".join(f"X{k}: a" for k in range(300)), "Authorization: Basic ÿ", "Authorization:",
    "Sec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document",
]  # fmt: skip
VALUES = [
    "NaN", "-Infinity", "1e400", "1" + "0" * 400, "1" + "0" * 5000, "null", "true", "[]", "{}", "[" * 5000,
    '"\\ud800"', '"\\u0000"', '"龘"', '"the network keeps a word"', '""', "0", "1", "-1", "0.5", "3", "1e308", "-0.0",
    "1e-320", "2000", '"' + "the word " * 400 + '"', '"' + "a" * 60_000 + '"', "\xff", "'a'", "00", "1_000", '"\\q"',
    '"state h"',
]  # fmt: skip


class Hostile(NamedTuple):
    """One attempt: what is sent in which pieces, and how it ends."""

    what: str
    pieces: list[bytes]
    ending: str
    """`read` the answer, `close` or `reset` before it, or close the sending half first (`half`)."""
    whole: bool
    """Whether it must be answered: nothing of its framing was touched."""


Views = dict[str, tuple[str, ...]]
"""The fields of requests, by what their addresses end in."""


def hostile(
    dice: random.Random, token: str, target_of: Callable[[random.Random], str] | None = None, views: Views = VIEWS
) -> Hostile:
    """A request to the studio, or to a server whose addresses and fields are these."""
    method = dice.choice(METHODS) if dice.random() < 0.3 else dice.choice(["GET", "POST", "POST"])
    target = (target_of or _target)(dice)
    body = _body(dice, target, views) if method == "POST" or dice.random() < 0.1 else b""
    headers = _headers(dice, token)
    framing, sent, whole = _framed(dice, body)
    version = (
        dice.choice(["HTTP/1.0", "HTTP/2.0", "HTTP/9.9", "http/1.1", "HTTP", ""])
        if dice.random() < 0.05
        else "HTTP/1.1"
    )
    head = "\r\n".join([f"{method} {target} {version}", *headers, *framing, "", ""]).encode("latin-1", "replace")
    content = head + sent
    how = "as it is"
    if dice.random() < 0.3:
        how, content, whole = "mutated", _mutated(dice, content), False
    if dice.random() < 0.08:
        content, how = content * dice.randrange(2, 30), f"{how}, again and again"
    cuts = sorted(dice.randrange(len(content) + 1) for _ in range(dice.choice([0, 0, 0, 1, 3, 9])))
    pieces = [content[a:b] for a, b in zip([0, *cuts], [*cuts, len(content)], strict=True)]
    ending = dice.choices(["read", "half", "close", "reset"], [12, 2, 1, 1])[0]
    return Hostile(f"{method[:9]!r} {target[:40]!r}, {len(content):,} bytes {how}, {ending}", pieces, ending, whole)


def _target(dice: random.Random) -> str:
    kind = dice.random()
    name = dice.choice(NAMES) if dice.random() < 0.25 else "tiny"
    if kind < 0.6:
        return f"/api/runs/{name}/{dice.choice(list(VIEWS))}"
    if kind < 0.7:
        return f"/api/runs/{name}"
    if kind < 0.8:
        return f"/page/{dice.choice(FILES)}"
    odd = [
        "/", "/api/runs", "/api/runs/", "//evil.example/", "*", "http://evil.example/", "evil.example:443",
        "/" + "a" * 9000, "/?token=%ff", "/?token=" + "a" * 5000, "/?" + "&".join("token=a" for _ in range(500)),
        "/\xff", "/%", "", "/a b", "/../../../etc/passwd", "/api/../api/runs", "/;token=x", "?token=x",
        "/api/runs?token=", "/favicon.ico",
    ]  # fmt: skip
    return dice.choice(odd)


def _headers(dice: random.Random, token: str) -> list[str]:
    def odd(share: float, name: str, values: list[str]) -> list[str]:
        return [f"{name}: {dice.choice(values)}"] if dice.random() < share else []

    known = dice.random() < 0.7
    made = (
        [f"Authorization: Bearer {token}"] if known else odd(0.5, "Authorization", ["Bearer ", "Bearer ÿ", "x" * 999])
    )
    made += odd(1, "Host", HOSTS if dice.random() < 0.15 else ["127.0.0.1"]) if dice.random() < 0.97 else []
    made += odd(0.95, "Content-Type", TYPES if dice.random() < 0.1 else ["application/json"])
    made += odd(0.1, "Origin", ORIGINS) + odd(0.1, "Sec-Fetch-Site", SITES) + odd(0.1, "Cookie", COOKIES)
    made += dice.choices(EXTRA, k=dice.choice([0, 0, 0, 1, 2]))
    dice.shuffle(made)
    return made


def _body(dice: random.Random, target: str, views: Views) -> bytes:
    fields = next((views[view] for view in views if target.endswith(f"/{view}")), ("text",))
    named = [(name, dice.choice(VALUES)) for name in fields if dice.random() < 0.5]
    if "text" in fields and dice.random() < 0.5:
        named.append(("text", '"the network keeps a word"'))
    text = "{" + ", ".join(f'"{name}": {value}' for name, value in named) + "}"
    if dice.random() < 0.1:
        text = dice.choice(
            ["", "[]", "null", "[" * 60_000, '{"a":' * 9000, "{}{}", "\ufeff{}", "x" * 70_000, " " * 65_000]
        )
    return text.encode(dice.choice(["utf-16", "utf-32", "latin-1"]) if dice.random() < 0.05 else "utf-8", "replace")


def _framed(dice: random.Random, body: bytes) -> tuple[list[str], bytes, bool]:
    """Headers that say how long a body is, the body as it is sent, and whether they agree."""
    kind = dice.random()
    if kind < 0.6:
        return [f"Content-Length: {len(body)}"], body, True
    if kind < 0.75:
        cuts = [body[k : k + 1000] for k in range(0, len(body), 1000)]
        chunks = [b"%x\r\n%s\r\n" % (len(part), part) for part in cuts]
        return ["Transfer-Encoding: chunked"], b"".join(chunks) + b"0\r\n\r\n", True
    odd = [
        ["Content-Length: -1"], ["Content-Length: x"], [f"Content-Length: {len(body) + 9}"],
        [f"Content-Length: {10**30}"], ["Content-Length: 1", "Content-Length: 2"],
        ["Transfer-Encoding: chunked", f"Content-Length: {len(body)}"], ["Transfer-Encoding: gzip"],
        [f"Content-Length: {len(body)}", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: chunked"], ["Transfer-Encoding: chunked, chunked"], [],
        [f"Content-Length: {max(len(body) - 5, 0)}"],
    ]  # fmt: skip
    bad = [
        b"zz\r\n", b"-1\r\n", b"ffffffffffffffffffff\r\n", b"5\r\nabc", b"1;" + b"x" * 9000 + b"\r\na\r\n",
        b"0\r\nX: y\r\n\r\n", b"",
    ]  # fmt: skip
    return dice.choice(odd), dice.choice([body, dice.choice(bad), dice.choice(bad) + body]), False


def _mutated(dice: random.Random, content: bytes) -> bytes:
    made = bytearray(content)
    for _ in range(dice.choice([1, 1, 2, 8])):
        at = dice.randrange(len(made) + 1)
        kind = dice.randrange(5)
        if kind == 0:
            made[at : at + 1] = bytes([dice.randrange(256)])
        elif kind == 1:
            del made[at : at + dice.choice([1, 2, 50])]
        elif kind == 2:
            made[at:at] = dice.choice(
                [b"\r\n", b"\n", b"\0", b"\r", b"%00", b" ", b"\xff\xfe", b"HTTP/1.1 200 OK\r\n\r\n", b"a" * 999]
            )
        elif kind == 3:
            made[at:at] = made[at : at + 30]
        else:
            del made[at:]
    return bytes(made)
