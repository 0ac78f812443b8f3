"""A folder of runs, two trained and one damaged, and a server over it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from recur.cli.app import run

pytest.importorskip("starlette", reason="the studio needs starlette: pip install 'recur[studio]'")
uvicorn = pytest.importorskip("uvicorn", reason="the studio needs uvicorn: pip install 'recur[studio]'")

BOOK = 'the network "reads" a word (and the word is kept)\na state is a word that the network keeps\n' * 40
SMALL = ["--hidden", "24", "--batch", "4", "--window", "20", "--threads", "1", "--rate", "0.02", "-q"]


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("studio") / "runs"
    folder.mkdir()
    book = folder.parent / "book.txt"
    book.write_text(BOOK)
    two = ["--cell", "lstm", "--steps", "120", "--layers", "2"]
    assert run(["train", str(book), *SMALL, *two, "--out", str(folder / "lstm")]) == 0
    assert run(["train", str(book), *SMALL, "--cell", "gru", "--steps", "80", "--out", str(folder / "gru")]) == 0
    (folder / "damaged").mkdir()
    (folder / "damaged" / "config.toml").write_text("hidden = [")
    (folder.parent / "secret").mkdir()
    (folder.parent / "secret" / "config.toml").write_text("hidden = 3\n")
    return folder


class Served:
    """A real server on a free port of this machine."""

    def __init__(self, app: object) -> None:
        self.server = uvicorn.Server(uvicorn.Config(app, "127.0.0.1", 0, log_level="error"))
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        while not self.server.started:
            time.sleep(0.02)
        self.port = self.server.servers[0].sockets[0].getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(10)


@pytest.fixture(scope="session")
def served(runs: Path) -> Iterator[Served]:
    from recur.studio.app import make_app

    server = Served(make_app(runs))
    yield server
    server.stop()
