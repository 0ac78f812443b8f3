"""How long it takes to look: gradient flow, a report, the page's first view, and a keystroke's next tokens."""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch

import recur
from recur.layers import Recurrent
from recur.probes import Subject, xray
from recur.probes.flow import flow
from recur.run import Run
from recur.studio.app import make_app
from recur.studio.folder import Folder
from recur.studio.loaded import LoadedModel
from recur.studio.writing import next_tokens
from recur.tasks import config_text, make_options, task_of
from recur.web.server import make_server

TOKEN = "open sesame"
TEXT = "If the condition is true, the first suite is executed; otherwise the suite after else"


def seconds(work: Callable[[], object], rounds: int) -> float:
    """The median, after one round to warm up."""
    work()
    times = []
    for _ in range(rounds):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def gradient_flow(rounds: int = 3) -> dict[str, float]:
    """1,000 steps through 2 layers of 256 units."""
    found = {}
    for cell in ("elman", "gru", "lstm"):
        subject = Subject.of(Recurrent(cell, 64, 256, layers=2), torch.randn(1, 1000, 64))
        found[cell] = seconds(lambda subject=subject: flow(subject, rows=1, steps=1000), rounds)  # type: ignore[misc]
    return found


def report(folder: Path) -> float:
    """All probes and the page of a run with 2 layers of 256, after a few steps of training."""
    sizes = {"hidden": 256, "layers": 2, "steps": 20, "threads": 1, "baseline": False}
    model = recur.fit("pydoc", task="language", out=folder / "run", device="cpu", **sizes)
    begun = time.perf_counter()
    xray(model).html()
    return time.perf_counter() - begun


def first_view(folder: Path, runs: int = 100) -> dict[str, float]:
    """The list of so many runs, read for the first time and again, each with a hundred measurements."""
    entry = {"step": 1, "seconds": 1.0, "train_loss": 2.0, "valid_loss": 2.0, "valid_perplexity": 7.4, "grad_norm": 0.5}
    lines = "".join(json.dumps({**entry, "step": step}) + "\n" for step in range(100))
    vocabs = Run.open(folder / "run").vocabs
    for k in range(runs):
        path = folder / "runs" / f"run-{k}"
        Run.create(path, "language", config_text(make_options("language", {}), path), vocabs).commit()
        (path / "metrics.jsonl").write_text(lines)
    begun = time.perf_counter()
    listed = Folder(folder / "runs")
    assert len(listed.list()) == runs
    first = time.perf_counter() - begun
    return {"first": first, "again": seconds(listed.list, 5)}


def keystroke(folder: Path, hidden: int = 512) -> float:
    """From one more character to the bars of what comes next, two layers."""
    options = make_options("language", {"hidden": hidden, "layers": 2, "device": "cpu"})
    vocabs = Run.open(folder / "run").vocabs
    run = Run.create(folder / "wide", "language", config_text(options, folder / "wide"), vocabs)
    run.save_weights(task_of(options).new_model(vocabs))
    run.commit()
    model = LoadedModel(run)
    typed = iter(range(1, len(TEXT)))
    return seconds(lambda: next_tokens(model, {"text": TEXT[: next(typed)]}), 60)


TYPING = """async () => {
  const area = document.querySelector('textarea'), bars = document.getElementById('bars'), found = [];
  for (const letter of 'The value of an expression is an object') {
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


def in_the_browser(folder: Path) -> dict[str, float] | None:
    """The same two as a person meets them in Chromium: the list with its curves, and a letter to its bars."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    chromium = shutil.which("chromium")
    if chromium is None:
        return None
    shutil.move(folder / "wide", folder / "runs" / "wide")
    server = make_server(make_app(folder / "runs", TOKEN))
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.02)
    address = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(bypass_csp=True)
        begun = time.perf_counter()
        page.goto(f"{address}/?token={TOKEN}#/runs/")
        page.wait_for_selector("tr[data-run] >> nth=99", state="attached")
        page.wait_for_selector("svg.chart path", state="attached")
        first = time.perf_counter() - begun
        page.goto(f"{address}/#/generate/wide")
        page.wait_for_selector("#bars button >> nth=3")
        letters = page.evaluate(TYPING)
        browser.close()
    server.should_exit = True
    return {"first_view": first, "keystroke": statistics.median(letters), "slowest_keystroke": max(letters)}


def measure() -> dict[str, object]:
    torch.set_num_threads(1)  # one row at a time: a second thread would only wait
    folder = Path(tempfile.mkdtemp())
    try:
        return {
            "flow_1000_steps_s": gradient_flow(),
            "report_s": report(folder),
            "list_100_runs_s": first_view(folder),
            "keystroke_s": keystroke(folder),
            "in_the_browser_s": in_the_browser(folder),
        }
    finally:
        shutil.rmtree(folder)
