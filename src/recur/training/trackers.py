"""Experiment trackers that receive the metrics of a training: TensorBoard, MLflow, Weights & Biases.

    recur train book.txt --log mlflow
    recur.fit("book.txt", task="language", callback=recur.training.Tracker("wandb"))

Where a tracker stores its data is its own setting: MLFLOW_TRACKING_URI, WANDB_MODE=offline, WANDB_PROJECT. A resumed
run continues its entry in the tracker, whose id is kept in the run folder.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recur.errors import OptionError, RecurError, unknown
from recur.runs import Run
from recur.tasks import options_of_run
from recur.tasks.common.model_card import changed_options
from recur.training.events import Event


class Backend(ABC):
    """One run of a tracker."""

    @abstractmethod
    def __init__(self, path: Path, task: str, options: Mapping[str, Any]) -> None: ...

    @abstractmethod
    def log(self, metrics: Mapping[str, float], step: int) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


class TensorBoard(Backend):
    def __init__(self, path: Path, task: str, options: Mapping[str, Any]) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise _missing("TensorBoard", "tensorboard") from None
        self.writer = SummaryWriter(str(path / "tensorboard"))

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        for name, value in metrics.items():
            self.writer.add_scalar(name, value, step)
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()


class MLflow(Backend):
    def __init__(self, path: Path, task: str, options: Mapping[str, Any]) -> None:
        try:
            import mlflow
        except ImportError:
            raise _missing("MLflow", "mlflow") from None
        self.mlflow, kept = mlflow, path / "mlflow.id"
        known = kept.read_text().strip() if kept.is_file() else None
        self.run = mlflow.start_run(run_id=known, run_name=None if known else path.name)
        if known is None:
            kept.write_text(self.run.info.run_id + "\n")
            mlflow.log_params({"task": task, **options})

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        self.mlflow.log_metrics(dict(metrics), step=step)

    def close(self) -> None:
        self.mlflow.end_run()


class WandB(Backend):
    def __init__(self, path: Path, task: str, options: Mapping[str, Any]) -> None:
        try:
            import wandb
        except ImportError:
            raise _missing("Weights & Biases", "wandb") from None
        kept = path / "wandb.id"
        known = kept.read_text().strip() if kept.is_file() else None
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "recur"),
            name=path.name,
            id=known,
            resume="allow",
            dir=str(path),
            config={"task": task, **options},
        )
        kept.write_text(self.run.id + "\n")

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        self.run.log(dict(metrics), step=step)

    def close(self) -> None:
        self.run.finish()


BACKENDS: dict[str, type[Backend]] = {"tensorboard": TensorBoard, "mlflow": MLflow, "wandb": WandB}


class Tracker:
    """Training callback that sends options and metrics to a tracker: tensorboard, mlflow or wandb.

    >>> texts, labels = ["good", "bad"] * 30, ["pos", "neg"] * 30
    >>> tracker = recur.training.Tracker("tensorboard")
    >>> model = recur.fit(texts, labels, task="classify", steps=4, out="run", callback=tracker)
    >>> len(list(pathlib.Path("run/tensorboard").iterdir()))
    1
    """

    def __init__(self, name: str) -> None:
        if name not in BACKENDS:
            raise OptionError(unknown("tracker", name, list(BACKENDS)))
        self.name = name
        self.backend: Backend | None = None

    def __call__(self, event: Event) -> None:
        if event.kind == "started":
            run = Run.open(event.content["run"], words=False)
            options = options_of_run(run, code=False)
            self.backend = BACKENDS[self.name](run.path, run.task, changed_options(options))
        elif event.kind in ("progress", "measured") and self.backend is not None:
            numbers = {k: v for k, v in event.content.items() if isinstance(v, float) and v == v}
            self.backend.log(numbers, event.content["step"])
        elif event.kind == "finished":
            self.close()

    def close(self) -> None:
        if self.backend is not None:
            self.backend.close()
        self.backend = None


def _missing(package: str, extra: str) -> RecurError:
    return RecurError(f"{package} is not installed: pip install 'recur[{extra}]'")
