"""Runs that were hardly trained, and servers of them on free ports of this machine."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from recur.cli.app import run

pytest.importorskip("uvicorn", reason="serving needs uvicorn: pip install 'recur[serve]'")
pytest.importorskip("websockets", reason="serving needs websockets: pip install 'recur[serve]'")

BOOK = 'the network "reads" a word (and the word is kept)\na state is a word that the network keeps\n' * 40
SMALL = ["--hidden-size", "16", "--steps", "20", "--threads", "1", "--no-baseline", "-q"]
TOKEN = "open sesame"


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`chars`, an LSTM of two layers; `words`, a GRU whose output cannot be told from its state; `waves`, which labels
    steps of two numbers; `names`, which reads both ways."""
    folder = tmp_path_factory.mktemp("serve")
    book = folder / "book.txt"
    book.write_text(BOOK)
    assert run(["train", str(book), *SMALL, "--cell", "lstm", "--num-layers", "2", "--out", str(folder / "chars")]) == 0
    words = ["--token", "word", "--depth-output", "1", "--cell", "gru", "--time-input"]
    assert run(["train", str(book), *SMALL, *words, "--out", str(folder / "words")]) == 0
    dice = np.random.default_rng(0)
    x = dice.normal(size=(40, 12, 2)).astype(np.float32)
    y = np.where(x.sum(2) > 0, "up", "down")
    np.savez(folder / "waves.npz", x=x, y=y)
    tag = [
        "train",
        str(folder / "waves.npz"),
        "--task",
        "tag",
        "--hidden-size",
        "8",
        "--steps",
        "4",
        "--threads",
        "1",
        "-q",
    ]
    assert run([*tag, "--direction", "forward", "--out", str(folder / "waves")]) == 0
    (folder / "names.tsv").write_text("".join(f"{k}\ta {k} film {n}\n" for n in range(20) for k in ("good", "bad")))
    names = ["train", str(folder / "names.tsv"), "--task", "classify", "--direction", "both", "--hidden-size", "8"]
    assert run([*names, "--steps", "4", "--threads", "1", "-q", "--out", str(folder / "names")]) == 0
    return folder


class Serving:
    """A real server in a thread of its own."""

    def __init__(self, *paths: Path, tokens: tuple[str, ...] = (TOKEN,), spill: Path | None = None, **limits: Any):
        from recur.serve.app import make_app
        from recur.serve.models import ModelVersions
        from recur.serve.registry import Registry, make_model_server
        from recur.serve.schemas import Limits

        chosen = dataclasses.replace(Limits(), **limits)
        self.registry = Registry(ModelVersions(paths, chosen, "cpu"), chosen, spill, threads=1)
        self.server = make_model_server(make_app(self.registry, tokens), self.registry)
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        while not self.server.started:
            time.sleep(0.005)
        self.port = self.server.servers[0].sockets[0].getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self.headers = {"Authorization": f"Bearer {tokens[0]}"} if tokens else {}
        self.http = httpx.Client(base_url=self.address, headers=self.headers, timeout=30)

    def post(self, path: str, status: int = 200, **body: Any) -> Any:
        answer = self.http.post(path, json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    def get(self, path: str, status: int = 200) -> Any:
        answer = self.http.get(path)
        assert answer.status_code == status, answer.text
        return answer.json()

    def stop(self) -> None:
        self.http.close()
        self.server.should_exit = True
        self.thread.join(20)
        assert not self.thread.is_alive()


@pytest.fixture(scope="session")
def served(runs: Path) -> Iterator[Serving]:
    """All four runs, for tests that change nothing of them."""
    made = Serving(runs / "chars", runs / "words", runs / "waves", runs / "names")
    yield made
    made.stop()
