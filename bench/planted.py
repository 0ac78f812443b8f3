"""Runs with a fault that somebody put there: small language models on texts cut to size, by what is wrong with them.

    healthy        as long and as large as the text needs
    rate           the learning rate is far too high from the start
    diverging      the rate grows until the loss does
    dead units     six of ten ReLU units can never be on
    forget gate    an LSTM whose forget gate starts at σ(−30), where no gradient opens it
    window         backpropagation through two steps
    too small      a handful of units for as long as a healthy run
    over-fitted    a short text, many units, no dropout, no decay
    under-trained  a healthy run that was stopped after a fiftieth of its time
    vanishing      an Elman network with σ, whose slope is at most 1/4

A budget is counted in steps, so that a run is the same on every machine.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import recur
from recur.data.text import Corpus
from recur.errors import TrainingError
from recur.tasks.language.predictor import Language

CELLS = '''"""A cell with a fault in it."""

import torch
from torch import relu

from recur import Cell


class Dead(Cell):
    """ReLU units, six of ten of which are never on."""

    gates = ("h",)
    extras = {"shift": ("H",)}

    def init_extras(self, weights):
        torch.nn.init.zeros_(weights["shift"])
        weights["shift"][: 6 * len(weights["shift"]) // 10] = -1000.0

    def step(self, x, h, s, w):
        return (relu(x.h + h.h + w.shift),)
'''

SETTING = ("pydoc", "timemachine", "tang")
"""Texts that thresholds were set on, with seed 0."""

HELD_OUT = ("captions", "films", "products")
"""Texts that they were not."""

FILES = {
    "timemachine": "timemachine/timemachine.txt",
    "tang": "tang/quatrains.txt",
    "captions": "multi30k/train.en",
    "films": "sst-trees/train.txt",
    "products": "sentences/cr_train.tsv",
}

MARKS = {"films": r"\(\d |\)", "products": r"(?m)^\w+\t"}
"""What is not text in them: brackets with their labels, and labels before lines."""

TOKENS = ("char", "word")

SIZES = {"char": 180_000, "word": 300_000}
"""Characters of a text that are read."""

SHORT = {"char": 12_000, "word": 40_000}
"""… where it is to be learned by heart."""

PLANTS = (
    "healthy", "rate", "diverging", "dead units", "forget gate", "window", "too small", "over-fitted", "under-trained",
)  # fmt: skip

VANISHING = "vanishing"
"""An Elman network with σ: for advice only, since one that plain models do not beat is no fault."""

EXPECTED = {
    "healthy": "fine", "rate": "rate too high", "forget gate": "forget gate closed", "window": "window too short",
    VANISHING: "gradients vanish",
}  # fmt: skip
"""What X-ray calls them, where that is another name."""


@dataclass(frozen=True)
class Plant:
    """One run to be made."""

    fault: str
    text: str
    token: str
    seed: int

    @property
    def expected(self) -> str:
        return EXPECTED.get(self.fault, self.fault)

    @property
    def cost(self) -> int:
        """About how long it takes, beside others."""
        o = self.options(Path())
        return int(o["steps"]) * int(o["hidden_size"]) + (50_000 if self.token == "word" else 0)

    @property
    def name(self) -> str:
        return f"{self.fault} {self.text} {self.token} {self.seed}".replace(" ", "-")

    def options(self, cells: Path) -> dict[str, Any]:
        """Of `recur train`."""
        o: dict[str, Any] = {"token": self.token, "seed": self.seed, "threads": 1, "device": "cpu"}
        words = self.token == "word"
        if words:
            o |= {"max_vocab_size": 400, "lower": True, "punctuation": True}
        elif self.text == "tang":
            o |= {"max_vocab_size": 1000}
        few = words or self.text == "tang"
        healthy: dict[str, Any] = {"hidden_size": 64, "steps": 1200} if few else {"hidden_size": 256, "steps": 14000}
        healthy |= {"dropout_output": 0.4, "dropout_input": 0.2 if few else 0.1}
        small: dict[str, Any] = healthy | {"hidden_size": 64, "steps": 700 if few else 1200}
        faults: dict[str, dict[str, Any]] = {
            "healthy": healthy,
            "rate": small | {"lr": 0.08 if few else 0.4},
            "diverging": small | {"lr": 0.5, "schedule": "constant", "warmup_steps": small["steps"], "grad_clip": 0.0},
            "dead units": small | {"cell": f"{cells}:Dead"},
            "forget gate": small | {"cell": "lstm", "forget_bias": -30.0},
            "window": small | {"window": 2, "steps": 4000 if few else 8000},
            "too small": healthy | {"hidden_size": 3 if few else 6, "steps": 1500 if few else 3000,
                                    "dropout_output": 0.0, "dropout_input": 0.0},
            "over-fitted": {"hidden_size": 128, "steps": 800, "dropout_output": 0.0, "dropout_input": 0.0,
                            "weight_decay": 0.0, "alpha": 0.0, "beta": 0.0},
            "under-trained": healthy | {"steps": 60},
            "vanishing": small | {"cell": "elman-sigmoid"},
        }  # fmt: skip
        return o | faults[self.fault]

    def train(self, data: Path, folder: Path, **changed: Any) -> Language:
        """Into a folder of its own; what diverges leaves a run too. With other options, where some are given."""
        out = folder / (self.name + "-tried" * bool(changed))
        if (out / "manifest.json").exists():
            return recur.load(out, task="language", device="cpu")
        folder.mkdir(parents=True, exist_ok=True)
        cells, text = folder / f"{self.name}.py", folder / f"{self.name}.txt"
        cells.write_text(CELLS)
        size = (SHORT if self.fault == "over-fitted" else SIZES)[self.token]
        text.write_text(beginning(data, self.text, size), encoding="utf-8")
        try:
            return recur.fit(str(text), task="language", out=out, **{**self.options(cells), **changed})
        except TrainingError:
            return recur.load(out, task="language", device="cpu")


def beginning(data: Path, name: str, size: int) -> str:
    """So many characters of a text, from a seventh of it on, behind what is but a preface."""
    text = ""
    for piece in Corpus.of(str(data / FILES[name]) if name in FILES else name).pieces():
        text += piece
        if len(text) > (16 if name in MARKS else 4) * size:
            break
    if name in MARKS:
        text = re.sub(MARKS[name], "", text)
    at = text.find("\n", min(len(text) - size, len(text) // 7)) + 1 if len(text) > size else 0
    return text[at : at + size]
