"""Train a model and use it, from Python: `recur.fit` and `recur.load`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch

from recur.train.config import Config
from recur.train.loop import Listener, Trainer
from recur.train.run import Run
from recur.train.tasks import task_of


def fit(
    texts: str | Path | list[str], out: str | Path | None = None, listener: Listener | None = None, **fields: Any
) -> Any:
    """Train on a text or a table and return the model for use. Fields are those of `recur.train.Config`.

    What is returned depends on the task; of a language model it is `recur.train.tasks.language.Language`.
    """
    config = Config.of(texts=texts, **fields)
    data = task_of(config).read()
    run = Run.create(out or tempfile.mkdtemp(prefix="recur-"), config, data.vocabs)
    random = torch.get_rng_state()
    Trainer(run, data, listener).train()
    torch.set_rng_state(random)
    return run.task.open(run, config.device)


def load(run: str | Path, device: str = "cpu") -> Any:
    """The model of a run, with its best weights, for use."""
    opened = Run.open(run)
    return opened.task.open(opened, device)
