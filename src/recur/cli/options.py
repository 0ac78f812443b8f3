"""Options that several commands share. Each group is one dataclass whose fields are the flags."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from recur.options import Seed, checked

if TYPE_CHECKING:
    from recur.data.text import Corpus, Vocab
    from recur.tasks.common.predictor import Predictor

PLAIN = Parameter(negative_iterable=(), json_list=False, json_dict=False)
"""Defaults of every flag and argument: a value that begins with `[` or `{` is a file name or a text, not JSON."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Output:
    """Output options of every command."""

    json: Annotated[bool, Parameter(negative="")] = False
    """Print exactly one JSON object on standard output."""

    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative="")] = False
    """Print only the result: no notes, no progress."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Common(Output):
    """Options of every command whose configuration has no seed of its own."""

    seed: int = 0
    """Random seed; the same seed gives the same numbers."""

    def __post_init__(self) -> None:
        checked("seed", self.seed, Seed)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Opening:
    """Options of commands that open runs."""

    trust: Annotated[bool, Parameter(negative="")] = False
    """Execute the custom cell of a run, a sweep or a --config file that you did not train, and trust its SHA-256."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class OpeningTexts(Opening):
    """Options of commands that open runs and their training data."""

    changed_text: Annotated[bool, Parameter(negative="")] = False
    """Continue although a training file has changed since."""

    allow_path: tuple[Path, ...] = ()
    """Read this text outside of the run's folder, a file or a folder, and trust its SHA-256. May be repeated."""


def open_model(runs: Sequence[Path], device: str, trust: bool, threads: int) -> Predictor[Any]:
    """Open the trained model of one run or several, and set the number of CPU threads."""
    from recur.runs import use_threads
    from recur.tasks import open_predictor

    model = open_predictor(runs, device, trust)
    use_threads(threads, model.task.options.threads)
    return model


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ReadingOptions:
    """Options of commands that read files with a trained model: by default as the training files were read."""

    encoding: str | None = None
    """Encoding of the files, such as gb18030, cp1252 or utf-16; by default detected."""

    delimiter: str | None = None
    """Mark between the columns of a table: a character, or tab, comma, semicolon, bar."""

    text: str | None = None
    """Column of texts, by name or number; by default that of the training files."""

    label: str | None = None
    """Column of labels, which are compared with the predictions."""

    id: str | None = None
    """Column that names each example."""

    date_format: str | None = None
    """How dates are written: dmy, mdy, ymd or a pattern such as %d-%b-%y."""

    on_bad_rows: Literal["error", "skip", "warn"] = "warn"
    """Rows that cannot be used, such as an empty text: stop, leave them out, or also name the first."""

    def settings(self) -> dict[str, object]:
        """Return the settings that are given, as `Predictor.read_with` takes them."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value is not None}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """Tokenization of a text."""

    token: Literal["char", "word", "subword"] = "char"
    """Unit of tokenization."""

    punctuation: bool = False
    """Words: punctuation marks and Chinese characters are separate tokens."""

    lower: bool = False
    """Words: convert to lower case."""

    min_freq: int = 1
    """Tokens with fewer training occurrences become unknown."""

    max_vocab_size: int | None = None
    """Maximum vocabulary size, including the four special tokens."""

    pieces: int = 2000
    """Subwords: vocabulary size of sentencepiece."""

    def vocab(self, train: Corpus) -> Vocab:
        from recur.data.text import fit_vocab

        return fit_vocab(train, **dataclasses.asdict(self))
