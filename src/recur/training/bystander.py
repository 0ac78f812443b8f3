"""The run of a rank that does not write: it reads what all of them read, and leaves the folder to the first."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn

from recur.runs import Run, Vocabs
from recur.runs.manifest import Checkpoint, Manifest
from recur.utils.types import JsonObject


class Bystander(Run):
    """Everything that would change the folder does nothing."""

    @classmethod
    def of(cls, path: Path, task: str, vocabs: Vocabs) -> Bystander:
        """Of a run that the first rank has begun, maybe on a disk that this one does not see."""
        return cls(path, Manifest(task, list(vocabs)), vocabs)

    def replace(self, name: str, content: bytes) -> None: ...

    def add_machine(self, entry: JsonObject) -> None: ...

    def commit(self) -> None: ...

    def save_weights(self, model: nn.Module, **about: object) -> None: ...

    def log(self, entry: Mapping[str, object], file: str = "metrics.jsonl") -> None: ...

    def save_checkpoint(self, step: int, tensors: Mapping[str, Tensor], state: JsonObject) -> None: ...

    def rewind(self, to: Checkpoint) -> list[str]:
        return []
