"""A run: a folder that holds all there is of it, and can be left, moved and opened at any moment.

    manifest.json        what belongs to the run, each file with its SHA-256; what it learned from, likewise
    config.toml          what was asked for, and what was chosen where nothing was; paths are relative to this folder
    vocab.json           tokens and their ids; a task with several vocabularies names each file after its own
    cell.py              a cell of the user's own, if there is one
    data/                what it learned from, where that was handed over in memory
    model.safetensors    the best weights so far
    metrics.jsonl        one JSON object a line: what was measured, and when
    samples.jsonl        what it made at each measurement
    progress.jsonl       the training loss as it goes, for who watches
    notes.txt            what its user wrote down of it
    baselines.json       what it has to beat
    machines.json        what trained it: machines, versions
    resume/              what it takes to go on: the newest checkpoint and the one before it
    lock                 who is writing, while somebody is

A run is one from its first checkpoint on, the one before the first step. Nothing in it is executed but cell.py, and
that only if the user has trained with it or trusts it; nothing outside of it is touched, whatever links lie in it; and
a file that is not the one that was written is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from torch import Tensor, nn

from recur.errors import RunError
from recur.files import sync_folder
from recur.run.beginning import check_free, is_run, taken
from recur.run.lock import NAME as LOCK
from recur.run.lock import Lock
from recur.run.logs import Log, parse_object
from recur.run.manifest import LOGS, SLOTS, Checkpoint, Fingerprint, Manifest, sha256
from recur.run.place import Place
from recur.run.progress import Progress
from recur.run.recorded import Recorded, read_manifest
from recur.run.tensors import check_weights, from_bytes, to_bytes
from recur.run.trust import check_trusted, trust
from recur.text import Vocab
from recur.typedefs import JsonObject

Vocabs = dict[str, Vocab]
"""By the name of their file, without .json."""

WEIGHTS, CONFIG, CELL = "model.safetensors", "config.toml", "cell.py"
BASELINES, MACHINES = "baselines.json", "machines.json"


class _Named(dict[str, Vocab]):
    """Vocabularies of a run, which may be a stranger's and lack one."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __missing__(self, name: str) -> Vocab:
        raise RunError(f"{self.path} is damaged: it has no {name}.json")


class Run(Recorded):
    """One folder."""

    def __init__(self, path: Path, manifest: Manifest, vocabs: Vocabs, lock: Lock | None = None) -> None:
        super().__init__(path, manifest)
        self.vocabs, self._lock = vocabs, lock
        self.trusting = False
        """Whether its cell is executed though this user has not trained with it."""
        self._logs = {name: Log(self.place, name) for name in LOGS}
        self.progress = Progress(self.place)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}, task={self.task!r})"

    @property
    def task(self) -> str:
        return self.manifest.task

    @property
    def vocab(self) -> Vocab:
        """The vocabulary of what the model reads or writes, where a task has but one."""
        return self.vocabs["vocab"]

    @property
    def config(self) -> Path:
        return self.path / CONFIG

    # Made and opened ---------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        path: Path | str,
        task: str,
        config: str,
        vocabs: Vocabs,
        cell: bytes | None = None,
        texts: dict[str, list[Fingerprint]] | None = None,
    ) -> Self:
        """A new folder, locked; `config` is the content of its config.toml. It is a run once it is committed."""
        check_free(path := Path(path))
        path.mkdir(parents=True, exist_ok=True)
        sync_folder(path.parent)
        lock = Lock(path)
        if is_run(path):  # of another process, a moment ago
            lock.release(remove=False)
            raise taken(path)
        run = cls(path, Manifest(task, list(vocabs), texts=texts or {}), vocabs, lock)
        try:
            run._write_first(config, cell)
        except BaseException:
            run.release()
            raise
        return run

    def _write_first(self, config: str, cell: bytes | None) -> None:
        self.place.sweep("resume")
        self.place.make_folder("resume")
        contents = {f"{name}.json": vocab.to_json().encode() for name, vocab in self.vocabs.items()}
        contents |= {CONFIG: config.encode()} | ({} if cell is None else {CELL: cell})
        for name, content in contents.items():
            self.place.write(name, content)
        self.manifest.files |= {name: [sha256(content)] for name, content in contents.items()}
        for log in self._logs.values():
            log.begin()

    @classmethod
    def open(cls, path: Path | str, *, writing: bool = False, trust: bool = False, words: bool = True) -> Self:
        """A run that is there. To write into it, nobody else may; to trust it is to execute a cell that it carries.
        Without the words of its vocabularies, which may be many, it says what it is and how it went."""
        path = Path(path)
        if not is_run(path):
            if (path / LOCK).is_file():
                raise RunError(f"{path} is not a run yet: training ended before its first step; begin again")
            raise RunError(f"{path} is not a run: it has no manifest.json")
        lock = Lock(path) if writing else None
        try:
            run = cls(path, read_manifest(Place(path)), _Named(path), lock)
            run.trusting = trust
            if writing:
                run.check_files()
            for name in run.manifest.vocabularies if words else ():
                content, file = run.read(f"{name}.json"), path / f"{name}.json"
                run.vocabs[name] = Vocab.from_json(_as_text(content, file), str(file))
        except BaseException:
            if lock is not None:
                lock.release()
            raise
        return run

    def release(self) -> None:
        """Let others write. A folder that has not become a run keeps its lock file, by which it is known as ours."""
        if self._lock is not None:
            self._lock.release(remove=is_run(self.path))

    # Files --------------------------------------------------------------------------------------------------

    def config_text(self) -> str:
        return _as_text(self.read(CONFIG, most=1 << 20), self.config)

    def write_config(self, content: str) -> None:
        self.replace(CONFIG, content.encode())
        self.commit()

    def cell_source(self) -> bytes | None:
        """The cell that it carries, if it does: source that may be executed."""
        if CELL not in self.manifest.files:
            return None
        source = self.read(CELL)
        if self.trusting:
            trust(source)
        check_trusted(self.path / CELL, source)
        return source

    def baselines(self) -> list[JsonObject] | None:
        """The plain models that the run has to beat, once they were measured: `name`, `value` and `metrics` of each."""
        if BASELINES not in self.manifest.files:
            return None
        found = parse_object(self.read(BASELINES))
        models = None if found is None else found.get("models")
        if not isinstance(models, list) or not all(_is_baseline(model) for model in models):
            raise RunError(f"{self.path / BASELINES} is damaged")
        return models

    def write_baselines(self, metric: str, models: Sequence[JsonObject]) -> None:
        self.replace(BASELINES, json.dumps({"metric": metric, "models": list(models)}).encode())
        self.commit()

    def machines(self) -> list[JsonObject]:
        """What trained it, one entry for each time that it was begun or gone on with."""
        if MACHINES not in self.manifest.files:
            return []
        found = parse_object(self.read(MACHINES))
        entries = None if found is None else found.get("machines")
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise RunError(f"{self.path / MACHINES} is damaged")
        return entries

    def add_machine(self, entry: JsonObject) -> None:
        """It is the run's with the next commit."""
        self.replace(MACHINES, json.dumps({"machines": [*self.machines()[-99:], entry]}).encode())

    # Weights ------------------------------------------------------------------------------------------------

    def save_weights(self, model: nn.Module, **about: object) -> None:
        """The best so far. They are the run's with the next commit."""
        weights = {name: value.detach().contiguous().cpu() for name, value in model.state_dict().items()}
        self.replace(WEIGHTS, to_bytes(weights, about))

    def load_weights(self, model: nn.Module) -> None:
        """The best weights so far, into a model of the run's task."""
        if WEIGHTS not in self.manifest.files:
            raise RunError(f"{self.path} has no {WEIGHTS} yet: train it on (recur resume {self.path})")
        most = 2 * sum(value.numel() * value.element_size() for value in model.state_dict().values()) + (1 << 24)
        content = self.read(WEIGHTS, most)
        self.put_weights(model, from_bytes(content, self.path / WEIGHTS)[0], str(self.path / WEIGHTS))

    def weights_about(self) -> JsonObject:
        """What is written with the best weights: their step, and their figures."""
        if WEIGHTS not in self.manifest.files:
            return {}
        return from_bytes(self.read(WEIGHTS, most=1 << 40), self.path / WEIGHTS)[1]

    def weights_digest(self) -> tuple[int, str]:
        """By which the best weights are known: how many bytes, and their SHA-256."""
        return (self.path / WEIGHTS).stat().st_size, self.manifest.files[WEIGHTS][-1]

    def put_weights(self, model: nn.Module, weights: Mapping[str, Tensor], name: str) -> None:
        """Put weights into a model, or say what does not fit."""
        sizes = " and ".join(f"a vocabulary of {len(vocab)}" for vocab in self.vocabs.values())
        check_weights(model.state_dict(), weights, f"{name} does not fit config.toml{' and ' if sizes else ''}{sizes}")
        model.load_state_dict(dict(weights))

    # Logs ---------------------------------------------------------------------------------------------------

    def log(self, entry: Mapping[str, object], file: str = "metrics.jsonl") -> None:
        self._logs[file].append(entry)

    def metrics(self) -> list[JsonObject]:
        """All that was measured."""
        newest = self.manifest.checkpoints[:1]
        return self._logs["metrics.jsonl"].read(newest[0].logs["metrics.jsonl"] if newest else None)

    # Checkpoints --------------------------------------------------------------------------------------------

    def save_checkpoint(self, step: int, tensors: Mapping[str, Tensor], state: JsonObject) -> None:
        """A place to go on from, and a commit of all that was written before it."""
        before = self.manifest.checkpoints[:1]
        file, content = next(s for s in SLOTS if s not in [entry.file for entry in before]), to_bytes(tensors, state)
        self.place.write(file, content)
        logs = {name: log.extent for name, log in self._logs.items()}
        self.manifest.checkpoints = [Checkpoint(file, sha256(content), step, logs), *before]
        self.commit()

    def load_checkpoint(self, most: int | None = None) -> tuple[Checkpoint, dict[str, Tensor], JsonObject, list[str]]:
        """The newest checkpoint that is whole, its tensors and the rest; and what was found wrong with newer ones, such
        as more bytes than `most`."""
        complaints = []
        for entry in self.manifest.checkpoints:
            path = self.path / entry.file
            try:
                content = self.place.read(entry.file, most)
            except OSError:
                complaints.append(f"{path} is missing")
                continue
            except RunError as error:
                complaints.append(str(error))
                continue
            if sha256(content) == entry.sha256:
                return entry, *from_bytes(content, path), complaints
            complaints.append(f"{path} is damaged")
        raise RunError(f"{self.path} has no checkpoint to go on from" + "".join(f"; {c}" for c in complaints))

    def rewind(self, to: Checkpoint) -> list[str]:
        """Bring the logs back to a checkpoint; what was found wrong with them is returned."""
        self.progress.rewind(to.step)
        found = [log.rewind(to.logs[name]) for name, log in self._logs.items()]
        self.manifest.checkpoints = [replace(to, logs={name: log.extent for name, log in self._logs.items()})]
        self.commit()
        return [complaint for complaint in found if complaint is not None]


def _is_baseline(found: object) -> bool:
    return (
        isinstance(found, dict)
        and isinstance(found.get("name"), str)
        and type(found.get("value")) in (int, float)
        and isinstance(found.get("metrics"), dict)
    )


def _as_text(content: bytes, path: Path) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise RunError(f"{path} is not UTF-8") from None
