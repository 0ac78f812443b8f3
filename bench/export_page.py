"""A page's model in node beside the same model in Python, and the page itself in headless Chromium, its drawing and all
of the browser's processes included: characters written a second of processor time."""

from __future__ import annotations

import importlib.util
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import recur
from recur.export import html, to_portable
from recur.export.html import build_javascript, find_node, run_model_in_node

CHARACTERS = 4000

WRITE = """
  const own = new LanguageModel(model, about), choice = new Choice({ temperature: 0.8 }), found = [];
  for (const kind of ["WebAssembly", "JavaScript"]) {
    if (kind === "JavaScript") kernel = plainProduct;
    for (let round = 0; round < 2; round++) {  // the first one is compiled on the way
      const follower = new Follower(own), random = makeRandom(round), begun = process.cpuUsage();
      for (let k = 0; k < count; k++) follower.push(choice.draw(without(follower.now.logits, own.never), random));
      const { user, system } = process.cpuUsage(begun);
      if (round) found.push([kind, (1e6 * count) / (user + system)]);
    }
  }
  return Object.fromEntries(found);
"""


def measure(rounds: int = 5) -> dict[str, Any]:
    """Of the network that `recur train` makes of `pydoc`, as good as untrained: medians of characters a second of
    processor time, the sides taking turns."""
    if find_node() is None:
        raise SystemExit("pages are measured in node, which is not here: apt-get install nodejs")
    torch.set_num_threads(1)
    model = recur.fit("pydoc", task="language", steps=1, baseline=False, threads=1, device="cpu")
    form = to_portable(model)
    made = build_javascript(form, quantize=True)
    rates: dict[str, list[float]] = {"WebAssembly": [], "JavaScript": [], "Python": []}
    for seed in range(rounds):
        for kind, rate in run_model_in_node(made, WRITE, count=CHARACTERS).items():
            rates[kind].append(rate)
        begun = time.process_time()
        model.generate("", CHARACTERS, temperature=0.8, seed=seed)
        rates["Python"].append(CHARACTERS / (time.process_time() - begun))
    found = {kind: statistics.median(all_) for kind, all_ in rates.items()}
    page = html.page(form, made, quantize=True)
    return {
        "weights": sum(p.numel() for p in model.model.parameters()),
        "bytes": len(page.encode()),
        "characters_a_second": found,
        "in_chromium": in_chromium(page, rounds),
    }


def in_chromium(page: str, rounds: int) -> list[float]:
    """Round by round; none where there is no Chromium."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None or importlib.util.find_spec("playwright") is None:
        return []
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        (Path(folder) / "page.html").write_text(page, encoding="utf-8")
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        view = browser.new_context(locale="en-US").new_page()
        view.set_default_timeout(120_000)
        view.goto((Path(folder) / "page.html").as_uri())
        view.locator('input[type="range"][name="length"]').fill(str(CHARACTERS))
        found = []
        for _ in range(rounds + 1):  # the first one is compiled on the way
            view.fill("#text", "")
            view.wait_for_timeout(200)  # until it has read that
            begun = children_time(os.getpid())
            view.click("#write")
            view.locator("p.note", has_text="tokens a second").first.wait_for()
            assert len(view.input_value("#text")) >= CHARACTERS
            found.append(CHARACTERS / (children_time(os.getpid()) - begun))
        browser.close()
    return found[1:]


def children_time(process: int) -> float:
    """Seconds of processor time of all processes below this one, as the kernel counts them."""
    parents, seconds = {}, {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = file.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        parents[int(file.parent.name)] = int(fields[1])
        seconds[int(file.parent.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    below, found = {process}, 0.0
    for one in sorted(parents):  # who comes later has a greater number
        if parents[one] in below:
            below.add(one)
            found += seconds[one]
    return found
