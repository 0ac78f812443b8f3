"""One dataclass defines a run: its fields are the flags, the keys of the TOML file and the arguments of `recur.fit`."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from recur.errors import OptionError, unknown
from recur.train.fields import WritingFields
from recur.train.more_fields import ForecastFields, LabellingFields

COMMON = frozenset({
    "task", "texts", "valid", "test", "cell", "hidden", "layers", "init", "forget_bias", "backend", "batch",
    "optimizer", "rate", "momentum", "weight_decay", "warmup", "schedule", "clip", "clip_value", "accumulate",
    "epochs", "steps", "minutes", "patience", "measure", "checkpoint", "on_nan", "device", "threads", "seed",
})  # fmt: skip
"""The options that every task reads."""


@dataclass(frozen=True, kw_only=True)
class Config(ForecastFields, LabellingFields, WritingFields):
    """All there is to say about a training run: these fields, and those of fields.py and more_fields.py."""

    # The model --------------------------------------------------------------------------------------------

    cell: str = "gru"
    """A cell by name, or file.py:Class."""

    hidden: int = 320
    """Units in a layer."""

    layers: int = 1
    """How many recurrent layers."""

    embedding: int = 64
    """Width of the embedding; 0 is one-hot."""

    tied: bool = False
    """The embedding is the output layer too."""

    dropout_embedding: float = 0.0
    """Drop whole tokens of the embedding."""

    dropout_input: float = 0.05
    """Drop parts of the input."""

    dropout_hidden: float = 0.0
    """Drop between layers."""

    dropout_weight: float = 0.0
    """Drop entries of the recurrent matrix."""

    dropout_output: float = 0.1
    """Drop parts of the last layer's output."""

    variational: bool = False
    """One dropout mask for a whole sequence; else one for each step."""

    residual: bool = False
    """Each layer above the first adds its input to its output."""

    initial: str = "zero"
    """Where sequences start: zero, random:σ or learned."""

    init: str = "torch"
    """How weights start: torch, glorot, orthogonal, identity or normal:σ."""

    init_range: float = 0.0
    """Draw all weights from ± this instead."""

    forget_bias: float | None = None
    """Bias of the gate that keeps the state."""

    alpha: float = 0.3
    """Activation regularisation: weight of the outputs' mean square."""

    beta: float = 0.5
    """Temporal activation regularisation: weight of their change's mean square."""

    # Training ---------------------------------------------------------------------------------------------

    partition: Literal["sequential", "random"] = "sequential"
    """Lanes that continue from batch to batch with their state, or windows with a fresh one."""

    batch: int = 16
    """Lanes."""

    window: int = 32
    """Steps in a window."""

    jitter: bool = False
    """Let the window's length vary from batch to batch (sequential), and the rate with it."""

    bptt: str = "full"
    """What crosses time inside a window: full, truncated:τ or randomized:π, and ,clip:θ at every step."""

    optimizer: Literal["adam", "adamw", "sgd", "asgd"] = "adamw"
    """asgd is SGD whose average is taken once validation stops improving."""

    rate: float = 0.012
    """Learning rate."""

    momentum: float = 0.0
    """For sgd."""

    weight_decay: float | None = None
    """Pull weights towards zero; unless said, 0.1 for a language model with adamw, else 0."""

    warmup: int = 50
    """Steps over which the rate rises from zero."""

    schedule: str = "cosine"
    """constant, step:γ:after (× γ an epoch after so many), cosine (to zero), plateau:γ (× γ when stuck), nonmono:n."""

    clip: float = 0.5
    """Bound on the gradient's norm; 0 is none."""

    clip_value: float = 0.0
    """Bound on each of its entries; 0 is none."""

    accumulate: int = 1
    """Batches to add up before a step."""

    epochs: float | None = None
    """Stop after so many passes over the text."""

    steps: int | None = None
    """Stop after so many steps."""

    minutes: float | None = None
    """Stop after so many minutes of training; 1, if no budget is given."""

    patience: int = 0
    """Stop when so many measurements bring nothing better; 0 never."""

    measure: float = 0.0
    """Measure on the validation text every so many epochs; 0 is ten times in a run, at least once an epoch."""

    checkpoint: float = 30.0
    """Seconds between checkpoints to resume from."""

    baseline: bool = True
    """Fit the best n-gram first, to have something to beat."""

    strict: bool = False
    """Refuse a text that is shorter than a window, where otherwise the window is shortened."""

    on_nan: Literal["stop", "skip"] = "stop"
    """What to do when the loss is not a number."""

    backend: str = "auto"
    """native, torch, loop, or auto: the first of them that can."""

    device: str = "cpu"
    """cpu, cuda, or auto."""

    threads: int = 0
    """For torch; 0 is its own choice."""

    seed: int = 0
    """Where random numbers start."""

    def __post_init__(self) -> None:
        counts = {"batch": 1, "window": 1, "hidden": 1, "layers": 1, "accumulate": 1, "warmup": 0, "patience": 0}
        counts |= {"encoder_layers": 1, "longest": 1, "horizon": 1, "season": 1, "holdout": 0, "lags": 0, "length": 1}
        for name, least in counts.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise OptionError(f"{name} must be a whole number ≥ {least}, got {value!r}")
        for name in ("rate", "epochs", "steps", "minutes"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise OptionError(f"{name} must be above 0, got {value!r}")
        for name in ("clip", "clip_value", "weight_decay", "momentum", "alpha", "beta", "measure", "checkpoint"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < float("inf"):
                raise OptionError(f"{name} must not be negative, got {value!r}")
        if not 0 <= self.smoothing < 1:
            raise OptionError(f"smoothing must lie in 0 … 1, got {self.smoothing!r}")
        if self.jitter and self.partition == "random":
            raise OptionError("jitter is for the sequential partition; random windows start at a random offset anyway")

    # Files ------------------------------------------------------------------------------------------------

    def to_toml(self) -> str:
        lines = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None:
                lines.append(f"{field.name} = {json.dumps(value, ensure_ascii=False)}")
        return "\n".join(lines) + "\n"

    @staticmethod
    def read_toml(path: Path) -> dict[str, Any]:
        """The fields that a file sets; [about] is for people."""
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise OptionError(f"{path} cannot be used as a configuration: {error}") from None
        content.pop("about", None)
        known = [field.name for field in dataclasses.fields(Config)]
        for name in content:
            if name not in known:
                raise OptionError(f"{path}: {unknown('option', name, known)}")
        return content

    @staticmethod
    def of(**fields: Any) -> Config:
        known = [field.name for field in dataclasses.fields(Config)]
        for name in fields:
            if name not in known:
                raise OptionError(unknown("option", name, known))
        if "texts" in fields:
            texts = fields["texts"]
            fields["texts"] = (str(texts),) if isinstance(texts, str | Path) else tuple(map(str, texts))
        return Config(**fields)
