"""Inputs of a few bytes that stand for many items, or that make a reader take time or memory out of proportion.

`INFLATING` has such inputs for readers whose format allows them: compressed archives, images, deep trees, logs. Any
other input grows by `grown`: a part of it is repeated, nested, or followed by a run of combining marks.
"""

from __future__ import annotations

import functools
import gzip
import io
import json
import random
import struct
import zlib
from collections.abc import Sequence

import numpy as np

LARGEST = 1 << 17
"""Bytes of a grown input."""

RUNS: tuple[bytes, ...] = (
    *("\u0301".encode(), "\u0323\u0301".encode(), "\u1161".encode(), "\u200d".encode(), "\u0f39".encode()),
    *(b"(", b"(1 ", b"(1 (1 a) ", b"[", b"[[],", b'{"a":', b"{}\n", b"a.", b'"a".', b"a=1,", b"<unk> ", b"_"),
    *(b"\n", b"\r", b",", b"\t", b" ", b";", b"a\tb\n", b"1,", b"1,2\n", b"0 ", b"a", b"9", b"#\n", b'"', b"\\"),
    *(b"a 1\n", b"ngram 1=1\n", b"2020-01-01,1\n", b"\xff\xda", b"PK\x01\x02", b"\x0a\x00"),
)
"""Parts that are repeated: marks, brackets, keys, lines, cells, numbers."""


def grown(draw: random.Random, seeds: Sequence[bytes]) -> bytes:
    """Return a seed with one part of it, or one of RUNS, repeated many times."""
    seed = draw.choice(seeds)
    at = draw.randrange(len(seed) + 1)
    part = seed[at : at + draw.choice((1, 2, 4, 8, 16, 64, 256))] if draw.random() < 0.4 else draw.choice(RUNS)
    count = draw.choice((1 << 12, 1 << 14, LARGEST)) // max(len(part), 1)
    return (seed[:at] + part * count + seed[at:])[: 2 * LARGEST]


def inflated(draw: random.Random, name: str, seeds: Sequence[bytes]) -> bytes:
    """Return an input that inflates, for the entry point of this name."""
    special = inflating().get(name, ())
    return draw.choice(special) if special and draw.random() < 0.5 else grown(draw, seeds)


def _npz(**arrays: object) -> bytes:
    made = io.BytesIO()
    np.savez_compressed(made, **arrays)  # type: ignore[arg-type]
    return made.getvalue()


def _lying_npz() -> bytes:
    """An archive that claims a compressed size of 1 GiB for an array that unpacks to 256 MiB."""
    made = bytearray(_npz(x=np.zeros((2, 1 << 14, 1 << 13), np.uint8), y=np.zeros(2, np.uint8)))
    at = made.index(b"PK\x01\x02") + 20
    made[at : at + 4] = struct.pack("<I", 1 << 30)
    return bytes(made)


def _picture(mode: str, size: tuple[int, int], kind: str, **options: object) -> bytes:
    from PIL import Image

    made = io.BytesIO()
    Image.new(mode, size).save(made, kind, **options)
    return made.getvalue()


def _png(columns: int, rows: int) -> bytes:
    """A PNG that claims so many pixels and has none."""
    chunks = ((b"IHDR", struct.pack(">IIBBBBB", columns, rows, 8, 6, 0, 0, 0)), (b"IDAT", b""), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def _scans() -> bytes:
    """A progressive JPEG whose last scan is repeated."""
    made = _picture("L", (4096, 4096), "jpeg", progressive=True)
    at = made.rindex(b"\xff\xda")
    return made[:-2] + made[at:-2][:64] * 500 + made[-2:]


def _tiff_pages() -> bytes:
    from PIL import Image

    made, page = io.BytesIO(), Image.new("L", (2, 2))
    page.save(made, "tiff", save_all=True, append_images=[page] * 300)
    return made.getvalue()


POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9999 9999\n%%EndComments\n{ } loop\n"


@functools.cache
def inflating() -> dict[str, tuple[bytes, ...]]:
    """Return inputs that inflate, by the name of the entry point."""
    many, zeros = np.zeros(1 << 22, np.uint8), np.zeros((1 << 11, 1 << 11), np.int64)
    deep = 300_000
    tensors = {f"t{k}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for k in range(2000)}
    header = json.dumps({"__metadata__": {"about": "{}"}, **tensors}).encode()
    return {
        "images": (
            _npz(x=many[:, None, None], y=many),
            _npz(**{f"x{k}": many[:0] for k in range(1500)}),
            _lying_npz(),
            POSTSCRIPT,
            *(_picture(mode, (300, 300), "tiff") for mode in ("I;16", "I;16B", "LAB", "CMYK", "F", "1", "YCbCr")),
            *(_picture("L", (5700, 5700), kind) for kind in ("png", "gif", "bmp")),
            _picture("RGBA", (5700, 5700), "png"),
            *(_png(60_000, 60_000), _png(1 << 30, 1), _scans(), _tiff_pages()),
            *(
                b"P2 99999 99999 255\n" + b"0 " * LARGEST,
                b"P5 999999999 999999999 255\n",
                b"P3 1 1 1" + b" #\n" * LARGEST,
            ),
        ),
        "signals": (
            _npz(x=many[:, None], y=many),
            _npz(x=many, lengths=np.ones(len(many), np.int8), y=many),
            _npz(x=zeros.astype(np.uint8), y=zeros),
            b"1,2\n" * (1 << 16),
        ),
        "gzip": (gzip.compress(b"a\tb\n" * (1 << 22)), gzip.compress(b"\n" * (1 << 24)), gzip.compress(b"") * 9999),
        "json": (b"{}\n" * (1 << 21), b'{"a":[' + b"[]," * (1 << 20) + b"[]]}", b"x\n" * (1 << 20)),
        "manifest": (b'{"format":4,"files":[' + b"[]," * (1 << 22) + b"[]]}", b"[" * 100_000),
        "sweep": (b'{"format":1,"trials":[' + b"[]," * (1 << 22) + b"[]]}", b"[" * 100_000),
        "vocabulary": (b'{"tokens":[' + b'"a",' * (1 << 20) + b'"a"]}', b'{"a":' * 100_000),
        "tensors": (struct.pack("<Q", len(header)) + header, struct.pack("<Q", 1 << 62), struct.pack("<Q", 1 << 26)),
        "trees": (
            b"(1 " * deep + b"x" + b")" * deep,
            b"(1 " * deep,
            b"(1 " + b"(1 x)" * deep + b")",
            b"(1 (1 a) " * (deep // 4) + b"(1 b)" + b")" * (deep // 4),
        ),
        "vectors": (("e" + "\u0301" * 120_000 + " 1 2 3\n").encode(), b"a" + b" 1" * (1 << 19) + b"\n"),
        "text": (("e" + "\u0301\u0323" * 120_000).encode(), b"a" * (1 << 18), ("\u1161" * (1 << 18)).encode()),
        "strings": (("e" + "\u0301\u0323" * 120_000).encode(),),
        "toml": (b"a." * 100_000 + b"a=1\n", b"[" + b'"a" . ' * 50_000 + b"a]\n", b"a=" + b"[" * 100_000),
        "series": (
            b"id,t,y,s\n" + b"".join(b"%d,1,1,w%d\n%d,2,2,w%d\n" % (k, k, k, k) for k in range(8000)),
            b",".join(b"c%d" % k for k in range(20_000)) + b"\n" + b"1," * 19_999 + b"1\n",
        ),
        "arpa": (b"\\data\\\n" + b"ngram 1=999999999\n" * 2000, b"x\n" * (1 << 18)),
    }
