"""Matrix product in WebAssembly. JavaScript has no vector instructions, so this loop runs several times faster here.

    product(a, w, y, M, N, K, lda, ldw, ldy)      y[m, n] += Σ_k a[m, k] · w[n, k]

All operands are float32 in one memory. a, w and y are byte addresses, the K numbers of a row are adjacent, and rows are
lda, ldw and ldy bytes apart. Four rows of w are read at once, four numbers at a time; the remainder is read one by one.
Each of the four vector lanes has its own sum; the lanes are added in the order (0 + 1) + (2 + 3), then the remainder.
"""

from __future__ import annotations

from collections.abc import Iterable

I32, F32, V128 = 0x7F, 0x7D, 0x7B

PARAMETERS = ("a", "w", "y", "M", "N", "K", "lda", "ldw", "ldy")
POINTERS = ("n", "to", "p", "q0", "q1", "q2", "q3", "wide", "whole")
"""p runs along a row of a up to `wide` (the last multiple of four) and `whole` (the end); q0 … q3 run along rows of w.
"""
SUMS, VECTORS = ("s0", "s1", "s2", "s3"), ("v0", "v1", "v2", "v3", "x")
NAMES = {name: k for k, name in enumerate((*PARAMETERS, *POINTERS, *SUMS, *VECTORS))}

OPCODES = {
    "i32.add": b"\x6a",
    "i32.sub": b"\x6b",
    "i32.mul": b"\x6c",
    "i32.and": b"\x71",
    "i32.shl": b"\x74",
    "i32.lt_u": b"\x49",
    "i32.ge_s": b"\x4e",
    "i32.eqz": b"\x45",
    "f32.add": b"\x92",
    "f32.mul": b"\x94",
    "f32.load": b"\x2a\x02\x00",
    "f32.store": b"\x38\x02\x00",
    "v128.load": b"\xfd\x00\x02\x00",
    "f32x4.add": b"\xfd\xe4\x01",
    "f32x4.mul": b"\xfd\xe6\x01",
    "block": b"\x02\x40",
    "loop": b"\x03\x40",
    "end": b"\x0b",
    "return": b"\x0f",
}


def signed_leb128(value: int) -> bytes:
    """Encode a signed integer in the fewest bytes."""
    found = b""
    while True:
        byte, value = value & 127, value >> 7
        last = (value == 0 and not byte & 64) or (value == -1 and byte & 64)
        found += bytes([byte if last else byte | 128])
        if last:
            return found


def unsigned_leb128(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + unsigned_leb128(value >> 7)


def assemble(text: str) -> bytes:
    """Assemble instructions: names of OPCODES, `name` reads a variable, `=name` sets it, integers, 0f, zero, br:n,
    br_if:n, lane:n."""
    found = b""
    for word in text.split():
        if word in OPCODES:
            found += OPCODES[word]
        elif word in NAMES:
            found += b"\x20" + unsigned_leb128(NAMES[word])
        elif word[0] == "=":
            found += b"\x21" + unsigned_leb128(NAMES[word[1:]])
        elif word.startswith("br_if:"):
            found += b"\x0d" + unsigned_leb128(int(word[6:]))
        elif word.startswith("br:"):
            found += b"\x0c" + unsigned_leb128(int(word[3:]))
        elif word.startswith("lane:"):
            found += b"\xfd\x1f" + bytes([int(word[5:])])
        elif word == "zero":
            found += b"\xfd\x0c" + bytes(16)
        elif word == "0f":
            found += b"\x43" + bytes(4)
        else:
            found += b"\x41" + signed_leb128(int(word))
    return found


def multiply_rows(count: int) -> str:
    """Return code for y[m, n …] += a[m] · w[n …] for `count` rows of w; n advances by as many."""
    rows = range(count)
    lines = ["a =p w =q0"]
    lines += [f"q{k - 1} ldw i32.add =q{k}" for k in rows[1:]]
    lines += [f"zero =v{k}" for k in rows]
    lines.append("block loop p wide i32.lt_u i32.eqz br_if:1 p v128.load =x")
    lines += [f"v{k} q{k} v128.load x f32x4.mul f32x4.add =v{k}" for k in rows]
    lines += [f"q{k} 16 i32.add =q{k}" for k in rows]
    lines.append("p 16 i32.add =p br:0 end end")
    lines += [f"v{k} lane:0 v{k} lane:1 f32.add v{k} lane:2 v{k} lane:3 f32.add f32.add =s{k}" for k in rows]
    lines.append("block loop p whole i32.lt_u i32.eqz br_if:1")
    lines += [f"s{k} p f32.load q{k} f32.load f32.mul f32.add =s{k} q{k} 4 i32.add =q{k}" for k in rows]
    lines.append("p 4 i32.add =p br:0 end end")
    for k in rows:
        lines.append(f"to to f32.load s{k} f32.add f32.store to 4 i32.add =to")
    lines.append(f"q{count - 1} ldw i32.add K 2 i32.shl i32.sub =w n {count} i32.sub =n")
    return " ".join(lines)


def product_body() -> bytes:
    """Return the body of the function; the address w advances along the rows and is reset for each m."""
    body = f"""
        block loop  M i32.eqz br_if:1
            y =to  N =n
            a K -4 i32.and 2 i32.shl i32.add =wide  a K 2 i32.shl i32.add =whole
            block loop  n 4 i32.ge_s i32.eqz br_if:1  {multiply_rows(4)}  br:0 end end
            block loop  n i32.eqz br_if:1  {multiply_rows(1)}  br:0 end end
            w N ldw i32.mul i32.sub =w
            a lda i32.add =a  y ldy i32.add =y  M 1 i32.sub =M  br:0
        end end
    """
    declared = [(len(POINTERS), I32), (len(SUMS), F32), (len(VECTORS), V128)]
    locals_ = unsigned_leb128(len(declared)) + b"".join(unsigned_leb128(n) + bytes([kind]) for n, kind in declared)
    return locals_ + assemble(body) + OPCODES["end"]


def wasm_module() -> bytes:
    """Return a module that imports the memory `env.memory` and exports `product`."""
    kind = b"\x60" + wasm_vector([bytes([I32])] * len(PARAMETERS)) + wasm_vector([])
    memory = wasm_string("env") + wasm_string("memory") + b"\x02\x00\x01"
    code = product_body()
    sections = {
        1: wasm_vector([kind]),
        2: wasm_vector([memory]),
        3: wasm_vector([b"\x00"]),
        7: wasm_vector([wasm_string("product") + b"\x00\x00"]),
        10: wasm_vector([unsigned_leb128(len(code)) + code]),
    }
    found = b"".join(bytes([number]) + unsigned_leb128(len(part)) + part for number, part in sections.items())
    return b"\x00asm\x01\x00\x00\x00" + found


def wasm_vector(parts: Iterable[bytes]) -> bytes:
    found = list(parts)
    return unsigned_leb128(len(found)) + b"".join(found)


def wasm_string(name: str) -> bytes:
    return unsigned_leb128(len(name)) + name.encode()
