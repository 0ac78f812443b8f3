"""The studio's page as somebody meets it: the first view over a thousand runs, from a key to the bars in texts of any
length, on the server and in a real browser (playwright and Chromium), and points of a training as they are drawn."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from recur.data.text import Corpus, Vocab, fit_vocab
from recur.runs import Run, read_jsonl
from recur.serve.server import make_server
from recur.studio.app import make_app
from recur.studio.generation import next_tokens
from recur.studio.inspection import saliency
from recur.studio.loaded_model import LoadedModel
from recur.studio.runs import RunFolder
from recur.tasks import config_text, make_options, task_of

TOKEN = "open sesame"
TEXT = "If the condition is true, the first suite is executed; otherwise the suite after else, if present. "
LINE = TEXT.strip() + "\n"
LENGTHS = (100, 10_000, 100_000, 1_000_000)
"""Characters of a text that somebody goes on typing in."""
KEYS = 40
PIECE = 3000
"""Characters of one request, as the page sends a text that is pasted."""


def make_runs(folder: Path, runs: int, hidden: int) -> None:
    """So many runs of a hundred measurements each, and `wide`, a model of two layers of gated units."""
    (folder / "text.txt").write_text(TEXT * 20)
    vocab = fit_vocab(Corpus.of(str(folder / "text.txt")), "char")
    entry = {"step": 1, "seconds": 1.0, "train_loss": 2.0, "valid_loss": 2.0, "valid_perplexity": 7.4, "grad_norm": 0.5}
    lines = "".join(json.dumps({**entry, "step": step, "progress": step / 99}) + "\n" for step in range(100))
    first = folder / "run-0"
    Run.create(first, "language", config_text(make_options("language", {}), first), {"vocab": vocab}).commit()
    (first / "metrics.jsonl").write_text(lines)
    for k in range(1, runs):
        shutil.copytree(first, folder / f"run-{k}")
    wide(folder / "wide", vocab, hidden)


def wide(path: Path, vocab: Vocab, hidden: int) -> None:
    options = make_options("language", {"hidden_size": hidden, "num_layers": 2, "cell": "lstm", "device": "cpu"})
    run = Run.create(path, "language", config_text(options, path), {"vocab": vocab})
    run.save_weights(task_of(options).new_model({"vocab": vocab}))
    run.commit()


def listing(folder: Path) -> dict[str, float]:
    """Seconds for the list of all runs: read for the first time, and again."""
    listed = RunFolder(folder)
    begun = time.perf_counter()
    count = len(listed.list())
    first = time.perf_counter() - begun
    begun = time.perf_counter()
    listed.list()
    return {"runs": count, "first": first, "again": time.perf_counter() - begun}


def keys(folder: Path) -> list[dict[str, float]]:
    """Milliseconds a key on the server, at each length: the bars, and what the prediction hangs on."""
    model = LoadedModel(Run.open(folder / "wide"))
    found = []
    for length in LENGTHS:
        text = (TEXT * (length // len(TEXT) + 1))[:length]
        key = ""
        for at in range(0, length, PIECE):
            key = next_tokens(model, {"text": text[at : at + PIECE], "base": key, "keep": at})["key"]
        bars, hangs = [], []
        for k in range(KEYS):
            begun = time.perf_counter()
            key = next_tokens(model, {"text": TEXT[k], "base": key, "keep": length + k})["key"]
            bars.append(time.perf_counter() - begun)
            begun = time.perf_counter()
            saliency(model, {"text": "", "base": key, "keep": length + k + 1})
            hangs.append(time.perf_counter() - begun)
        found.append({"characters": length, **_times("bars", bars), **_times("hangs_on", hangs)})
    return found


def _times(name: str, seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {f"{name}_ms": 1e3 * statistics.median(ordered), f"{name}_slowest_ms": 1e3 * ordered[-1]}


WATCHING = """() => {
  const area = document.querySelector('textarea');
  let begun = 0;
  const since = () => performance.now() - begun;
  const painted = (then) => requestAnimationFrame(() => {
    const behind = new MessageChannel();
    behind.port1.onmessage = then;
    behind.port2.postMessage(0);
  });
  const when = (id, then) => new MutationObserver(then).observe(document.getElementById(id), { childList: true });
  area.addEventListener('keydown', (event) => { begun = event.timeStamp; window.found = {}; }, true);
  when('bars', () => painted(() => { window.found.bars = since(); }));
  when('hangs', () => painted(() => { window.found.hangs_on = since(); }));
  area.focus();
  area.setSelectionRange(area.value.length, area.value.length);
}"""
"""From a key to the frame in which what it changes is painted."""
PASTE = """(text) => {
  const area = document.querySelector('textarea');
  area.value = text;
  area.dispatchEvent(new Event('input'));
}"""


@contextmanager
def browsing(folder: Path) -> Iterator[tuple[Any, str]]:
    """A page of Chromium, and the address of a studio over the folder."""
    from playwright.sync_api import sync_playwright

    server = make_server(make_app(folder, TOKEN))
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.02)
    try:
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            yield (
                browser.new_page(bypass_csp=True),
                f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}",
            )
            browser.close()
    finally:
        server.should_exit = True


def in_the_browser(folder: Path, lengths: tuple[int, ...]) -> dict[str, Any]:
    """In Chromium: seconds to the first view of all runs with its curves and to the whole list; milliseconds from a
    key to its bars, and to what the prediction hangs on."""
    with browsing(folder) as (page, address):
        views = [_first_view(page, f"{address}/?token={TOKEN}#/runs/") for _ in range(4)]
        typed = []
        for length in lengths:
            page.goto("about:blank")
            page.goto(f"{address}/#/write/wide")
            page.wait_for_selector("#bars button >> nth=3")
            text = (LINE * (length // len(LINE) + 1))[:length]
            page.evaluate(PASTE, text)
            read = f"document.querySelector('main').innerText.includes('{length:,} tokens')"
            page.wait_for_function(read, timeout=600_000)
            page.evaluate(WATCHING)
            keys = [_key(page, letter) for letter in LINE[:KEYS]]
            of = {name: _times(name, [key[name] / 1e3 for key in keys]) for name in ("bars", "hangs_on")}
            typed.append({"characters": length, **of["bars"], **of["hangs_on"]})
    again = sorted(shown for shown, _ in views[1:])
    return {"first_view_s": views[0][0], "all_listed_s": views[0][1], "again_s": again[len(again) // 2], "keys": typed}


ARRIVING = """() => {
  window.arrived = {};
  const look = () => {
    const last = document.querySelectorAll('[data-measure=train_loss] path.curve');
    const points = [...last].map((path) => path.getAttribute('d').split(/[ML]/).length - 1);
    for (const count of points) window.arrived[count] ??= Date.now() / 1000;
  };
  new MutationObserver(look).observe(document.querySelector('main'), { childList: true, subtree: true });
}"""


def live_points(folder: Path, points: int = 20) -> dict[str, float]:
    """Seconds from the time at which a point was measured until it is drawn, of a training in a process of its own."""
    with browsing(folder) as (page, address):
        command = [
            sys.executable,
            "-m",
            "recur",
            "train",
            "pydoc",
            "--out",
            str(folder / "live"),
            "--hidden-size",
            "64",
        ]
        more = ["--minutes", "1", "--device", "cpu", "--threads", "1", "--no-baseline"]
        training = subprocess.Popen([*command, *more], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while not (folder / "live" / "progress.jsonl").is_file():
                time.sleep(0.1)
            page.goto(f"{address}/?token={TOKEN}#/runs/?runs=live")
            page.wait_for_selector("[data-measure=train_loss] path.curve", state="attached")
            page.evaluate(ARRIVING)
            page.wait_for_function(f"Object.keys(window.arrived).length >= {points}")
            arrived = {int(count): at for count, at in page.evaluate("window.arrived").items()}
            measured = [entry["at"] for entry in read_jsonl(folder / "live" / "progress.jsonl")]
        finally:
            training.terminate()
            training.wait()
    late = sorted(at - measured[count - 1] for count, at in arrived.items())
    return {"points": len(late), "median_s": statistics.median(late), "slowest_s": late[-1]}


def _first_view(page: Any, address: str) -> tuple[float, float]:
    """Seconds to rows and curves, and to the last of the runs."""
    page.goto("about:blank")
    begun = time.perf_counter()
    page.goto(address, wait_until="commit")
    page.wait_for_selector("tr[data-run]", state="attached")
    page.wait_for_selector("svg.chart path", state="attached")
    shown = time.perf_counter() - begun
    page.wait_for_function("!/being read/.test(document.querySelector('.foot').innerText)")
    return shown, time.perf_counter() - begun


def _key(page: Any, letter: str) -> dict[str, float]:
    page.keyboard.press(letter)
    page.wait_for_function("window.found.bars && window.found.hangs_on", polling=10)
    found: dict[str, float] = page.evaluate("window.found")
    return found


def measure(runs: int = 1000, hidden: int = 256) -> dict[str, object]:
    torch.set_num_threads(1)  # one row at a time: a second thread would only wait
    folder = Path(tempfile.mkdtemp())
    try:
        make_runs(folder, runs, hidden)
        return {
            "list": listing(folder),
            "keys": keys(folder),
            "load": os.getloadavg()[0],
            "in_the_browser": in_the_browser(folder, LENGTHS),
            "live_points": live_points(folder),
        }
    finally:
        shutil.rmtree(folder)
