"""Folders of runs, and a server over one: two language models and a damaged run; a run of every task."""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recur.cli.app import run
from recur.tasks import task_names

pytest.importorskip("starlette", reason="the studio needs starlette: pip install 'recur[studio]'")
pytest.importorskip("uvicorn", reason="the studio needs uvicorn: pip install 'recur[studio]'")

BOOK = 'the network "reads" a word (and the word is kept)\na state is a word that the network keeps\n' * 40
SMALL = ["--hidden-size", "24", "--batch-size", "4", "--window", "20", "--threads", "1", "--lr", "0.02", "-q"]


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """A copy of a folder that one of the processes of a test run makes, and the others wait for."""
    root = factory.getbasetemp()
    shared = (root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / name
    try:
        shared.mkdir()
    except FileExistsError:
        while not (shared / "made").exists():
            time.sleep(0.1)
    else:
        make(shared)
        (shared / "made").touch()
    return Path(shutil.copytree(shared, factory.mktemp(name), dirs_exist_ok=True))


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once(tmp_path_factory, "studio-runs", make_runs) / "runs"


def make_runs(where: Path) -> None:
    folder = where / "runs"
    folder.mkdir()
    book = folder.parent / "book.txt"
    book.write_text(BOOK)
    two = ["--cell", "lstm", "--steps", "120", "--num-layers", "2"]
    assert run(["train", str(book), *SMALL, *two, "--out", str(folder / "lstm")]) == 0
    assert run(["train", str(book), *SMALL, "--cell", "gru", "--steps", "80", "--out", str(folder / "gru")]) == 0
    (folder / "damaged").mkdir()
    (folder / "damaged" / "manifest.json").write_text('{"format": 2}')
    (folder.parent / "secret").mkdir()
    (folder.parent / "secret" / "manifest.json").write_text("{}")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of one run, `tiny`, hardly trained."""
    folder = tmp_path_factory.mktemp("tiny")
    (folder / "book.txt").write_text(BOOK)
    options = ["--cell", "gru", "--hidden-size", "8", "--steps", "2", "--threads", "1", "--no-baseline", "-q"]
    assert run(["train", str(folder / "book.txt"), *options, "--out", str(folder / "runs" / "tiny")]) == 0
    return folder / "runs"


EXAMPLES = {
    "classify.tsv": "".join(f"{kind}\ta {kind} film {n}\n" for n in range(20) for kind in ("good", "bad")),
    "pairs.tsv": "".join(f"{n} and {n + 1}\t{n + 1} {n}\n" for n in range(40)),
    "tags.conll": "the DET\nnetwork NOUN\nreads VERB\n\na DET\nword NOUN\nstays VERB\n\n" * 10,
    "trees.txt": "(3 (2 a) (4 (2 good) (3 film)))\n(1 (2 a) (0 (1 bad) (2 film)))\n" * 10,
    "series.csv": "month,value\n"
    + "".join(f"{2000 + n // 12}-{n % 12 + 1:02d},{10 + n % 12 + n**0.5:.2f}\n" for n in range(120)),
}
TASKS = {
    "adding": ["--length", "5"],
    "classify": ["classify.tsv"],
    "conditional": ["classify.tsv"],
    "copy": ["--length", "3"],
    "forecast": ["series.csv"],
    "grid": ["images.npz"],
    "language": ["classify.tsv"],
    "seq2seq": ["pairs.tsv"],
    "tag": ["tags.conll"],
    "tree": ["trees.txt"],
}
"""What `recur train` is given for each."""


@pytest.fixture(scope="session")
def every_task(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of each task, named after it."""
    return made_once(tmp_path_factory, "studio-tasks", make_tasks) / "runs"


def make_tasks(folder: Path) -> None:
    for name, content in EXAMPLES.items():
        (folder / name).write_text(content)
    labels = np.arange(40) % 2
    np.savez(folder / "images.npz", x=labels[:, None, None] * np.eye(4, dtype=np.float32), y=labels)
    for task in task_names():
        given = [str(folder / part) if (folder / part).exists() else part for part in TASKS[task]]
        options = ["--hidden-size", "8", "--steps", "4", "--threads", "1", "-q", "--out", str(folder / "runs" / task)]
        assert run(["train", *given, "--task", task, *options]) == 0


TOKEN = "open sesame"


class Serving:
    """A real server of an application, on a free port of this machine."""

    def __init__(self, app: Any) -> None:
        from recur.serve.server import make_server

        self.server = make_server(app)
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)
        self.port = self.server.servers[0].sockets[0].getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(10)


class Served(Serving):
    """The studio over a folder."""

    def __init__(self, folder: Path, **options: Any) -> None:
        from recur.studio.app import make_app

        app = make_app(folder, TOKEN, **options)
        self.studio: Any = app.app.state.studio  # type: ignore[attr-defined]
        self.headers = {"Authorization": f"Bearer {TOKEN}"}
        super().__init__(app)


@pytest.fixture(scope="session")
def served(runs: Path) -> Iterator[Served]:
    server = Served(runs)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def small(tiny: Path) -> Iterator[Served]:
    """A server over the tiny run, for tests that change no file of it."""
    made = Served(tiny)
    yield made
    made.stop()


@pytest.fixture
def copied(tiny: Path, tmp_path: Path) -> Iterator[Served]:
    """A server over a copy of it."""
    shutil.copytree(tiny / "tiny", tmp_path / "tiny")
    made = Served(tmp_path)
    yield made
    made.stop()


@pytest.fixture
def log() -> Iterator[list[str]]:
    """What the server would put on its screen: nothing, after every test."""
    found: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(self.format(record))

    handler = Kept(logging.ERROR)
    loggers = [logging.getLogger(name) for name in ("uvicorn.error", "asyncio")]
    for logger in loggers:
        logger.addHandler(handler)
    yield found
    for logger in loggers:
        logger.removeHandler(handler)
    assert found == []


@pytest.fixture
def visit(browser: Any, served: Served) -> Iterator[Any]:
    """A wide, light page in English over `runs`."""
    from tests.studio.browser import Visit

    # Playwright's waiting for a condition is JavaScript from outside, which the page's own policy forbids.
    made = Visit(browser, served, "wide", "light", "en", bypass_csp=True)
    yield made
    made.close()
