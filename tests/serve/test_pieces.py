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
from recur.serve.app import table_lines, to_json
from recur.serve.http import encode_json, error_text, validate
from recur.serve.schemas import Limits, PredictRequest
from recur.serve.server import check_address, listen, server_url
from recur.serve.sessions import SessionStore, StateHeader, StateSigner, pack_state, unpack_state

ABOUT = StateHeader("model", "digest", "owner", 3, 5, 100.0)
PARTS = [torch.arange(4.0), torch.tensor([7])]


def test_states_on_disk(tmp_path: Path) -> None:
    store = SessionStore(tmp_path / "sessions")
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
    content = pack_state(ABOUT, PARTS)
    with pytest.raises(RunError, match="damaged"):
        unpack_state(content[:-1] + bytes([content[-1] ^ 1]), "a1")


def test_a_seal(tmp_path: Path) -> None:
    seal = StateSigner.from_folder(tmp_path)
    token = seal.token(ABOUT, None)
    assert StateSigner.from_folder(tmp_path).open(token, 99.0) == (ABOUT, None)
    with pytest.raises(OptionError, match="expired"):
        seal.open(token, 101.0)
    with pytest.raises(OptionError, match="not issued by this server"):
        StateSigner().open(token, 99.0)
    (tmp_path / "secret").write_bytes(b"short")
    with pytest.raises(RunError, match="32 bytes"):
        StateSigner.from_folder(tmp_path)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="permissions of a POSIX system")
def test_states_on_disk_are_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for mode in (0o777, 0o755, 0o770, 0o740, 0o702):
        (tmp_path / "open").mkdir(exist_ok=True)
        (tmp_path / "open").chmod(mode)
        with pytest.raises(OptionError, match=f"open to other users .mode {mode:04o}.*chmod 700"):
            SessionStore(tmp_path / "open")
    store = SessionStore(tmp_path / "sessions")
    store.put("a1", ABOUT, PARTS)
    StateSigner.from_folder(tmp_path / "sessions")
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "sessions").iterdir()}
    assert modes == {"a1.safetensors": 0o600, "secret": 0o600}
    assert (tmp_path / "sessions").stat().st_mode & 0o777 == 0o700
    somebody = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: somebody)
    with pytest.raises(OptionError, match="belongs to another user"):
        SessionStore(tmp_path / "sessions")


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
        ({"nbest": 1.5}, "options.nbest must be an integer, got number"),
        ({"nbest": 1000}, "options.nbest must be at most 64, got 1000"),
        ({"stop": "x" * 2000}, "too long"),
    ],
)
def test_wrong_options(asked: Any, line: str) -> None:
    with pytest.raises(OptionError, match=line):
        validate(PredictRequest, {"input": "a", "options": asked}, Limits())
    request = validate(PredictRequest, {"input": "a", "options": {"temperature": 1, "seed": None}}, Limits())
    assert request.options.model_dump(exclude_none=True) == {"temperature": 1}


def test_numbers_become_plain() -> None:
    assert to_json({"a": np.float32(0.5), 2: (np.arange(2), "b")}) == {"a": 0.5, "2": [[0, 1], "b"]}


def test_where_it_listens() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        assert server_url(taken, "127.0.0.1") == f"http://127.0.0.1:{port}"
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
    assert json.loads(encode_json(content)) == {"a": [None, 1.5, [None, "é"]], "2": {"b": None}}
    missing = FileNotFoundError(2, "No such file", "/folder/weights")
    assert error_text(missing) == "a file cannot be read: No such file: /folder/weights"
    assert error_text(ValueError("plain")) == "plain"
