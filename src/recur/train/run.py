"""A run: a folder that holds all there is of it.

    config.toml          what was asked for
    vocab.json           tokens and their ids; a task with several vocabularies names each file after its own
    model.safetensors    the best weights so far
    metrics.jsonl        one JSON object a line: what was measured, and when
    samples.jsonl        what it wrote at each measurement, if `recur train` made it; baseline.json, the n-gram to beat
    resume/              what it takes to go on: two checkpoints, and latest.json with their checksums

Every file is written beside its place, flushed to disk and moved there, so a process killed at any moment leaves the
old or the new one, never half of one. Nothing read from a run executes code.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from recur.errors import RunError
from recur.text import Vocab
from recur.train.config import Config
from recur.train.tasks import Vocabs, task_of


class Run:
    """One folder."""

    def __init__(self, path: Path | str, config: Config, vocabs: Vocabs) -> None:
        self.path, self.config, self.vocabs = Path(path), config, vocabs
        self.task = task_of(config)

    @property
    def vocab(self) -> Vocab:
        """The vocabulary of what the model writes or reads, where a task has but one."""
        return self.vocabs["vocab"]

    @staticmethod
    def create(path: Path | str, config: Config, vocabs: Vocab | Vocabs) -> Run:
        run = Run(path, config, {"vocab": vocabs} if isinstance(vocabs, Vocab) else vocabs)
        if (run.path / "config.toml").exists():
            raise RunError(f"{run.path} holds a run already; go on with it (recur resume {run.path}) or name another")
        (run.path / "resume").mkdir(parents=True, exist_ok=True)
        for name, vocab in run.vocabs.items():
            write_whole(run.path / f"{name}.json", vocab.to_json().encode())
        write_whole(run.path / "config.toml", config.to_toml().encode())
        return run

    @staticmethod
    def open(path: Path | str) -> Run:
        path = Path(path)
        if not (path / "config.toml").is_file():
            raise RunError(f"{path} is not a run: it has no config.toml")
        config = Config.of(**Config.read_toml(path / "config.toml"))
        return Run(path, config, {name: Vocab.load(path / f"{name}.json") for name in task_of(config).vocab_names})

    # The model --------------------------------------------------------------------------------------------

    def new_model(self) -> Any:
        return self.task.new_model(self.vocabs)

    def save_model(self, model: nn.Module, **about: Any) -> None:
        weights = {name: value.detach().contiguous().cpu() for name, value in model.state_dict().items()}
        write_whole(self.path / "model.safetensors", save(weights, {k: json.dumps(v) for k, v in about.items()}))

    def load_model(self, device: str = "cpu") -> Any:
        path = self.path / "model.safetensors"
        if not path.is_file():
            raise RunError(f"{self.path} has no model.safetensors yet: train it on (recur resume {self.path})")
        try:
            with safe_open(path, framework="pt") as stored:
                weights = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise RunError(f"{path} is damaged: {error}") from None
        model = self.new_model()
        self.fit(model, weights, str(path))
        return model.to(device).eval()

    def fit(self, model: nn.Module, weights: dict[str, Tensor], name: str) -> None:
        """Put weights into a model, or say what does not fit."""
        expected = {key: tuple(value.shape) for key, value in model.state_dict().items()}
        got = {key: tuple(value.shape) for key, value in weights.items()}
        if expected != got:
            first = next(k for k in sorted({*expected, *got}) if expected.get(k) != got.get(k))
            sizes = " and ".join(f"a vocabulary of {len(vocab)}" for vocab in self.vocabs.values())
            raise RunError(
                f"{name} does not fit config.toml{' and ' if sizes else ''}{sizes}: "
                f"{first} is {got.get(first, 'missing')} where {expected.get(first, 'nothing')} is expected"
            )
        model.load_state_dict(weights)

    # Metrics ----------------------------------------------------------------------------------------------

    def log(self, entry: Mapping[str, Any], file: str = "metrics.jsonl") -> None:
        with (self.path / file).open("a", encoding="utf-8") as out:
            out.write(json.dumps(entry) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        """All whole lines; one that a killed process left half-written is passed over."""
        return read_lines(self.path / "metrics.jsonl")

    def forget_metrics_after(self, step: int) -> None:
        """Drop what was measured behind the checkpoint that training goes on from: it will be measured again."""
        kept = [entry for entry in self.metrics() if entry.get("step", 0) <= step]
        write_whole(self.path / "metrics.jsonl", "".join(json.dumps(entry) + "\n" for entry in kept).encode())

    # Checkpoints ------------------------------------------------------------------------------------------

    def save_checkpoint(self, state: dict[str, Any]) -> None:
        folder = self.path / "resume"
        folder.mkdir(exist_ok=True)
        buffer = io.BytesIO()
        torch.save(state, buffer)
        name = f"step-{state['step']}.pt"
        before = [entry for entry in self._checkpoints() if entry["file"] != name][:1]
        write_whole(folder / name, buffer.getvalue())
        now = {"file": name, "sha256": hashlib.sha256(buffer.getvalue()).hexdigest(), "step": state["step"]}
        write_whole(folder / "latest.json", json.dumps([now, *before]).encode())
        for old in folder.glob("*.pt"):
            if old.name not in {entry["file"] for entry in (now, *before)}:
                old.unlink(missing_ok=True)

    def _checkpoints(self) -> list[dict[str, Any]]:
        try:
            found = json.loads((self.path / "resume" / "latest.json").read_text())
            return [e for e in found if isinstance(e, dict) and {"file", "sha256", "step"} <= e.keys()]
        except (OSError, ValueError, TypeError):
            return []

    def load_checkpoint(self) -> tuple[dict[str, Any], list[str]]:
        """The newest checkpoint that is whole, and what was found wrong with newer ones."""
        complaints = []
        for entry in self._checkpoints():
            path = self.path / "resume" / Path(entry["file"]).name
            try:
                content = path.read_bytes()
            except OSError:
                complaints.append(f"{path} is missing")
                continue
            if hashlib.sha256(content).hexdigest() != entry["sha256"]:
                complaints.append(f"{path} is damaged")
                continue
            return torch.load(io.BytesIO(content), weights_only=True), complaints
        raise RunError(f"{self.path} has no checkpoint to go on from" + "".join(f"; {c}" for c in complaints))


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines; what is no whole object is passed over."""
    found = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return [entry for entry in found if isinstance(entry, dict)]


def write_whole(path: Path, content: bytes) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
