"""What a network begins with beside random numbers: a language model's run (--from), or word vectors (--vectors).

    began = Beginning.of(options)                  opens what is named; what does not fit is refused
    options = began.followed(options)              cell, widths and tokens as there, unless somebody says otherwise
    data = began.read(task)                        its vocabulary, and behind it the tokens that only this text has
    notes = began.fill(model, task, data.vocabs)   weights by name and by token; the rest stays as it was drawn

All of it is in the run's first checkpoint: what it began with is not read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from recur.data.text import SPECIALS, UNK, Vocab
from recur.data.text.sources import fingerprint
from recur.data.text.vectors import Vectors, first_tokens, read_vectors, vectors_width
from recur.errors import OptionError
from recur.options import flag_of
from recur.runs import Fingerprint, Vocabs
from recur.tasks.contract import Task
from recur.tasks.options import TaskOptions
from recur.tasks.places import Places
from recur.tasks.registry import name_of, outside, reads_numbers, task_class, task_of
from recur.tasks.signal_options import with_input
from recur.tasks.source import SHAPE, Source, check_pair
from recur.tasks.weights import put_layers, put_rows

OptionsT = TypeVar("OptionsT", bound=TaskOptions)
AnyTask = Task[Any, Any, Any, Any]


@dataclass
class Beginning:
    """What a run begins with; with neither, all is drawn."""

    sources: tuple[Source, ...] = ()
    vectors: str | None = None
    rows: Vectors | None = None
    """What the file of vectors has for the vocabulary, once data is read."""

    @classmethod
    def of(cls, options: TaskOptions, trust: bool = False) -> Beginning:
        paths: Sequence[str] = getattr(options, "from_", ())
        if len(paths) > 2:
            raise OptionError(f"--from takes one language model, or two of opposite directions, got {len(paths)}")
        sources = tuple(Source.open(path, trust) for path in paths)
        if len(sources) == 2:
            check_pair(*sources)
        return cls(sources, getattr(options, "vectors", None))

    # Options ----------------------------------------------------------------------------------------------

    def followed(self, options: OptionsT) -> OptionsT:
        """Options that fit what the run begins with."""
        places = task_class(name_of(options)).places
        given = "--vectors" if self.vectors is not None else "--from" if self.sources else ""
        either: Any = options if "input" in options.names() else None
        if given and either is not None and reads_numbers(with_input(either)):
            raise OptionError(f"{given} is for texts, and these are sequences of numbers")
        if self.vectors is not None:
            width = vectors_width(self.vectors)
            if places.output is not None and options.is_set("vectors_extra"):
                raise OptionError(f"--vectors-extra: the task {name_of(options)} writes tokens, and no text has these")
            return _agreeing(options, {"embedding": width}, f"{self.vectors}, whose vectors have {width} numbers")
        if not self.sources:
            return options
        first, names = self.sources[0], options.names()
        if places.token not in names and first.options.token != "word":
            what = f"a model of {first.options.token}s, and the task {name_of(options)} reads words"
            raise OptionError(f"--from {first.path}: {what}")
        there = {name: getattr(first.options, name) for name in SHAPE} if places.recurrent else {}
        if there.get("hidden_top") and "hidden_top" not in names:
            what = f"its last layer has another width, and the task {name_of(options)} has layers of one"
            raise OptionError(f"--from {first.path}: {what}")
        there |= first.tokens(places) | {"embedding": sum(source.options.embedding for source in self.sources)}
        options = _agreeing(options, {name: there[name] for name in there if name in names}, f"--from {first.path}")
        if places.recurrent and "direction" in names:
            options = self._with_direction(options, places)
        own = {places.layers: first.options.layers} if places.recurrent else {}
        own |= getattr(options, "carried", {})
        return options.fixed(**{n: own[n] for n in own if n in names and not options.is_set(n) and n != "epochs"})

    def _with_direction(self, options: OptionsT, places: Places) -> OptionsT:
        """What reads may read from the other end too, with weights of its own; what writes may not."""
        way = "both" if len(self.sources) == 2 else self.sources[0].way
        fits = {way, "both"} if way == "forward" and places.output is None else {way}
        own = getattr(options, "carried", {}).get("direction", way)
        if not options.is_set("direction"):
            return options.fixed(direction=own if own in fits else way)
        given = options.direction  # type: ignore[attr-defined]
        if given not in fits:
            more = "; give a forward one too" if given == "both" else ""
            raise OptionError(
                f"--direction {given} does not fit --from {self.sources[0].path}, which reads {way}{more}"
            )
        return options

    # Data -------------------------------------------------------------------------------------------------

    def read(self, task: AnyTask) -> Any:
        """A task's data, in the vocabulary that it begins with."""
        if self.vectors is not None:
            return self._read_with_vectors(task, self.vectors)
        if not self.sources:
            return task.read()
        places = _places(task)
        known = self.sources[0].vocab
        for source in self.sources[1:]:
            known = known.joined(source.vocab)
        o, there = task.options, self.sources[0].options
        if there.token == "subword":  # any text can be written with the pieces there are: none are learned here
            return task.read(task_of(o.changed(**{places.token: "char"})).read().vocabs | {places.vocab: known})
        cut = o.changed(**{name: getattr(there, name) for name in ("punctuation", "lower") if name in o.names()})
        vocabs = task.read().vocabs
        own = (vocabs if cut == o else task_of(cut).read().vocabs)[places.vocab]
        if not {*own.tokens[len(SPECIALS) :]} & {*known.tokens}:
            raise OptionError(f"--from {self.sources[0].path}: it knows none of this text's tokens")
        return task.read(vocabs | {places.vocab: known.joined(own)})

    def _read_with_vectors(self, task: AnyTask, file: str) -> Any:
        data, name = task.read(), _places(task).vocab
        if extra := getattr(task.options, "vectors_extra", 0):
            data = task.read(data.vocabs | {name: data.vocabs[name].with_unseen(first_tokens(file, extra))})
        self.rows = read_vectors(file, data.vocabs[name].tokens)
        if not any(k >= len(SPECIALS) for k in self.rows.found):
            raise OptionError(f"--vectors {file}: it has none of this text's tokens; are they words?")
        return data

    # Weights ----------------------------------------------------------------------------------------------

    @torch.no_grad()
    def fill(self, model: nn.Module, task: AnyTask, vocabs: Vocabs) -> list[str]:
        """Put what there is into a network; said in a line each."""
        if self.vectors is None and not self.sources:
            return []
        places, parameters = _places(task), dict(model.named_parameters())
        vocab, table = vocabs[places.vocab], parameters[places.embedding]
        if self.vectors is not None:
            return [self._fill_vectors(table, vocab)]
        notes, at = [], 0
        for source in self.sources:
            given = {name.removeprefix("recurrent."): p for name, p in source.model.recurrent.named_parameters()}
            width = source.options.embedding
            rows = [vocab.ids[token] for token in source.vocab.tokens]
            put_rows(table[:, at : at + width], rows, source.embedding(places), source.embedding(places)[source.seen])
            said = f"embedding of {len(rows) - len(SPECIALS):,} of {len(vocab) - len(SPECIALS):,} tokens"
            if places.recurrent:
                columns = slice(at, table.shape[1])
                backward = source.way == "backward" and places.output is None  # what writes has its lines reversed
                put = put_layers(parameters, places.recurrent, given, backward=backward, columns=columns)
                said += "".join(f", layer {layer} {source.way}" for layer in put)
            if places.output is not None:
                said += source.put_output(places, parameters, rows)
            notes.append(f"from {source.path}: {said}")
            at += width
        return notes

    def _fill_vectors(self, table: Tensor, vocab: Vocab) -> str:
        assert self.rows is not None, "data is read first"
        found, rows = self.rows
        unknown = table[UNK].clone()
        put_rows(table, found, torch.from_numpy(rows))
        if UNK not in found:
            table[UNK] = unknown
        known, total = sum(k >= len(SPECIALS) for k in found), len(vocab) - len(SPECIALS)
        return f"vectors for {known:,} of {total:,} tokens, {known / total:.1%}, from {self.vectors}"

    # Records ----------------------------------------------------------------------------------------------

    def fingerprints(self, folder: Path) -> dict[str, list[Fingerprint]]:
        """What a run in a folder began with, by option: of a run its weights, of vectors their file."""
        found = {"from_": [replace(s.weights, name=outside(folder, s.path)) for s in self.sources]}
        if self.vectors is not None:
            found["vectors"] = [Fingerprint(outside(folder, self.vectors), *fingerprint(self.vectors))]
        return {option: known for option, known in found.items() if known}


def _places(task: AnyTask) -> Places:
    assert task.places is not None, "only such a task has the options"
    return task.places


def _agreeing(options: OptionsT, there: dict[str, Any], origin: str) -> OptionsT:
    """Options with these values; another one that somebody set is refused."""
    for name, value in there.items():
        given = getattr(options, name)
        if options.is_set(name) and given != value:
            raise OptionError(f"{flag_of(name)} {given} does not fit {origin}, which has {value}: leave it out")
    return options.fixed(**there)
