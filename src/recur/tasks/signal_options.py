"""What the sequences of a task are made of: of texts, or of numbers. No torch is imported here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, TypeVar

from recur.data.images import split_name
from recur.data.signals import find_signal_arrays, is_signals
from recur.errors import TextError
from recur.models.options import ReaderOptions
from recur.options import Layers, NonNegative
from recur.tasks.options import SplitOptions, TaskOptions


@dataclass(frozen=True, kw_only=True)
class InputOptions(SplitOptions):
    """For tasks that read both."""

    title = "Data"

    input: Literal["text", "numbers"] | None = None
    """What sequences are made of; if not given, what the files hold: numbers in an .npz, an .npy or a folder of .npy
    and .csv."""

    stack: Layers = 1
    """Numbers: read so many neighbouring steps as one, for long sequences."""

    noise: NonNegative = 0.0
    """Numbers: while learning, add noise of this deviation to what is read, standardised."""

    for_both: ClassVar[tuple[str, ...]] = ("pool", "heads", "class_weights", "fold")
    """Options beside those of every task and every reader that mean something for numbers too."""
    for_numbers: ClassVar[tuple[str, ...]] = ("stack", "noise")
    """Those that mean something for them alone."""
    for_tokens: ClassVar[tuple[str, ...]] = ("embedding_init", "dropout_embedding", "dropout_words")
    """A reader's that mean something for texts alone."""

    def unused(self) -> dict[str, str]:
        found = super().unused()
        if self.input == "text":
            found |= dict.fromkeys(self.for_numbers, "is for sequences of numbers, and these are texts")
        if self.input == "numbers":
            shared = {*TaskOptions.names(), *InputOptions.names(), *ReaderOptions.names()}
            shared = (shared | {*self.for_both, *self.for_numbers}) - {*self.for_tokens}
            why = "is for texts, and these are sequences of numbers"
            found |= {name: why for name in self.names() if name not in shared}
        return found


OptionsT = TypeVar("OptionsT", bound=InputOptions)


def with_input(options: OptionsT) -> OptionsT:
    """Options that say what the files hold; parts that an .npz has itself stand for those that are not named."""
    if options.input is None:
        numbers = {is_signals(name) for name in options.texts}
        if len(numbers) > 1:
            raise TextError(f"{', '.join(options.texts)}: some are texts and some sequences of numbers")
        options = options.changed(input="numbers" if True in numbers else "text")
    if options.input == "text":
        return options
    fields = {}
    for part in ("valid",) if getattr(options, "fold", "") else ("valid", "test"):  # a fold is the test part
        names = [n for n in options.texts if split_name(n)[0] == n and Path(n).suffix.lower() == ".npz"]
        own = tuple(f"{name}:{part}" for name in names if part in find_signal_arrays(name).parts)
        if own and not getattr(options, part):
            fields[part] = own
    return options.changed(**fields)
