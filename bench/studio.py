"""The studio's page as somebody meets it: the first view over a thousand runs, and from a key to the bars in texts of
any length, on the server and in a real browser."""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import torch

from recur.run import Run
from recur.studio.app import make_app
from recur.studio.folder import Folder
from recur.studio.loaded import LoadedModel
from recur.studio.saliency import saliency
from recur.studio.writing import next_tokens
from recur.tasks import config_text, make_options, task_of
from recur.text import Corpus, Vocab, fit_vocab
from recur.web.server import make_server

TOKEN = "open sesame"
TEXT = "If the condition is true, the first suite is executed; otherwise the suite after else, if present. "
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
    options = make_options("language", {"hidden": hidden, "layers": 2, "cell": "lstm", "device": "cpu"})
    run = Run.create(path, "language", config_text(options, path), {"vocab": vocab})
    run.save_weights(task_of(options).new_model({"vocab": vocab}))
    run.commit()


def listing(folder: Path) -> dict[str, float]:
    """Seconds for the list of all runs: read for the first time, and again."""
    listed = Folder(folder)
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


TYPING = """async (letters) => {
  const area = document.querySelector('textarea'), bars = document.getElementById('bars'), found = [];
  for (const letter of letters) {
    const drawn = new Promise((done) => new MutationObserver((_, watching) => { watching.disconnect(); done(); })
      .observe(bars, { childList: true }));
    const begun = performance.now();
    area.value += letter;
    area.dispatchEvent(new Event('input'));
    await drawn;
    found.push((performance.now() - begun) / 1000);
  }
  return found;
}"""


def in_the_browser(folder: Path, lengths: tuple[int, ...]) -> dict[str, Any] | None:
    """In Chromium: seconds to the first view of all runs with its curves; from a key to its bars."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    chromium = shutil.which("chromium")
    if chromium is None:
        return None
    server = make_server(make_app(folder, TOKEN))
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.02)
    address = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    typed = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(bypass_csp=True)
        views = []
        for _ in range(3):
            begun = time.perf_counter()
            page.goto(f"{address}/?token={TOKEN}#/runs/")
            page.wait_for_selector("tr[data-run]", state="attached")
            page.wait_for_selector("svg.chart path", state="attached")
            views.append(time.perf_counter() - begun)
        for length in lengths:
            page.goto("about:blank")
            page.goto(f"{address}/#/write/wide")
            page.wait_for_selector("#bars button >> nth=3")
            text = (TEXT * (length // len(TEXT) + 1))[:length]
            page.evaluate("(text) => { const area = document.querySelector('textarea'); area.value = text; "
                          "area.dispatchEvent(new Event('input')); }", text)  # fmt: skip
            page.wait_for_function(f"document.querySelector('main').innerText.includes('{length:,} tokens')")
            typed.append({"characters": length, **_times("bars", page.evaluate(TYPING, TEXT[:KEYS]))})
        browser.close()
    server.should_exit = True
    return {"first_view_s": views[0], "again_s": min(views[1:]), "keys": typed}


def measure(runs: int = 1000, hidden: int = 256) -> dict[str, object]:
    torch.set_num_threads(1)  # one row at a time: a second thread would only wait
    folder = Path(tempfile.mkdtemp())
    try:
        make_runs(folder, runs, hidden)
        return {
            "list": listing(folder),
            "keys": keys(folder),
            "in_the_browser": in_the_browser(folder, LENGTHS[:3]),
        }
    finally:
        shutil.rmtree(folder)
