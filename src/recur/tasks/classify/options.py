"""Options of the task classify, and its defaults."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from recur.models.options import ClassifierOptions, Direction, Pool
from recur.options import Between, Fraction, OneOf, Positive, Width, WidthOrNone
from recur.tasks.common.options import (
    FoldOptions,
    InputOptions,
    LabelledOptions,
    TaskOptions,
    Token,
    VocabOptions,
    WarmStartOptions,
)


@dataclass(frozen=True, kw_only=True)
class ClassifyOptions(
    TaskOptions, InputOptions, LabelledOptions, FoldOptions, VocabOptions, ClassifierOptions, WarmStartOptions
):
    """Classify texts or sequences of numbers. Input: lines `label TAB text`."""

    title = "classify"
    reads = "labelled"

    token: Token | None = None
    """Token; default: words for sentences, else characters."""

    class_weights: Literal["none", "balanced"] = "none"
    """Loss weights: balanced gives every class the same total weight; none every example."""

    multi_label: bool | None = None
    """Whether a text has any number of labels, written a|b or as a list; if not given, the labels decide."""

    blend: bool = True
    """Combine the network with naive Bayes and TF-IDF logistic regression, with weights fitted on the validation set.
    The metrics of each are also reported."""

    def unused(self) -> dict[str, str]:
        found = super().unused()
        if self.multi_label and self.input != "numbers":
            found["blend"] = "is for texts with one label"
        if self.input == "numbers" and self.multi_label:
            found["multi_label"] = "is for texts, and these are sequences of numbers"
        return found

    # Defaults of its own ---------------------------------------------------------------------------------

    direction: Direction = "both"
    pool: Pool = "concat"
    hidden_size: Width = 128
    embedding_size: WidthOrNone = 64
    dropout_input: Fraction = 0.1
    dropout_output: Fraction = 0.5
    lr: Positive = 0.002

    default_epochs = 12.0
    # Words are learned by heart within a few epochs unless they are dropped; characters do not bear it.
    by_token = MappingProxyType(
        {"word": {"embedding_size": 128, "dropout_input": 0.5, "dropout_words": 0.1, "epochs": 6.0}}
    )

    # What a language model knows of a text, and a few examples would spoil: its layers learn late and slowly.
    carried = MappingProxyType({"unfreeze": 0.3, "layer_lr_decay": 2.6, "schedule": "slanted", "epochs": 40.0})

    search = MappingProxyType(
        {
            "cell": OneOf(("gru", "lstm")),
            "hidden_size": Between(48, 384, log=True),
            "embedding_size": OneOf((32, 64, 128, 256)),
            "pool": OneOf(("mean", "max", "concat", "self-attention")),
            "lr": Between(0.0005, 0.015, log=True),
            "batch_size": OneOf((16, 32, 64)),
            "dropout_input": Between(0.0, 0.6),
            "dropout_output": Between(0.0, 0.6),
        }
    )


OPTIONS = ClassifyOptions
