"""What the page may start and write: texts, a queue of processes, options; and all that it may not."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import numpy as np
import pytest
from starlette.testclient import TestClient

from recur.errors import OptionError, RecurError
from recur.i18n import translate
from recur.options import TextFormat, hints, value_of
from recur.runs import holder_of, read_jsonl
from recur.studio import jobs as queues
from recur.studio import uploads as text_files
from recur.studio.app import make_app
from recur.studio.jobs import NAMES, REFUSED, TrainingJob, TrainingQueue, describe_tasks
from recur.studio.runs import MAX_POINTS, ProgressTail, RunFolder, last_point, measurements, seconds_left, thin_curve
from recur.studio.training import ChangeStream
from recur.studio.uploads import TextStore, clean_name
from recur.studio.workers import WorkerPool
from recur.tasks import make_options, options_class, task_names
from tests.studio.conftest import BOOK, TOKEN, Served
from tests.studio.raw import HOST, request, talk

pytestmark = pytest.mark.usefixtures("log")
LANGUAGE = {"task": "language", "text": "book.txt"}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Any]:
    (tmp_path / "runs").mkdir()
    app = make_app(tmp_path / "runs", TOKEN, hosts=None)
    made: Any = TestClient(app, headers={"Authorization": f"Bearer {TOKEN}"})
    made.queue = app.app.state.studio.training.queue  # type: ignore[attr-defined]
    yield made
    made.queue.close()


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


# Texts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("book.txt", "book.txt"),
        ("../../etc/passwd", "passwd"),
        ("..\\..\\boot.ini", "boot.ini"),
        ("...", "text.txt"),
        (".hidden.txt", "hidden.txt"),
        ("-rf.txt", "rf.txt"),
        ("a b\0c\n.csv", "a-b-c.csv"),
        ("词 典.txt", "词-典.txt"),
        ("x" * 300 + ".conll.gz", "x" * 60 + ".conll.gz"),
        (".a.0123abcd.part", "a.0123abcd.part"),
        ("~/x", "x"),
        ("con:stream", "con-stream"),
    ],
)
def test_names_of_texts_are_cleaned(given: str, kept: str) -> None:
    assert clean_name(given, "text.txt") == kept


def test_a_text_is_there_once_and_never_written_over(client: Any, tmp_path: Path) -> None:
    def put(content: str) -> Any:
        return client.put("/api/texts/book.txt", content=content.encode()).json()["text"]

    assert [put(BOOK), put(BOOK), put(BOOK + "more\n"), put(BOOK)] == ["book.txt", "book.txt", "book-2.txt", "book.txt"]
    assert files(tmp_path / "runs") == {"texts/book.txt", "texts/book-2.txt"}
    assert client.put("/api/texts/only.txt?keep=0", content=b"to be looked at\n" * 9).json()["task"] == "language"
    labelled = "".join(f"{kind}\ta film {n}\n" for n in range(20) for kind in ("good", "bad"))
    found = client.put("/api/texts/films.tsv", content=labelled.encode()).json()
    assert (found["sure"], found["task"], found["choices"][0]["task"]) == (False, "classify", "classify")
    assert files(tmp_path / "runs") == {"texts/book.txt", "texts/book-2.txt", "texts/films.tsv"}
    (tmp_path / "runs/texts/way-out").symlink_to("/etc/passwd")
    assert [text["name"] for text in client.get("/api/train").json()["texts"]] == [
        "films.tsv",
        "book-2.txt",
        "book.txt",
    ]
    assert client.post("/api/texts/way-out").status_code == 404


def test_what_is_too_large_empty_or_no_text_leaves_nothing(client: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(text_files, "MAX_TEXT_BYTES", 5000)
    refused = client.put("/api/texts/a.txt", content=b"x" * 5001)
    assert refused.status_code == 413
    assert client.put("/api/texts/a.txt", content=b"").status_code == 400
    assert client.put("/api/texts/a.npz", content=b"no archive at all").status_code == 400
    monkeypatch.setattr(text_files, "MAX_TOTAL_BYTES", 100)
    assert client.put("/api/texts/a.txt", content=b"x" * 101).status_code == 413
    assert files(tmp_path / "runs") == set()


def test_a_text_that_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    served = Served(tmp_path / "runs")
    head = request("PUT /api/texts/a.txt HTTP/1.1", HOST, "Content-Length: 4000000")
    with socket.create_connection(("127.0.0.1", served.port)) as line:
        line.sendall(head + b"x" * 2_000_000)
        until(lambda: files(tmp_path / "runs"))
    until(lambda: not files(tmp_path / "runs"))
    served.stop()


@pytest.mark.parametrize("chunked", [False, True])
def test_parallel_uploads_share_the_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunked: bool) -> None:
    """Six uploads of 3 MB under a quota of 10 MB: all have begun before the first one ends, and three may stay."""
    size = 3_000_000
    monkeypatch.setattr(text_files, "MAX_TOTAL_BYTES", 10_000_000)
    (tmp_path / "runs").mkdir()
    served = Served(tmp_path / "runs")
    statuses = []
    lines = [socket.create_connection(("127.0.0.1", served.port), timeout=30) for _ in range(6)]
    length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {size}"
    for k, line in enumerate(lines):
        line.sendall(request(f"PUT /api/texts/{k}.txt HTTP/1.1", HOST, length))
        half = (b"%d a word\n" % k) * (size // 18)
        with suppress(ConnectionError):  # refused already, by the length that it announced
            line.sendall((b"%x\r\n%s\r\n" % (len(half), half)) if chunked else half)
    time.sleep(0.3)  # the server reads the first halves of all of them
    for k, line in enumerate(lines):
        rest = (b"%d a word\n" % k) * (size // 9 - size // 18) + b"x" * (size % 9)
        with line, suppress(ConnectionError):
            line.sendall((b"%x\r\n%s\r\n0\r\n\r\n" % (len(rest), rest)) if chunked else rest)
            statuses.append(line.recv(100).split(b" ")[1])
    served.stop()
    stored = sum(path.stat().st_size for path in (tmp_path / "runs" / "texts").iterdir())
    assert 0 < stored <= 10_000_000
    assert stored == size * statuses.count(b"200")
    assert served.studio.training.texts._reserved == 0


def test_a_link_in_the_place_of_the_folder_is_not_followed(client: Any, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/a.txt").write_text("mine")
    (tmp_path / "runs/texts").symlink_to(tmp_path / "elsewhere")
    assert client.put("/api/texts/b.txt", content=b"text\n" * 9).status_code == 409
    assert client.get("/api/train").json()["texts"] == []
    assert files(tmp_path / "elsewhere") == {"a.txt"}


# Options --------------------------------------------------------------------------------------------------------


def test_no_option_of_any_task_can_name_a_file() -> None:
    """Whatever is any text is refused, or a cell by name, or a name that is looked up: a new option fails here."""
    for task in task_names():
        for name, hint in hints(options_class(task)).items():
            kind = value_of(hint)
            text = kind is str or (get_origin(kind) is tuple and get_args(kind)[0] is str)
            formed = any(isinstance(mark, TextFormat) for mark in _marks(hint))
            assert not text or formed or name in (*REFUSED, *NAMES, "cell"), f"--{name} of {task}"
    offered = {option["name"] for task in describe_tasks() for option in task["options"]}
    assert not offered & {"texts", "valid", "test", "from", "vectors"}


def test_every_option_is_explained_in_both_languages() -> None:
    english, chinese = describe_tasks(), describe_tasks("zh")
    for here, there in zip(english, chinese, strict=True):
        assert not there["about"].isascii()
        for option, same in zip(here["options"], there["options"], strict=True):
            assert option["help"] or option["name"] == "cell"
            assert not same["help"].isascii() or option["name"] == "cell", option["name"]
    with pytest.raises(OptionError) as refused:
        make_options("language", {"hidden_size": 0})
    assert translate(str(refused.value), "zh") == "hidden_size 必须是不小于 1 的整数，给出的是 0"


def _marks(hint: Any) -> tuple[Any, ...]:
    parts = get_args(hint)
    return parts[1:] if get_origin(hint) is Annotated else tuple(mark for part in parts for mark in _marks(part))


@pytest.mark.parametrize(
    "given",
    [
        {"options": {"cell": "mine.py:Mine"}},
        {"options": {"cell": "/tmp/mine.py:Mine"}},
        {"options": {"texts": ["/etc/passwd"]}},
        {"options": {"valid": ["/etc/passwd"]}},
        {"options": {"from": ["../other"]}},
        {"options": {"from_": ["../other"]}},
        {"options": {"vectors": "/etc/passwd"}},
        {"options": {"out": "/tmp/x"}},
        {"options": {"config": "x.toml"}},
        {"options": {"trust": True}},
        {"options": {"log": ["mlflow"]}},
        {"options": {"hidden_size": 0}},
        {"options": {"hidden_size": "8; rm -rf /"}},
        {"options": {"hidden_size": [8]}},
        {"options": {"schedule": "--out=/tmp/x"}},
        {"options": {"--out": "/tmp/x"}},
        {"options": {"lr": float("1e400")}},
        {"options": [1]},
        {"options": {"horizon": 3}},
        {"text": "../secret"},
        {"text": "/etc/passwd"},
        {"text": "missing.txt"},
        {"text": "-"},
        {"text": ""},
        {"text": 3},
        {"task": "none"},
        {"task": "adding", "text": "book.txt"},
        {"name": ".."},
        {"name": "../x"},
        {"name": "-rf"},
        {"name": "texts"},
        {"name": ".studio"},
        {"name": "a/b"},
        {"name": "x" * 200},
        {"keep": "yes"},
    ],
)
def test_what_leads_elsewhere_is_refused(client: Any, tmp_path: Path, given: Any) -> None:
    client.put("/api/texts/book.txt", content=BOOK.encode())
    before = files(tmp_path)
    answer = client.post(
        "/api/train", content=json.dumps({**LANGUAGE, **given}), headers={"Content-Type": "application/json"}
    )
    assert answer.status_code in (400, 404), answer.text
    assert "\n" not in answer.json()["error"]
    assert client.queue.jobs() == []
    assert files(tmp_path) == before


def test_nothing_without_the_token_and_nothing_is_trained_where_runs_are_only_read(tmp_path: Path) -> None:
    asked = [
        ("GET", "/api/tasks"), ("GET", "/api/train"), ("POST", "/api/train"), ("POST", "/api/train/a/stop"),
        ("POST", "/api/train/a/resume"), ("PUT", "/api/texts/a.txt"), ("POST", "/api/runs/a/notes"),
        ("GET", "/api/watch"),
    ]  # fmt: skip
    app = make_app(tmp_path, TOKEN, read_only=True)
    served = Served(tmp_path)
    for method, path in asked:
        assert talk(served.port, request(f"{method} {path} HTTP/1.1", HOST, token=False))[0] == 401, path
    served.stop()
    client = TestClient(app, headers={"Authorization": f"Bearer {TOKEN}", "Host": "127.0.0.1"})
    for method, path in asked[2:-1]:
        answer = client.request(method, path, content="{}", headers={"Content-Type": "application/json"})
        assert answer.status_code == 403, path
    assert client.get("/api/train").json()["read_only"]
    assert files(tmp_path) == set()


# The queue ------------------------------------------------------------------------------------------------------

FAKE = """
import fcntl, json, os, signal, socket, sys, time
name = sys.argv[-1] if sys.argv[1] == "train" else sys.argv[2]
signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
if "9" in sys.argv:
    print("a note\\nrecur: the loss exploded at step 9", file=sys.stderr)
    sys.exit(2)
os.makedirs(name, exist_ok=True)
lock = open(f"{name}/lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX)
json.dump({"host": socket.gethostname(), "process": os.getpid(), "since": ""}, lock)
lock.flush()
open(f"{name}/manifest.json", "w").write(json.dumps(sys.argv[1:]))
print("reading", file=sys.stderr, flush=True)
time.sleep(0.1 if "7" in sys.argv else 60)
"""
"""In the place of recur: it holds a lock and waits; 7 steps are done at once, and 9 fail."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(queues, "COMMAND", [sys.executable, "-S", "-c", FAKE])
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/book.txt").write_text(BOOK)
    return tmp_path


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def states(queue: TrainingQueue) -> dict[str, str]:
    return {job["name"]: job["state"] for job in queue.jobs()}


def job(name: str = "", steps: int = 1000, **more: Any) -> TrainingJob:
    return TrainingJob(name, "language", "book.txt", {"steps": steps}, **more)


def test_one_trains_and_the_others_wait_for_their_turn(folder: Path) -> None:
    queue = TrainingQueue(folder, TextStore(folder))
    names = [queue.add(job(steps=steps)).name for steps in (1000, 7, 9, 1000)]
    assert names == ["book", "book-2", "book-3", "book-4"]
    until(lambda: holder_of(folder / "book"))
    assert states(queue) == {"book": "running", "book-2": "waiting", "book-3": "waiting", "book-4": "waiting"}
    until(lambda: queue.jobs()[0]["said"] == "reading")
    assert json.loads((folder / "book/manifest.json").read_text()) == [
        "train", "texts/book.txt", "--task", "language", "--steps", "1000", "--out", "book",
    ]  # fmt: skip
    with pytest.raises(RecurError, match="already"):
        queue.resume("book", {})
    with pytest.raises(RecurError, match="stop it first"):
        queue.remove("book")
    queue.remove("book-4")
    queue.stop("book")
    until(lambda: states(queue) == {"book": "stopped", "book-2": "done", "book-3": "failed"})
    assert queue.jobs()[2]["error"] == "the loss exploded at step 9"
    with pytest.raises(RecurError, match="named book already"):
        queue.add(job("book"))
    with pytest.raises(RecurError, match="minutes, steps or epochs"):
        queue.resume("book", {"trust": True})
    queue.resume("book", {"minutes": 2})
    until(lambda: holder_of(folder / "book"))
    assert queue.close() == "book", "the studio ends, and what trains is stopped"
    assert states(queue)["book"] == "stopped"


def test_what_goes_on_after_the_studio_is_found_again(folder: Path) -> None:
    first = TrainingQueue(folder, TextStore(folder))
    first.add(job("kept", keep=True))
    first.add(job("later"))
    until(lambda: holder_of(folder / "kept"))
    assert first.close() == ""
    until(lambda: first._thread is None or states(first)["kept"] == "running")
    second = TrainingQueue(folder, TextStore(folder))
    assert states(second) == {"kept": "running", "later": "held"}
    second.resume("later", {})
    assert states(second)["later"] == "waiting", "one trains at a time"
    second.stop("kept")
    until(lambda: states(second) == {"later": "running", "kept": "stopped"} or holder_of(folder / "later"))
    process = next(job["process"] for job in second.jobs() if job["name"] == "later")
    os.kill(process, signal.SIGKILL)  # as the studio itself, say
    until(lambda: states(second)["later"] == "failed")
    assert second.jobs()[-1]["error"] == "its process was ended by signal 9"


def test_jobs_that_somebody_else_wrote_are_checked_like_any_request(folder: Path) -> None:
    evil = [
        {"name": "a", "task": "language", "text": "book.txt", "options": {"cell": "mine.py:Mine"}},
        {"name": "../b", "task": "language", "text": "book.txt"},
        {"name": "c", "task": "language", "text": "../../etc/passwd"},
        {"name": "d", "resumes": True, "options": {"trust": True}},
        {"name": "e", "task": "language", "text": "book.txt", "state": "running", "process": os.getpid()},
        {"name": "f", "task": "language", "text": "book.txt", "error": 5, "state": "failed"},
        {"name": "g", "task": "language", "text": "book.txt", "state": "eaten"},
        {"name": 3}, 5, {"unknown": 1},
    ]  # fmt: skip
    (folder / ".studio").mkdir()
    (folder / ".studio/jobs.json").write_text(json.dumps({"jobs": evil}))
    queue = TrainingQueue(folder, TextStore(folder))
    assert states(queue) == {"e": "held"}, "and nothing is started, nor ended, by itself"


@pytest.mark.parametrize("kind", ["pipe", "hard link", "link", "folder"])
def test_what_lies_in_the_place_of_a_log_is_not_opened(folder: Path, tmp_path: Path, kind: str) -> None:
    (folder / ".studio").mkdir()
    log, outside = folder / ".studio/book.log", tmp_path / "mine"
    outside.write_text("mine")
    make: dict[str, Callable[[], object]] = {
        "pipe": lambda: os.mkfifo(log),
        "hard link": lambda: os.link(outside, log),
        "link": lambda: log.symlink_to(outside),
        "folder": log.mkdir,
    }
    make[kind]()
    queue = TrainingQueue(folder, TextStore(folder))
    queue.add(job(steps=7))
    until(lambda: states(queue)["book"] in ("done", "failed"))
    assert states(queue)["book"] == ("failed" if kind == "folder" else "done")
    assert outside.read_text() == "mine"
    queue.close()


def test_one_damaged_run_does_not_hide_the_others(client: Any, tiny: Path, tmp_path: Path, monkeypatch: Any) -> None:
    for name in ("whole", "damaged", "odd"):
        shutil.copytree(tiny / "tiny", tmp_path / "runs" / name)
    path = tmp_path / "runs/damaged/manifest.json"
    found = json.loads(path.read_text())
    found["checkpoints"][0]["logs"]["metrics.jsonl"] = []
    del found["sha256"]
    digest = hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps({**found, "sha256": digest}))

    def measured(path: Path, metric: str) -> Any:
        assert path.name != "odd", "a fault that nobody has thought of"
        return measurements(path, metric)

    monkeypatch.setattr("recur.studio.runs.measurements", measured)
    answer = client.get("/api/runs")
    assert answer.status_code == 200
    runs = {run["name"]: run for run in answer.json()["runs"]}
    assert "task" in runs["whole"]
    assert "manifest.json is damaged" in runs["damaged"]["error"]
    assert "nobody has thought of" in runs["odd"]["error"]


# What is seen ---------------------------------------------------------------------------------------------------


def test_long_curves_keep_their_extremes() -> None:
    values = np.sin(np.arange(50_000) / 300).tolist()
    values[31_234], values[777], values[10] = 40.0, -40.0, None
    kept = thin_curve(values)
    assert len(kept) <= MAX_POINTS
    assert {0, 777, 31_234, 49_999} <= set(kept)
    assert kept == sorted(kept)
    assert thin_curve([1.0, None, 3.0]) == [0, 2]


def test_points_are_read_as_they_come(tmp_path: Path) -> None:
    file, tail = tmp_path / "progress.jsonl", ProgressTail(tmp_path)
    assert tail.update() == []
    file.write_text('{"step": 1, "at": 10, "progress": 0.1}\n{"step": 2, "a')
    assert [point["step"] for point in tail.update()] == [1]
    with file.open("a") as out:
        out.write('t": 12, "progress": 0.2}\n')
    assert [point["step"] for point in tail.update()] == [1, 2]
    assert last_point(tmp_path)["step"] == 2
    assert seconds_left(tail.points) == pytest.approx(16)
    file.unlink()
    file.write_text('{"step": 1}\n')
    assert [point["step"] for point in tail.update()] == [1]
    assert tail.begun == 1


def test_watching_tells_what_is_new(tiny: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny / "tiny", tmp_path / "tiny")
    folder = RunFolder(tmp_path)
    watch = ChangeStream(folder, TrainingQueue(tmp_path, TextStore(tmp_path)), WorkerPool(), ["tiny"])
    assert watch.look() == {"jobs": []}
    assert watch.look() == {}
    point = read_jsonl(tmp_path / "tiny/progress.jsonl")[-1] | {"step": 99, "train_loss": 0.5}
    with (tmp_path / "tiny/progress.jsonl").open("a") as out:
        out.write(json.dumps(point) + "\n")
    assert watch.look() == {"points": {"tiny": [point]}}
    folder.write_notes("tiny", "a note")
    news = [watch.look() for _ in range(10)]
    (changed,) = [run for one in news for run in one.get("runs", [])]
    assert (changed["step"], changed["train_loss"], changed["notes"]) == (99, 0.5, "a note")
    shutil.rmtree(tmp_path / "tiny")
    assert any(one.get("gone") == ["tiny"] for one in (watch.look() for _ in range(10)))


def test_notes_stay_in_the_run_and_do_not_change_it(client: Any, tiny: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny / "tiny", tmp_path / "runs/tiny")
    assert client.post("/api/runs/tiny/notes", json={"text": "笔记"}).status_code == 200
    assert client.get("/api/runs/tiny").json()["notes"] == "笔记"
    assert client.post("/api/runs/tiny/next", json={"text": "the"}).status_code == 200
    assert client.post("/api/runs/tiny/notes", json={"text": "x" * 4001}).status_code == 400
    assert client.post("/api/runs/none/notes", json={"text": "x"}).status_code == 404
    (tmp_path / "runs/tiny/notes.txt").unlink()
    (tmp_path / "runs/tiny/notes.txt").symlink_to(tmp_path / "mine")
    (tmp_path / "mine").write_text("mine")
    client.post("/api/runs/tiny/notes", json={"text": "x"})
    assert (tmp_path / "mine").read_text() == "mine", "a link is replaced, and not followed"


def test_many_runs_are_listed_with_what_is_known(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recur.studio.runs.NEWEST", 1)
    for name in "abc":
        shutil.copytree(tiny / "tiny", tmp_path / name)
    folder = RunFolder(tmp_path)
    found = {run["name"]: "pending" in run for run in folder.list(0, first="b")}
    assert found == {"a": True, "b": False, "c": True}
    monkeypatch.setattr("recur.studio.runs.NEWEST", 8)
    assert not any("pending" in run for run in RunFolder(tmp_path).list(0)), "the newest few are always read"
    assert not any("pending" in run for run in folder.list())
    assert not any("pending" in run for run in folder.list(0)), "read once"
