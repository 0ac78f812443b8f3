"""Parts of the server by themselves: states on disk and in clients' hands, what /v1/predict takes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from recur.errors import OptionError, RunError
from recur.serve.predict import options_of, plain, table_lines
from recur.serve.travel import About, Seal, Store, packed, unpacked
from recur.web.address import address_of, check_address, listen
from recur.web.answers import encode, error_text

ABOUT = About("model", "digest", "owner", 3, 5, 100.0)
PARTS = [torch.arange(4.0), torch.tensor([7])]


def test_states_on_disk(tmp_path: Path) -> None:
    store = Store(tmp_path / "sessions")
    for name in ("a1", "b2", "a1"):
        store.put(name, ABOUT, PARTS)
    assert store.count == 2
    os.utime(tmp_path / "sessions" / "b2.safetensors", (50, 50))
    store.sweep(60)
    assert (store.count, store.has("a1"), store.has("b2")) == (1, True, False)
    about, parts = store.take("a1")
    assert about == ABOUT
    assert parts is not None
    assert all(torch.equal(a, b) for a, b in zip(parts, PARTS, strict=True))
    assert not store.remove("a1")
    content = packed(ABOUT, PARTS)
    with pytest.raises(RunError, match="damaged"):
        unpacked(content[:-1] + bytes([content[-1] ^ 1]), "a1")


def test_a_seal(tmp_path: Path) -> None:
    seal = Seal.kept_in(tmp_path)
    token = seal.token(ABOUT, None)
    assert Seal.kept_in(tmp_path).open(token, 99.0) == (ABOUT, None)
    with pytest.raises(OptionError, match="expired"):
        seal.open(token, 101.0)
    with pytest.raises(OptionError, match="not one of this server's"):
        Seal().open(token, 99.0)
    (tmp_path / "secret").write_bytes(b"short")
    with pytest.raises(RunError, match="32 bytes"):
        Seal.kept_in(tmp_path)


@pytest.mark.parametrize("asked", ["t,x\n1,2\n3,4\n", {"t": [1, 3], "x": [2, 4]}, [{"t": 1, "x": 2}, {"t": 3, "x": 4}]])
def test_a_table_in_three_ways(asked: Any) -> None:
    assert [line.strip() for line in table_lines(asked).lines] == ["t,x", "1,2", "3,4"]


@pytest.mark.parametrize("asked", [5, [], {}, ["file.csv"], None])
def test_no_table(asked: Any) -> None:
    with pytest.raises(OptionError, match="must be a table"):
        table_lines(asked)


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ([], "must be an object"),
        ({"lm": "x"}, "unknown option"),
        ({"nbest": 1.5}, "must be int"),
        ({"nbest": 1000}, "must lie in 1 … 64"),
        ({"stop": "x" * 2000}, "too long"),
    ],
)
def test_wrong_options(asked: Any, line: str) -> None:
    with pytest.raises(OptionError, match=line):
        options_of(asked)
    assert options_of({"temperature": 1, "seed": None}) == {"temperature": 1}


def test_numbers_become_plain() -> None:
    assert plain({"a": np.float32(0.5), 2: (np.arange(2), "b")}) == {"a": 0.5, "2": [[0, 1], "b"]}


def test_where_it_listens() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        assert address_of(taken, "127.0.0.1") == f"http://127.0.0.1:{port}"
        with pytest.raises(OptionError, match=f"port {port} is in use"):
            listen("127.0.0.1", port)
    with pytest.raises(OSError, match="not known|Name|resolv|assign"):
        listen("nowhere.invalid", 0)
    for host in ("127.0.0.9", "::1", "localhost"):
        check_address(host, 0, has_token=False)
    check_address("0.0.0.0", 0, has_token=True)
    with pytest.raises(OptionError, match="needs --token"):
        check_address("example.com", 0, has_token=False)


def test_answers_are_json_of_finite_numbers() -> None:
    content = {"a": [float("nan"), 1.5, (float("inf"), "é")], 2: {"b": None}}
    assert json.loads(encode(content)) == {"a": [None, 1.5, [None, "é"]], "2": {"b": None}}
    missing = FileNotFoundError(2, "No such file", "/folder/weights")
    assert error_text(missing) == "a file cannot be read: No such file: /folder/weights"
    assert error_text(ValueError("plain")) == "plain"
