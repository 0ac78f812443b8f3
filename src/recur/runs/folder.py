"""Run folder: everything of a training, which can be stopped, moved and opened at any time.

    manifest.json        the files of the run and of its training data, with their SHA-256
    config.toml          all options, given or chosen; paths are relative to this folder
    vocab.json           tokens and their ids; a task with several vocabularies has one file for each
    cell.py              the custom cell, if there is one
    data/                training data that was given in memory
    model.safetensors    the best weights so far
    metrics.jsonl        one JSON object per evaluation
    samples.jsonl        a sample of the model at each evaluation
    progress.jsonl       the training loss over time
    notes.txt            notes of the user
    baselines.json       results of the baselines
    machines.json        machines and versions that trained the run
    resume/              the newest checkpoint and the one before it
    lock                 the process that is writing, if any

A folder is a run from its first checkpoint on, which is saved before the first step. Nothing in it is executed except
cell.py, and that only if the user has trained with it or trusts it. Nothing outside of it is touched, whatever links it
contains, and a file that does not match its checksum is refused.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

from torch import Tensor, nn

from recur.data.text import Vocab
from recur.errors import RunError
from recur.i18n import as_json, from_json
from recur.runs.manifest import (
    LOGS,
    SLOTS,
    Checkpoint,
    Fingerprint,
    Log,
    Manifest,
    Progress,
    VerifiedFolder,
    is_baseline,
    parse_object,
    read_manifest,
    sha256,
)
from recur.runs.manifest import MANIFEST_FILE as MANIFEST
from recur.runs.safe_dir import LOCK_FILE as LOCK
from recur.runs.safe_dir import Lock, SafeDir, is_ours
from recur.runs.weights import check_weights, from_bytes, to_bytes
from recur.utils.files import sync_folder
from recur.utils.trust import check_trusted
from recur.utils.types import JsonObject

Vocabs = dict[str, Vocab]
"""Vocabularies by the name of their file, without .json."""

WEIGHTS, CONFIG, CELL = "model.safetensors", "config.toml", "cell.py"
BASELINES, MACHINES = "baselines.json", "machines.json"


# New folders -----------------------------------------------------------------------------------------------------

DATA = "data"
"""Folder of training data that was given in memory."""


def is_run(path: Path) -> bool:
    return (path / MANIFEST).is_file()


def check_free(path: Path) -> None:
    """Refuse a folder that cannot become a new run: one that holds a run or other files."""
    if is_run(path):
        raise _taken(path)
    if path.exists() and not path.is_dir():
        raise RunError(f"{path} is in the way: a run is a folder")
    if path.is_dir() and any(path.iterdir()) and not _begun(path):
        raise RunError(f"{path} holds other files; name a new folder: --out {path}/first")


def _begun(path: Path) -> bool:
    """Return True if a folder holds only the files of a training that ended before its first checkpoint."""
    names = [entry.name for entry in path.iterdir()]
    ours = re.compile(
        r"lock|resume|data|cell\.py|config\.toml|(metrics|samples|progress)\.jsonl|[\w-]+\.json|\..+\.[0-9a-f]{8}\.part"
    )
    marked = names == [LOCK] or is_ours(path)
    return marked and all(ours.fullmatch(name) for name in names)


@contextmanager
def data_folder(path: Path) -> Iterator[Path]:
    """Create the data folder of a new run; remove it if the block raises an error."""
    check_free(path)
    path.mkdir(parents=True, exist_ok=True)
    SafeDir(path).make_folder(DATA)
    held = Lock(path)
    try:
        yield path / DATA
    except BaseException:
        shutil.rmtree(path / DATA)
        held.release()
        with suppress(OSError):  # the folder is not empty
            path.rmdir()
        raise
    held.release(remove=False)  # the lock file marks the folder of a new run


def _taken(path: Path) -> RunError:
    return RunError(f"{path} already holds a run; resume it (recur resume {path}) or name another folder")


class _Named(dict[str, Vocab]):
    """Vocabularies of an opened run; a missing one is an error that names its file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __missing__(self, name: str) -> Vocab:
        raise RunError(f"{self.path} is damaged: it has no {name}.json")


class Run(VerifiedFolder):
    """Folder of one training."""

    def __init__(self, path: Path, manifest: Manifest, vocabs: Vocabs, lock: Lock | None = None) -> None:
        super().__init__(path, manifest)
        self.vocabs, self._lock = vocabs, lock
        self.trusting = False
        """Whether its custom cell is executed though this user has not trained with it."""
        self._logs = {name: Log(self.dir, name) for name in LOGS}
        self.progress = Progress(self.dir)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}, task={self.task!r})"

    @property
    def task(self) -> str:
        return self.manifest.task

    @property
    def vocab(self) -> Vocab:
        """Vocabulary of a task that has only one."""
        return self.vocabs["vocab"]

    @property
    def config(self) -> Path:
        return self.path / CONFIG

    # Creation -----------------------------------------------------------------------------------------

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
        """Create and lock a folder, with `config` as its config.toml; the first commit makes it a run."""
        check_free(path := Path(path))
        path.mkdir(parents=True, exist_ok=True)
        sync_folder(path.parent)
        lock = Lock(path)
        if is_run(path):  # another process created it a moment ago
            lock.release(remove=False)
            raise _taken(path)
        run = cls(path, Manifest(task, list(vocabs), texts=texts or {}), vocabs, lock)
        try:
            run._write_first(config, cell)
        except BaseException:
            run.release()
            raise
        return run

    def _write_first(self, config: str, cell: bytes | None) -> None:
        self.dir.sweep("resume")
        self.dir.make_folder("resume")
        contents = {f"{name}.json": vocab.to_json().encode() for name, vocab in self.vocabs.items()}
        contents |= {CONFIG: config.encode()} | ({} if cell is None else {CELL: cell})
        for name, content in contents.items():
            self.dir.write(name, content)
        self.manifest.files |= {name: [sha256(content)] for name, content in contents.items()}
        for log in self._logs.values():
            log.begin()

    @classmethod
    def open(cls, path: Path | str, *, writing: bool = False, trust: bool = False, words: bool = True) -> Self:
        """Open an existing run.

        Args:
            writing: lock it, and check all of its files.
            trust: execute its custom cell though this user has not trained with it.
            words: read its vocabularies, which may be large.
        """
        path = Path(path)
        if not is_run(path):
            if (path / LOCK).is_file():
                raise RunError(f"{path} is not a run yet: training ended before its first step; train again")
            raise RunError(f"{path} is not a run: it has no manifest.json")
        lock = Lock(path) if writing else None
        try:
            run = cls(path, read_manifest(SafeDir(path)), _Named(path), lock)
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
        """Release the lock. A folder that is not a run yet keeps its lock file, which marks it as recur's."""
        if self._lock is not None:
            self._lock.release(remove=is_run(self.path))

    # Files --------------------------------------------------------------------------------------------------

    def config_text(self) -> str:
        return _as_text(self.read(CONFIG, most=1 << 20), self.config)

    def write_config(self, content: str) -> None:
        self.replace(CONFIG, content.encode())
        self.commit()

    def cell_source(self) -> bytes | None:
        """Return the source of its custom cell, after checking that it may be executed; None if there is none."""
        if CELL not in self.manifest.files:
            return None
        source = self.read(CELL)
        check_trusted(self.path / CELL, source, self.trusting)
        return source

    def baselines(self) -> list[JsonObject] | None:
        """Return the `name`, `value` and `metrics` of each baseline; None if they were not evaluated yet."""
        models = self._entries(BASELINES, "models", is_baseline)
        if models is None:
            return None
        return [{**model, "name": from_json(model.get("message") or model["name"])} for model in models]

    def write_baselines(self, metric: str, models: Sequence[JsonObject]) -> None:
        found = [{**model, "message": as_json(model["name"])} for model in models]
        self.replace(BASELINES, json.dumps({"metric": metric, "models": found}).encode())
        self.commit()

    def machines(self) -> list[JsonObject]:
        """Return the machines that trained the run, one entry per start or resume."""
        return self._entries(MACHINES, "machines", lambda entry: isinstance(entry, dict)) or []

    def _entries(self, name: str, key: str, is_valid: Callable[[object], bool]) -> list[JsonObject] | None:
        """Return the list of valid objects under a key of a JSON file; None if the run has no such file."""
        if name not in self.manifest.files:
            return None
        entries = (parse_object(self.read(name)) or {}).get(key)
        if not isinstance(entries, list) or not all(map(is_valid, entries)):
            raise RunError(f"{self.path / name} is damaged")
        return entries

    def add_machine(self, entry: JsonObject) -> None:
        """Add a machine; the next commit makes it part of the run."""
        self.replace(MACHINES, json.dumps({"machines": [*self.machines()[-99:], entry]}).encode())

    # Weights ------------------------------------------------------------------------------------------------

    def save_weights(self, model: nn.Module, **about: object) -> None:
        """Save the best weights; the next commit makes them part of the run."""
        weights = {name: value.detach().contiguous().cpu() for name, value in model.state_dict().items()}
        self.replace(WEIGHTS, to_bytes(weights, about))

    def load_weights(self, model: nn.Module) -> None:
        """Load the best weights into a model of the run's task."""
        if WEIGHTS not in self.manifest.files:
            raise RunError(f"{self.path} has no {WEIGHTS} yet: continue training (recur resume {self.path})")
        most = 2 * sum(value.numel() * value.element_size() for value in model.state_dict().values()) + (1 << 24)
        content = self.read(WEIGHTS, most)
        self.put_weights(model, from_bytes(content, self.path / WEIGHTS)[0], str(self.path / WEIGHTS))

    def weights_about(self) -> JsonObject:
        """Return the metadata of the best weights: their step and metrics."""
        if WEIGHTS not in self.manifest.files:
            return {}
        return from_bytes(self.read(WEIGHTS, most=1 << 40), self.path / WEIGHTS)[1]

    def weights_digest(self) -> tuple[int, str]:
        """Return the size and the SHA-256 of the best weights."""
        return (self.path / WEIGHTS).stat().st_size, self.manifest.files[WEIGHTS][-1]

    def put_weights(self, model: nn.Module, weights: Mapping[str, Tensor], name: str) -> None:
        """Load weights into a model, or raise RunError if they do not fit."""
        sizes = " and ".join(f"a vocabulary of {len(vocab)}" for vocab in self.vocabs.values())
        check_weights(model.state_dict(), weights, f"{name} does not fit config.toml{' and ' if sizes else ''}{sizes}")
        model.load_state_dict(dict(weights))

    # Logs ---------------------------------------------------------------------------------------------------

    def log(self, entry: Mapping[str, object], file: str = "metrics.jsonl") -> None:
        self._logs[file].append(entry)

    def metrics(self) -> list[JsonObject]:
        """Return all evaluations."""
        newest = self.manifest.checkpoints[:1]
        return self._logs["metrics.jsonl"].read(newest[0].logs["metrics.jsonl"] if newest else None)

    # Checkpoints --------------------------------------------------------------------------------------------

    def save_checkpoint(self, step: int, tensors: Mapping[str, Tensor], state: JsonObject) -> None:
        """Save a checkpoint, and commit everything that was written before it."""
        before = self.manifest.checkpoints[:1]
        file, content = next(s for s in SLOTS if s not in [entry.file for entry in before]), to_bytes(tensors, state)
        self.dir.write(file, content)
        logs = {name: log.extent for name, log in self._logs.items()}
        self.manifest.checkpoints = [Checkpoint(file, sha256(content), step, logs), *before]
        self.commit()

    def load_checkpoint(self, most: int | None = None) -> tuple[Checkpoint, dict[str, Tensor], JsonObject, list[str]]:
        """Return the newest intact checkpoint: its entry, tensors and state, and what is wrong with newer ones.

        A file of more than `most` bytes is damaged.
        """
        complaints = []
        for entry in self.manifest.checkpoints:
            path = self.path / entry.file
            try:
                content = self.dir.read(entry.file, most)
            except OSError:
                complaints.append(f"{path} is missing")
                continue
            except RunError as error:
                complaints.append(str(error))
                continue
            if sha256(content) == entry.sha256:
                return entry, *from_bytes(content, path), complaints
            complaints.append(f"{path} is damaged")
        raise RunError(f"{self.path} has no checkpoint to resume from" + "".join(f"; {c}" for c in complaints))

    def rewind(self, to: Checkpoint) -> list[str]:
        """Remove the log entries after a checkpoint; return messages about damaged logs."""
        self.progress.rewind(to.step)
        found = [log.rewind(to.logs[name]) for name, log in self._logs.items()]
        self.manifest.checkpoints = [replace(to, logs={name: log.extent for name, log in self._logs.items()})]
        self.commit()
        return [complaint for complaint in found if complaint is not None]


def _as_text(content: bytes, path: Path) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise RunError(f"{path} is not UTF-8") from None
