"""Options of the task tag, and its defaults."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Literal

from recur.data.text.treebanks import TagColumns, parse_column
from recur.errors import OptionError
from recur.models.options import Direction, WordTaggerOptions
from recur.options import Between, Fraction, NonNegative, OneOf, Positive, TextFormat, Width, WidthOrNone
from recur.tasks.common.options import InputOptions, TaggedOptions, TaskOptions, Token, VocabOptions, WarmStartOptions


@dataclass(frozen=True, kw_only=True)
class TagOptions(TaskOptions, InputOptions, TaggedOptions, VocabOptions, WordTaggerOptions, WarmStartOptions):
    """Tag every word of a sentence. Input: CoNLL columns."""

    title = "tag"
    reads = "tagged"

    token: Token = "word"
    """Spelling of words: one token per word, or its characters or subwords."""

    word_column: Annotated[str, TextFormat(parse_column)] | None = None
    """Column of the word: a number, or a CoNLL-U name; default: the first, or `form`."""

    tag_column: Annotated[str, TextFormat(parse_column)] | None = None
    """Column of the tag: a number (-1 is the last), or a CoNLL-U name such as xpos or feats; default: the last, or
    `upos`."""

    spans: bool | None = None
    """Evaluate spans; default: yes if the tags are BIO or BIOES."""

    loss: Literal["steps", "ctc"] | None = None
    """Numbers: one label per step, or label sequences without alignment (ctc); default: by the file."""

    class_weights: Literal["none", "balanced"] = "none"
    """Loss weights: balanced (with --no-crf) gives every tag the same total weight; none every word."""

    blend: bool = True
    """With a CRF: blend the network with a CRF on features of words, where the validation set is better for it."""

    # Defaults of its own ---------------------------------------------------------------------------------

    crf: bool = True
    characters: Literal["none", "lstm", "cnn"] = "lstm"
    casing: bool = True
    unknown: NonNegative = 2.0
    direction: Direction = "both"
    hidden_size: Width = 192
    embedding_size: WidthOrNone = 100
    dropout_input: Fraction = 0.5
    dropout_output: Fraction = 0.5
    variational: bool = True
    lr: Positive = 0.004

    cpu_batch = 16
    default_minutes = 3.0
    default_epochs = 40.0

    carried = MappingProxyType({"direction": "both"})  # a tag needs what follows, be it read by weights that are drawn

    search = MappingProxyType(
        {
            "cell": OneOf(("gru", "lstm")),
            "hidden_size": Between(64, 384, log=True),
            "embedding_size": OneOf((50, 100, 200)),
            "lr": Between(0.001, 0.02, log=True),
            "batch_size": OneOf((8, 16, 32)),
            "dropout_input": Between(0.0, 0.6),
            "dropout_output": Between(0.0, 0.6),
        }
    )

    for_numbers = (*InputOptions.for_numbers, "loss")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.recurrence == "output" and self.token != "word":
            raise OptionError(f"--recurrence output has an output at every step: take --token word, got {self.token}")

    @property
    def blended(self) -> bool:
        """Whether the network is blended with a linear CRF."""
        return self.blend and self.crf and self.recurrence == "hidden" and self.input != "numbers"

    @property
    def columns(self) -> TagColumns:
        return TagColumns(self.word_column, self.tag_column)

    @property
    def reads_forms(self) -> bool:
        """Whether words are looked at, beside the tokens that they are."""
        return self.recurrence == "hidden" and (self.casing or self.characters != "none")


OPTIONS = TagOptions
