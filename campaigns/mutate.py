"""Inputs made of others: bits turned, parts cut out, repeated, exchanged, and what parsers stumble over put in."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

HOSTILE: tuple[bytes, ...] = (
    *(
        b"",
        b" ",
        b"\n",
        b"\r",
        b"\r\n",
        b"\t",
        b"\t\t",
        b"\0",
        b"\x0b",
        b"\x1c",
        b"\x85",
        b"\x7f",
        b"\xff",
        b"\xc3\x28",
    ),
    *(b"\xef\xbb\xbf", b"\xff\xfe", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", "\u0301".encode() * 9, "\u2028".encode()),
    *("\ud7ff".encode(), "\U0010ffff".encode(), "１".encode(), "\u200d".encode(), b"\\ud800", b"\\u0000", b"\\"),
    *(b"0", b"-1", b"1e400", b"-1e400", b"nan", b"inf", b"-inf", b"1_0", b"1e-400", b"0x10", b"9" * 30, b"9" * 5000),
    *(b"99999999999", b"18446744073709551616", b"-9223372036854775809", b"2147483648", b"0.1.2", b"1e5", b"+", b"-"),
    *(b"true", b"null", b"[]", b"{}", b'""', b"[" * 200, b'{"a":' * 50, b"(" * 200, b")" * 200, b'"', b"'", b"#"),
    *(b",", b":", b";", b"=", b"|", b"<unk>", b"<bos>", b"</s>", b"\\data\\", b"\\end\\", b"../", b"a" * 3000),
)
"""What has tripped a parser somewhere."""


def mutated(draw: random.Random, seeds: Sequence[bytes]) -> bytes:
    """One of the seeds, changed at one place or several."""
    data = bytearray(draw.choice(seeds))
    for _ in range(draw.choice((1, 1, 1, 2, 2, 3, 5, 8))):
        at = draw.randrange(len(data) + 1)
        end = min(len(data), at + draw.choice((1, 1, 2, 4, 8, 16, 64)))
        change = draw.randrange(9)
        if change == 0 and at < len(data):
            data[at] ^= 1 << draw.randrange(8)
        elif change == 1:
            del data[at:end]
        elif change == 2:
            data[at:at] = draw.choice(HOSTILE)
        elif change == 3:
            data[at:end] = draw.choice(HOSTILE)
        elif change == 4:
            data[at:at] = data[at:end] * draw.choice((1, 1, 2, 3, 50))
        elif change == 5:
            other = draw.choice(seeds)
            begin = draw.randrange(len(other) + 1)
            data[at:end] = other[begin : begin + draw.choice((1, 4, 16, 64))]
        elif change == 6:
            _exchange_number(draw, data)
        elif change == 7 and at < len(data):
            data[at] = draw.randrange(256)
        elif change == 8 and draw.random() < 0.2:
            del data[at:]
    return bytes(data[: 1 << 16])


def _exchange_number(draw: random.Random, data: bytearray) -> None:
    numbers = list(re.finditer(rb"-?\d+(\.\d+)?", data))
    if numbers:
        found = draw.choice(numbers)
        data[found.start() : found.end()] = draw.choice(HOSTILE[26:46])


VALUES: tuple[object, ...] = (
    *(None, True, False, 0, 1, -1, 2, 3, 7, 1.5, -0.5, 0.0, 1e-9, 1e308, 10**9, 2**31, 2**53, 2**63, 2**64, -(2**63)),
    *(10**400, float("inf"), float("-inf"), float("nan"), "", " ", "a", "1", "auto", "none", "full", "gru", "\0", "\n"),
    *("\ud800", "é" * 50, "x" * 2000, (), [], [1], ["a"], ["a", 1], [[]], [["a"]], {}, {"a": 1}, b"a", object, 1j),
    *([0.1, 0.5, 0.9], [0.5], ["\ud800"], ["\0"], ("a", "b"), range(3), {1, 2}),
)
"""What stands where an option's value should."""
