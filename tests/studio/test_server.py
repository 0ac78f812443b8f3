"""The server: what it answers, and what it refuses."""

from __future__ import annotations

import concurrent.futures
import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from recur.cli.app import run
from recur.data.text import BOS, EOS, PAD
from recur.runs import Run
from recur.runs.safe_dir import Lock
from recur.studio.app import BODY, make_app
from recur.studio.generation import generate
from recur.studio.loaded_model import LoadedModel
from recur.studio.runs import RunFolder
from recur.studio.workers import WAITING
from recur.tasks import open_predictor
from tests.studio.conftest import Served

httpx = pytest.importorskip("httpx")

TEXT = "the network keeps a word and the word is kept\n"


@pytest.fixture
def client(served: Served) -> Any:
    with httpx.Client(base_url=served.address, headers=served.headers, timeout=60) as made:
        yield made


@contextmanager
def client_of(folder: Path, **options: Any) -> Iterator[Any]:
    server = Served(folder, **options)
    with httpx.Client(base_url=server.address, headers=server.headers, timeout=60) as made:
        yield made
    server.stop()


def ask(client: Any, path: str, **body: Any) -> Any:
    answer = client.post(f"/api/runs/{path}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


# What it answers -----------------------------------------------------------------------------------------


def test_runs_are_listed_with_their_baseline(client: Any) -> None:
    found = {entry["name"]: entry for entry in client.get("/api/runs").json()["runs"]}
    assert set(found) == {"lstm", "gru", "damaged"}
    assert "another version" in found["damaged"]["error"]
    assert found["lstm"]["options"]["num_layers"] == 2
    assert (found["lstm"]["task"], found["lstm"]["metric"]) == ("language", "valid_perplexity")
    assert found["lstm"]["best"] > 1
    assert found["lstm"]["baseline"]["name"].endswith("-gram")
    assert found["lstm"]["baseline"]["value"] > 1
    assert not found["lstm"]["live"], "it is finished"
    curves = client.get("/api/runs/lstm").json()
    perplexity = curves["curves"]["valid_perplexity"]
    assert perplexity["step"][-1] == 120
    assert min(perplexity["value"]) == found["lstm"]["best"]
    assert curves["curves"]["train_loss"]["step"][-1] == 120, "as it went"
    assert curves["config"]["hidden_size"] == 24
    assert curves["config"]["texts"] == ["book.txt"], "files by their names"
    assert curves["samples"][-1]["step"] == 120
    assert len(curves["samples"][-1]["text"]) > 50


def test_next_tokens_are_the_models(client: Any, runs: Path) -> None:
    found = ask(client, "gru/next", text="the netw", temperature=1.0)
    model = open_predictor([runs / "gru"], "cpu")
    state: Any = None
    for token in "\nthe netw":
        chances, state = model.step(token, state)
    best = max(chances, key=lambda token: chances[token])
    assert found["bars"][0]["token"] == best == "o"
    written = (
        1 - chances["<unk>"] - chances["<pad>"] - chances["<bos>"]
    )  # what stands for something else is never offered
    assert found["bars"][0]["p"] == pytest.approx(chances[best] / written, abs=1e-4)
    assert ask(client, "gru/next", text="the netw", top_k=1)["bars"][0]["drawn"] == 1.0
    assert [bar["drawn"] for bar in ask(client, "gru/next", text="the netw", top_k=1)["bars"][1:]] == [0.0] * 11


def test_text_streams_and_the_same_seed_gives_the_same(client: Any) -> None:
    with client.stream("POST", "/api/runs/lstm/generate", json={"text": "the ", "length": 60, "seed": 3}) as answer:
        pieces = list(answer.iter_text())
    assert len(pieces) > 5, "it comes in pieces"
    again = client.post("/api/runs/lstm/generate", json={"text": "the ", "length": 60, "seed": 3}).text
    assert "".join(pieces) == again
    assert len(again) == 60


def test_special_tokens_are_not_generated_as_text(runs: Path) -> None:
    """The page sends back what it was given, and a character model knows no such characters."""
    model = LoadedModel(Run.open(runs / "gru"))
    model.language.model.bias.data[[PAD, BOS, EOS]] = 30.0  # masked: no text of this model has them
    written = "".join(generate(model, {"text": "the ", "length": 9, "seed": 0}))
    assert len(written) == 9
    assert set(written) <= set(TEXT)


def test_views_look_into_the_model(client: Any) -> None:
    found = ask(client, "lstm/activations", text=TEXT, layer=1, signal="gate f", unit=3)
    assert len(found["values"]) == len(found["tokens"]) == len(TEXT)
    assert all(0 <= v <= 1 for v in found["values"])
    assert found["signals"] == ["state h", "state c", "gate i", "gate f", "gate g", "gate o"]
    spans = ask(client, "lstm/similar", text=TEXT * 3, begin=47, end=55)["spans"]
    assert spans[0]["similarity"] > 0.9
    shape = ask(client, "lstm/unfold")
    assert (shape["H"], shape["layers"], shape["states"]) == (24, 2, ["h", "c"])
    letters = {weight["name"]: weight["letter"] for weight in shape["weights"]}
    assert letters["recurrent.weight_ih_l0"] == "U"
    assert letters["recurrent.weight_hh_l1"] == "W"
    assert letters["output"] == "V"
    assert letters["bias"] == ""


# What it refuses -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["..", "../secret", "..%2fsecret", "%2e%2e%2fsecret", "%2fetc%2fpasswd", "lstm%2f..%2f..%2fsecret", "none"]
)
def test_names_cannot_leave_the_folder(client: Any, name: str) -> None:
    for answer in (client.get(f"/api/runs/{name}"), client.post(f"/api/runs/{name}/unfold", json={})):
        assert answer.status_code in (404, 405)
        assert "hidden" not in answer.text


def test_a_link_out_of_the_folder_is_not_followed(runs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    (folder / "way-out").symlink_to(runs / "gru")
    assert RunFolder(folder).names() == []


@pytest.mark.parametrize("path", ["/page/../app.py", "/page/%2e%2e/app.py", "/page/..%2fguard.py"])
def test_only_the_pages_files_are_served(client: Any, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404
    assert "import" not in answer.text


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:80", "", "10.0.0.1"])
def test_other_hosts_are_refused(client: Any, host: str) -> None:
    answer = client.get("/api/runs", headers={"Host": host})
    assert answer.status_code == 400
    assert "unknown Host header" in answer.json()["error"]
    assert client.get("/api/runs", headers={"Host": "localhost:1"}).status_code == 200


def test_pages_of_other_sites_are_refused(client: Any) -> None:
    refused = client.post("/api/runs/gru/next", json={}, headers={"Origin": "http://evil.example"})
    assert refused.status_code == 403
    form = client.post("/api/runs/gru/next", content="{}", headers={"Content-Type": "text/plain"})
    assert form.status_code == 400, "what a form of another site can send is not read"


def test_large_and_odd_bodies_are_refused(client: Any) -> None:
    headers = {"Content-Type": "application/json"}
    assert client.post("/api/runs/gru/next", content=b"x" * (BODY + 1), headers=headers).status_code == 413
    for body in (b"[1]", b"{", b"[" * 50_000, b"\xff"):
        assert client.post("/api/runs/gru/next", content=body, headers=headers).status_code == 400
    for request in ({"text": "the " * 2000}, {"text": 3}, {"temperature": 0}, {"temperature": "hot"}):
        answer = client.post("/api/runs/gru/next", json=request)
        assert answer.status_code == 400
        assert answer.json()["error"]
    assert client.post("/api/runs/gru/generate", json={"length": 10**6}).status_code == 400
    assert client.post("/api/runs/gru/activations", json={"text": TEXT, "unit": 999}).status_code == 400
    assert client.post("/api/runs/gru/nothing", json={}).status_code == 404


def test_nothing_from_elsewhere_may_be_loaded(client: Any) -> None:
    answer = client.get("/")
    assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    page = Path(make_app.__code__.co_filename).parent / "page"
    for file in page.iterdir():
        content = file.read_text().replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in content, file
        assert "https://" not in content, file


@pytest.mark.parametrize("damage", ["weights", "vocabulary", "metrics"])
def test_a_damaged_run_is_named_and_the_others_still_work(runs: Path, tmp_path: Path, damage: str) -> None:
    for name in ("gru", "lstm"):
        shutil.copytree(runs / name, tmp_path / name)
    file = {"weights": "model.safetensors", "vocabulary": "vocab.json", "metrics": "metrics.jsonl"}[damage]
    (tmp_path / "gru" / file).write_bytes(b'\xff\x00{"step": ')
    with client_of(tmp_path) as client:
        assert client.get("/api/runs").status_code == 200
        answer = client.post("/api/runs/gru/next", json={"text": "the"})
        assert answer.status_code == (200 if damage == "metrics" else 409)
        assert client.post("/api/runs/lstm/next", json={"text": "the"}).status_code == 200


def test_a_strangers_cell_is_not_executed_unless_trusted(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "ran"
    source = "import os, pathlib\nfrom recur.cells import GRU\nclass Mine(GRU): name = ''\n"
    (tmp_path / "mine.py").write_text(f"{source}pathlib.Path({str(mark)!r}).touch()\n")
    options = [
        "--hidden-size",
        "8",
        "--steps",
        "2",
        "--threads",
        "1",
        "--no-baseline",
        "-q",
        "--out",
        str(tmp_path / "r/a"),
    ]
    assert run(["train", str(runs.parent / "book.txt"), "--cell", f"{tmp_path}/mine.py:Mine", *options]) == 0
    mark.unlink()
    with client_of(tmp_path / "r") as client:
        assert client.post("/api/runs/a/next", json={"text": "a"}).status_code == 200, "one's own"
        other = Run.open(tmp_path / "r/a", writing=True)
        other.replace("cell.py", f"{source}pathlib.Path({str(mark)!r}).mkdir()\n".encode())  # swapped behind its back
        other.commit()
        answer = client.post("/api/runs/a/next", json={"text": "ab"})
        assert answer.status_code == 409
        assert "cell.py, 4 lines" in answer.json()["error"]
        assert "add --trust" in answer.json()["error"]
        assert client.get("/api/runs").json()["runs"][0]["architecture"].endswith("cell.py:Mine")
    assert not mark.exists()
    monkeypatch.setenv("RECUR_STATE", str(tmp_path / "state"))
    with client_of(tmp_path / "r", trust=True) as client:
        assert client.post("/api/runs/a/next", json={"text": "a"}).status_code == 200
    assert mark.is_dir()


def test_another_address_needs_a_token(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["studio", str(runs), "--host", "0.0.0.0"]) == 2
    assert "--token" in capsys.readouterr().err
    assert run(["studio", str(runs / "nowhere")]) == 2
    assert run(["studio", str(runs), "--token", ""]) == 2


def test_nothing_is_answered_without_the_token(runs: Path) -> None:
    with client_of(runs, hosts=None) as client:
        client.headers = {"Host": "studio.example:80"}
        assert client.get("/api/runs").status_code == 401
        assert client.get("/page/app.js").status_code == 401
        assert client.post("/api/runs/gru/next", json={}).status_code == 401
        assert client.get("/?token=wrong").status_code == 401
        assert client.get("/api/runs?token=open%20sesame").status_code == 401, "an address with it opens the page only"
        assert client.get("/api/runs", headers={"Authorization": "Bearer open sesame"}).status_code == 200
        welcome = client.get("/?token=open%20sesame")
        assert welcome.status_code == 303, "to the address without the token"
        kept = welcome.headers["set-cookie"]
        assert {"httponly", "samesite=strict"} <= set(kept.lower().replace(" ", "").split(";"))
        assert "sesame" not in kept
        cookie = kept.partition(";")[0]
        assert client.get("/api/runs", headers={"Cookie": cookie}).status_code == 200, "enough from now on"
        assert client.get("/api/runs", headers={"Cookie": f"a,b=1; {cookie}"}).status_code == 200, (
            "others are no matter"
        )
        other = {"Cookie": cookie, "Host": "studio.example:81"}
        assert client.get("/api/runs", headers=other).status_code == 401, "two servers of one host keep theirs apart"
        again = client.get("/?token=open%20sesame", headers={"Cookie": cookie})
        assert again.status_code == 303, "an address with the token never stays"


def test_the_command_serves_and_ends(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-m", "recur", "studio", str(runs), "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = json.loads(server.stdout.readline())["address"]
        try:
            assert address.startswith("http://127.0.0.1:")
            start, _, token = address.partition("?token=")
            assert httpx.get(f"{start}api/runs", timeout=20).status_code == 401
            kept = httpx.get(address, timeout=20).headers["set-cookie"].partition(";")[0]
            assert len(httpx.get(f"{start}api/runs", headers={"Cookie": kept}, timeout=20).json()["runs"]) == 3
            assert len(token) >= 32, "of its own, each time"
            taken = start.rstrip("/").rpartition(":")[2]
            assert run(["studio", str(runs), "--port", taken]) == 2
            assert capsys.readouterr().err.count("\n") == 1
        finally:
            server.send_signal(signal.SIGINT)
        assert server.wait(20) in (0, 130)
        assert server.stderr is not None
        assert "Traceback" not in server.stderr.read()


# Many at once --------------------------------------------------------------------------------------------


def test_fifty_clients_stream_at_once(served: Served) -> None:
    def stream(seed: int) -> str:
        body = {"text": "the ", "length": 40, "seed": seed}
        url = f"{served.address}/api/runs/gru/generate"
        return str(httpx.post(url, json=body, headers=served.headers, timeout=120).text)

    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        texts = list(pool.map(stream, range(50)))
    assert all(len(text) >= 35 for text in texts), "but for special tokens"
    assert len(set(texts)) > 10


def test_one_run_does_not_block_another(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a look into one run takes its time, and more wait behind it, another run answers."""
    from recur.studio import app

    entered, release = threading.Event(), threading.Event()

    def slow(model: LoadedModel, request: Any) -> Any:
        if model.language.run.path.name == "lstm":
            entered.set()
            release.wait(60)
        return {"done": True}

    monkeypatch.setitem(app.VIEWS, "activations", slow)

    def post(path: str, body: dict[str, str]) -> Any:
        return httpx.post(f"{served.address}/api/runs/{path}", json=body, headers=served.headers, timeout=60)

    with concurrent.futures.ThreadPoolExecutor(90) as pool:
        waiting = [pool.submit(post, "lstm/activations", {}) for _ in range(WAITING)]
        assert entered.wait(30)
        while served.studio.workers.lines["lstm"].length < WAITING:
            time.sleep(0.01)
        refused = post("lstm/activations", {})
        assert refused.status_code == 503, "a line has an end"
        assert refused.headers["Retry-After"] == "1"
        assert post("gru/activations", {}).json() == {"done": True}
        assert post("gru/next", {"text": "the"}).status_code == 200
        assert post("lstm/next", {"text": "the"}).status_code == 200, "a step of the same run neither"
        listed = httpx.get(f"{served.address}/api/runs", headers=served.headers, timeout=60)
        assert listed.status_code == 200
        assert not any(future.done() for future in waiting)
        release.set()
        assert all(future.result().json() == {"done": True} for future in waiting)


def test_views_of_a_run_do_not_wait_behind_its_report(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ask for a report, which is made once; meanwhile a slow view of the same run answers, and as it does alone."""
    from recur.studio import reports

    entered, release, measured = threading.Event(), threading.Event(), []

    def slow(looked: Any, tokens: int) -> Any:
        measured.append(looked)
        entered.set()
        assert release.wait(60)
        return ordinary(looked, tokens=tokens)

    ordinary = reports.xray
    monkeypatch.setattr(reports, "xray", slow)

    def post(view: str, body: dict[str, str]) -> Any:
        return httpx.post(f"{served.address}/api/runs/gru/{view}", json=body, headers=served.headers, timeout=60)

    text = {"text": "the network reads a word and the state keeps it"}
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(post, "diagnosis", {}) for _ in range(2)]
        assert entered.wait(30)
        while served.studio.workers.reports["gru"].length < 2:
            time.sleep(0.01)
        beside = post("activations", text)
        assert beside.status_code == 200
        assert not any(future.done() for future in asked)
        release.set()
        first, second = (future.result().json() for future in asked)
    assert first["findings"]
    assert first == second
    assert len(measured) == 1
    assert measured[0].model is not served.studio.folder.kept("gru").predictor.model
    assert post("activations", text).json() == beside.json(), "the report has left nothing behind"


def test_a_run_that_trains_appears_and_grows(runs: Path, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.list() == []
    shutil.copytree(runs / "gru", tmp_path / "new")
    lines = (tmp_path / "new" / "metrics.jsonl").read_text().splitlines()
    (tmp_path / "new" / "metrics.jsonl").write_text(lines[0] + "\n")
    (tmp_path / "new" / "progress.jsonl").unlink()
    lock = Lock(tmp_path / "new")
    (first,) = folder.list()
    assert first["live"], "while somebody writes"
    lock.release()
    (tmp_path / "new" / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    (second,) = folder.list()
    assert second["step"] > first["step"]
    assert not second["live"]
    assert json.loads(lines[0])["step"] == first["step"]
