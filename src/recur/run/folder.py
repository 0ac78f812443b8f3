"""A run: a folder that holds all there is of it.

    manifest.json        the format's version, the task, and which vocabularies there are
    config.toml          what was asked for, and what was chosen where nothing was; paths are relative to this folder
    vocab.json           tokens and their ids; a task with several vocabularies names each file after its own
    model.safetensors    the best weights so far
    metrics.jsonl        one JSON object a line: what was measured, and when
    samples.jsonl        what it made at each measurement
    baseline.json        what it has to beat
    resume/              what it takes to go on: two checkpoints, and latest.json with their checksums

Every file is written beside its place, flushed to disk and moved there, so a process killed at any moment leaves the
old or the new one, never half of one. Nothing read from a run executes code but a cell of one's own, which config.toml
names by its file.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from recur.errors import RunError
from recur.files import write_atomically
from recur.text import Vocab
from recur.typedefs import JsonObject

FORMAT = 2
"""Of the folder; another one is refused."""

Vocabs = dict[str, Vocab]
"""By the name of their file, without .json."""


def is_run(path: Path) -> bool:
    return (path / "config.toml").is_file()


class Run:
    """One folder."""

    def __init__(self, path: Path, task: str, vocabs: Vocabs) -> None:
        self.path, self.task, self.vocabs = path, task, vocabs

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}, task={self.task!r})"

    @property
    def vocab(self) -> Vocab:
        """The vocabulary of what the model reads or writes, where a task has but one."""
        return self.vocabs["vocab"]

    @property
    def config(self) -> Path:
        return self.path / "config.toml"

    @classmethod
    def create(cls, path: Path | str, task: str, config: str, vocabs: Vocabs) -> Self:
        """A new folder; `config` is the content of its config.toml."""
        run = cls(Path(path), task, vocabs)
        if is_run(run.path):
            raise RunError(f"{run.path} holds a run already; go on with it (recur resume {run.path}) or name another")
        (run.path / "resume").mkdir(parents=True, exist_ok=True)
        for name, vocab in vocabs.items():
            write_atomically(run.path / f"{name}.json", vocab.to_json().encode())
        run.write_json("manifest.json", {"format": FORMAT, "task": task, "vocabularies": list(vocabs)})
        run.write_config(config)
        return run

    @classmethod
    def open(cls, path: Path | str) -> Self:
        path = Path(path)
        if not is_run(path):
            raise RunError(f"{path} is not a run: it has no config.toml")
        manifest = read_json(path / "manifest.json")
        if manifest is None or manifest.get("format") != FORMAT:
            raise RunError(f"{path} is a run of another version of recur, whose folders this one does not read")
        task, names = manifest.get("task"), manifest.get("vocabularies")
        if not isinstance(task, str) or not isinstance(names, list) or not all(isinstance(n, str) for n in names):
            raise RunError(f"{path / 'manifest.json'} is damaged")
        return cls(path, task, {name: Vocab.load(path / f"{Path(name).name}.json") for name in names})

    def write_config(self, content: str) -> None:
        write_atomically(self.config, content.encode())

    def write_json(self, name: str, content: JsonObject) -> None:
        write_atomically(self.path / name, json.dumps(content).encode())

    def read_json(self, name: str) -> JsonObject | None:
        return read_json(self.path / name)

    # Weights ----------------------------------------------------------------------------------------------

    def save_weights(self, model: nn.Module, **about: object) -> None:
        weights = {name: value.detach().contiguous().cpu() for name, value in model.state_dict().items()}
        content = save(weights, {"about": json.dumps(about)})  # one entry: several would be written in any order
        write_atomically(self.path / "model.safetensors", content)

    def load_weights(self, model: nn.Module) -> None:
        """The best weights so far, into a model of the run's task."""
        path = self.path / "model.safetensors"
        if not path.is_file():
            raise RunError(f"{self.path} has no model.safetensors yet: train it on (recur resume {self.path})")
        try:
            with safe_open(path, framework="pt") as stored:
                weights = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise RunError(f"{path} is damaged: {error}") from None
        self.put_weights(model, weights, str(path))

    def put_weights(self, model: nn.Module, weights: Mapping[str, Tensor], name: str) -> None:
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
        model.load_state_dict(dict(weights))

    # Metrics ----------------------------------------------------------------------------------------------

    def log(self, entry: Mapping[str, object], file: str = "metrics.jsonl") -> None:
        with (self.path / file).open("a", encoding="utf-8") as out:
            out.write(json.dumps(entry) + "\n")

    def metrics(self) -> list[JsonObject]:
        """All whole lines; one that a killed process left half-written is passed over."""
        return read_jsonl(self.path / "metrics.jsonl")

    def forget_after(self, step: int) -> None:
        """Drop what was measured behind the checkpoint that training goes on from: it will be measured again."""
        for name in ("metrics.jsonl", "samples.jsonl"):
            kept = [entry for entry in read_jsonl(self.path / name) if entry.get("step", 0) <= step]
            if kept or (self.path / name).exists():
                write_atomically(self.path / name, "".join(json.dumps(entry) + "\n" for entry in kept).encode())

    # Checkpoints ------------------------------------------------------------------------------------------

    def save_checkpoint(self, state: dict[str, Any]) -> None:
        folder = self.path / "resume"
        folder.mkdir(exist_ok=True)
        buffer = io.BytesIO()
        torch.save(state, buffer)
        name = f"step-{state['step']}.pt"
        before = [entry for entry in self._checkpoints() if entry["file"] != name][:1]
        write_atomically(folder / name, buffer.getvalue())
        now = {"file": name, "sha256": hashlib.sha256(buffer.getvalue()).hexdigest(), "step": state["step"]}
        write_atomically(folder / "latest.json", json.dumps([now, *before]).encode())
        for old in folder.glob("*.pt"):
            if old.name not in {entry["file"] for entry in (now, *before)}:
                old.unlink(missing_ok=True)

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

    def _checkpoints(self) -> list[JsonObject]:
        try:
            found = json.loads((self.path / "resume" / "latest.json").read_text())
            return [e for e in found if isinstance(e, dict) and {"file", "sha256", "step"} <= e.keys()]
        except (OSError, ValueError, TypeError):
            return []


def read_json(path: Path) -> JsonObject | None:
    """The object of a file, or None where there is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def read_jsonl(path: Path) -> list[JsonObject]:
    """The objects of a file of JSON lines; what is no whole object is passed over."""
    found = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return [entry for entry in found if isinstance(entry, dict)]
