"""A page's model in node, beside the same model in Python: characters written a second of one core's time."""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch

import recur
from recur.export.javascript_check import node, with_model
from recur.export.javascript_model import javascript
from recur.export.portable import portable

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
    if node() is None:
        raise SystemExit("pages are measured in node, which is not here: apt-get install nodejs")
    torch.set_num_threads(1)
    model = recur.fit("pydoc", task="language", steps=1, baseline=False, threads=1, device="cpu")
    made = javascript(portable(model), quantize=True)
    rates: dict[str, list[float]] = {"WebAssembly": [], "JavaScript": [], "Python": []}
    for seed in range(rounds):
        for kind, rate in with_model(made, WRITE, count=CHARACTERS).items():
            rates[kind].append(rate)
        begun = time.process_time()
        model.generate("", CHARACTERS, temperature=0.8, seed=seed)
        rates["Python"].append(CHARACTERS / (time.process_time() - begun))
    found = {kind: statistics.median(all_) for kind, all_ in rates.items()}
    size = len(made.code) + len(made.weights)
    return {"weights": sum(p.numel() for p in model.model.parameters()), "bytes": size, "characters_a_second": found}
