"""Options of the task conditional, and its defaults."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from recur.errors import OptionError
from recur.models.options import Direction
from recur.options import Between, Fraction, NonNegative, OneOf, Positive, Width, WidthOrNone
from recur.tasks.common.options import DecoderTaskOptions, LabelledOptions, Token


@dataclass(frozen=True, kw_only=True)
class ConditionalOptions(DecoderTaskOptions, LabelledOptions):
    """Generate text for a given label. Input: lines `label TAB text`."""

    title = "conditional"
    reads = "labelled"

    token: Token | None = None
    """What a token is; if not given, words where texts are sentences, else characters."""

    direction: Direction = "forward"
    """Generation direction: forward, or backward, P(x) = Π P(x_t | x_{t+1} …, label)."""

    # Defaults of its own ---------------------------------------------------------------------------------

    hidden_size: Width = 320
    embedding_size: WidthOrNone = 64
    dropout_input: Fraction = 0.05
    dropout_output: Fraction = 0.1
    lr: Positive = 0.012
    grad_clip: NonNegative = 0.5

    cpu_batch = 16
    adamw_decay = 0.1
    default_epochs = 8.0

    search = MappingProxyType(
        {
            "cell": OneOf(("gru", "lstm")),
            "hidden_size": Between(64, 512, log=True),
            "embedding_size": OneOf((32, 64, 128)),
            "lr": Between(0.002, 0.03, log=True),
            "dropout_input": Between(0.0, 0.3),
            "dropout_output": Between(0.0, 0.5),
        }
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.direction == "both":
            raise OptionError(
                "a model that wrote from both ends would read what it has to predict; "
                "take --direction forward or --direction backward"
            )
        if self.stop == "source" or self.condition in ("aligned", "none"):
            raise OptionError(
                "a label has no length and no memory: --stop source and --condition aligned or none have no use"
            )


OPTIONS = ConditionalOptions
