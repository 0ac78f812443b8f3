"""The folder of runs as the studio sees it: what is there now, and models kept open."""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from recur.errors import RecurError, RunError
from recur.probes import Subject
from recur.text.tokens import SPECIALS
from recur.train.config import Config
from recur.train.data import first_input
from recur.train.run import Run, read_lines
from recur.train.tasks.language import Language
from recur.use import load

OPEN = 6
"""Models kept in memory."""
LIVE = 20.0
"""Seconds since its last sign of life after which a run is not training any more."""
SHOWN = ("cell", "hidden", "layers", "token", "window", "rate", "clip", "optimizer")
CURVES = ("step", "seconds", "train_loss", "valid_loss", "train_perplexity", "valid_perplexity", "grad_norm", "clipped")
PREFIXES = 64


def without_specials(text: str) -> str:
    """Text as a person would have typed it: what stands for a beginning, an end or the unknown is no part of it."""
    for special in SPECIALS:
        text = text.replace(special, "")
    return text


class Opened:
    """One model for writing, and one of its own for probes, whose hooks would get in a writer's way."""

    def __init__(self, path: Path) -> None:
        language = load(path)
        if not isinstance(language, Language):
            raise RunError(f"{path.name} is a run of another task; the page opens language models")
        self.language = language
        self.stamp = (path / "model.safetensors").stat().st_mtime_ns
        self._probed: Language | None = None
        self._example: str | None = None
        self._read: OrderedDict[tuple[int, ...], tuple[Tensor, Any]] = OrderedDict()
        self._lock = threading.Lock()

    def subject(self, text: str) -> Subject:
        if self._probed is None:
            self._probed = load(self.language.run.path)
        return Subject.of(self._probed, text)

    def example(self) -> str:
        if self._example is None:
            tokens = 240 if self.language.vocab.tokenizer.kind == "char" else 60
            drawn = self.language.generate("", tokens, temperature=0.7, seed=0)[0]
            self._example = without_specials(drawn).strip() + "\n"
        return self._example

    @torch.no_grad()
    def logits(self, ids: list[int]) -> Tensor:
        """(V,) after a text; what was read for an earlier text that this one begins with is not read again."""
        whole = (first_input(self.language.vocab), *ids)
        for known in range(len(whole), 0, -1):
            with self._lock:
                found = self._read.get(whole[:known])
            if found is not None or len(whole) - known > 8:
                break
        model = self.language.model
        if found is None:
            out = model(torch.tensor([whole]))
            found = out.logits[0, -1:], out.state
        else:
            for k in whole[known:]:
                found = model.step(torch.tensor([k]), found[1])
        with self._lock:
            self._read[whole] = found
            while len(self._read) > PREFIXES:
                self._read.popitem(last=False)
        return found[0][0]


class Folder:
    """Runs by name: the names of the folders right inside, and nothing else."""

    def __init__(self, path: Path, own_cells: bool = False) -> None:
        self.path, self.own_cells = path, own_cells
        self._opened: OrderedDict[str, Opened] = OrderedDict()
        self._listed: dict[str, tuple[Any, dict[str, Any]]] = {}
        self._lock = threading.Lock()

    def names(self) -> list[str]:
        if not self.path.is_dir():
            return []
        inside = self.path.resolve()
        found = [p for p in self.path.iterdir() if (p / "config.toml").is_file() and p.resolve().parent == inside]
        return sorted(p.name for p in found)

    def at(self, name: str) -> Path:
        """The folder of a run that is listed; a name that is made of anything else is not."""
        if name not in self.names():
            raise RunError(f"there is no run {name!r} here")
        return self.path / name

    # What is there ----------------------------------------------------------------------------------------

    def list(self) -> list[dict[str, Any]]:
        return [self.summary(name) for name in self.names()]

    def summary(self, name: str) -> dict[str, Any]:
        path = self.path / name
        stamps = tuple(_stamp(path / file) for file in ("config.toml", "metrics.jsonl", "baseline.json"))
        kept = self._listed.get(name)
        if kept is None or kept[0] != stamps:
            kept = stamps, self._summary(path)
            self._listed[name] = kept
        newest = max(stamps[1], _stamp(path / "resume" / "latest.json"), _stamp(path / "vocab.json")) / 1e9
        finished = kept[1].get("progress", 0.0) >= 1
        return {**kept[1], "name": name, "live": not finished and time.time() - newest < LIVE, "changed": newest}

    def _summary(self, path: Path) -> dict[str, Any]:
        try:
            config = Config.of(**Config.read_toml(path / "config.toml"))
        except (RecurError, TypeError) as error:
            return {"broken": str(error).replace(f"{path}/", "")}
        entries = read_lines(path / "metrics.jsonl")
        found: dict[str, Any] = {field: getattr(config, field) for field in SHOWN}
        valid = [e["valid_perplexity"] for e in entries if isinstance(e.get("valid_perplexity"), int | float)]
        found["best"] = min(valid, default=None)
        found["baseline"] = _baseline(path)
        found["step"] = entries[-1].get("step") if entries else 0
        found["progress"] = entries[-1].get("progress", 0.0) if entries else 0.0
        return found

    def curves(self, name: str) -> dict[str, Any]:
        path = self.at(name)
        entries = read_lines(path / "metrics.jsonl")
        samples = {entry.get("step"): str(entry.get("text", "")) for entry in read_lines(path / "samples.jsonl")}
        return {
            **self.summary(name),
            "curves": {key: [_number(entry.get(key)) for entry in entries] for key in CURVES},
            "samples": [{"step": step, "text": text} for step, text in samples.items()][-20:],
        }

    # Models -----------------------------------------------------------------------------------------------

    def open(self, name: str) -> Opened:
        path = self.at(name)
        weights = path / "model.safetensors"
        with self._lock:
            kept = self._opened.get(name)
            if kept is not None and weights.is_file() and kept.stamp == weights.stat().st_mtime_ns:
                self._opened.move_to_end(name)
                return kept
        if not self.own_cells and ".py" in Run.open(path).config.cell:
            raise RunError(f"{name} uses a cell from a file, and opening it would run that file; allow it: --own-cells")
        opened = Opened(path)
        with self._lock:
            self._opened[name] = opened
            while len(self._opened) > OPEN:
                self._opened.popitem(last=False)
        return opened


def shown(token: str) -> str:
    return "\n" if token == "<eos>" else "" if token in SPECIALS else token


def _stamp(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _baseline(path: Path) -> float | None:
    try:
        return _number(json.loads((path / "baseline.json").read_text())["valid_perplexity"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _number(value: object) -> float | None:
    """What JSON and a chart can hold."""
    return float(value) if isinstance(value, int | float) and abs(value) < float("inf") else None
