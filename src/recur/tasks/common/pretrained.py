"""Warm start of a network from a language model's run (--from) or from word vectors (--vectors).

    start = WarmStart.of(options)                   open what is named; raise an error if it does not fit
    options = start.followed(options)               take cell, sizes and tokens from it, unless the user set them
    data = start.read(task)                         read the data with its vocabulary, extended by new tokens
    notes = start.fill(model, task, data.vocabs)    copy weights by name and by token; the rest stays random

Embeddings are copied by token, layers by name. A bidirectional network has wider inputs than its two language models:
the weights from the other direction start at zero, so that each direction computes what its language model does. The
first checkpoint of the run contains all weights: the source is not read again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from recur.data.text import BOS, EOS, SPECIALS, UNK, Vocab
from recur.data.text.sources import fingerprint
from recur.data.text.vocabulary import Vectors, first_tokens, read_vectors, vectors_width
from recur.errors import OptionError
from recur.models import LanguageModel
from recur.options import flag_of
from recur.runs import Fingerprint, Run, Vocabs
from recur.tasks.common.contract import PretrainedSlots, Task
from recur.tasks.common.options import TaskOptions, WarmStartOptions, with_input
from recur.tasks.common.registry import name_of, reads_numbers, relative_path, task_class, task_of
from recur.tasks.common.runs import options_of_run
from recur.tasks.language.data import first_input
from recur.tasks.language.options import LanguageOptions

LAYER = re.compile(r"(.*)_l(\d+)$")


def copy_rows(table: Tensor, rows: Sequence[int], values: Tensor, like: Tensor | None = None) -> None:
    """Copy rows of a table (K, width) or (K,); draw the others with the mean and deviation of `like`.

    `like` are all given rows by default.
    """
    like = values if like is None else like
    mean, deviation = like.mean(0), like.std(0, correction=0)
    drawn = mean + deviation * torch.randn(table.shape) if table.dim() > 1 else mean.expand(table.shape)
    given = torch.zeros(len(table), dtype=torch.bool)
    given[list(rows)] = True
    table[~given] = drawn[~given].to(table)
    table[list(rows)] = values.to(table)


def copy_layers(
    parameters: Mapping[str, Tensor], prefix: str, given: Mapping[str, Tensor], *, backward: bool, columns: slice
) -> list[int]:
    """Copy layers by their names; return the numbers of the copied layers, from 1.

    `columns` are the inputs of the lowest layer that the language model reads; the other inputs are embeddings that it
    does not have.
    """
    put = []
    for name, value in given.items():
        found = LAYER.fullmatch(name)
        target = parameters.get(f"{prefix}.{name}{'_reverse' * (backward and found is not None)}")
        if target is None:
            continue
        if target.shape == value.shape:
            target.copy_(value)
        elif found is None or target.shape[:-1] != value.shape[:-1] or target.shape[-1] < value.shape[-1]:
            continue
        elif found[2] == "0":
            target[..., : columns.stop] = 0
            target[..., columns.start : columns.start + value.shape[-1]] = value.to(target)
        else:
            target.zero_()
            half = slice(-value.shape[-1], None) if backward else slice(value.shape[-1])
            target[..., half] = value.to(target)
        if found is not None and int(found[2]) + 1 not in put:
            put.append(int(found[2]) + 1)
    return put


SHAPE_OPTIONS = (
    "cell",
    "hidden_size",
    "top_hidden_size",
    "residual",
    "depth_input",
    "depth_transition",
    "depth_output",
    "depth_between",
    "initial",
    "recurrence",
    "tie_weights",
)
"""Options that must be equal for the layers to fit."""


class SourceModel(NamedTuple):
    """Trained language model that initialises another network."""

    path: str
    options: LanguageOptions
    vocab: Vocab
    model: LanguageModel
    weights: Fingerprint
    """Checksum of its weights."""

    @classmethod
    def open(cls, path: str, trust: bool) -> SourceModel:
        run = Run.open(path, trust=trust)
        if run.task != "language":
            raise OptionError(f"--from {path}: a run of the task {run.task}; what carries over is a language model")
        options = options_of_run(run)
        assert isinstance(options, LanguageOptions)
        lacks = {"embedding": not options.embedding_size, "hidden state": options.recurrence == "output"}
        if missing := next((name for name, lacking in lacks.items() if lacking), None):
            raise OptionError(f"--from {path}: a language model without {missing}, of which nothing carries over")
        if options.time_input:
            raise OptionError(f"--from {path}: a language model that reads the time, which other texts have none of")
        task = task_of(options)
        task.check_size(run.vocabs)
        with torch.random.fork_rng(devices=[]):  # fresh weights are drawn, and then replaced
            model = task.new_model(run.vocabs)
        run.load_weights(model)
        return cls(path, options, run.vocab, model, Fingerprint(path, *run.weights_digest()))

    @property
    def way(self) -> str:
        return self.options.direction

    def tokens(self, places: PretrainedSlots) -> dict[str, Any]:
        """Return the tokenizer options of its text, as options of a task with these slots."""
        o = self.options
        if places.token != "token":  # punctuation and case are those of another text too
            return {places.token: o.token}
        return {"token": o.token, "punctuation": o.punctuation, "lower": o.lower}

    @property
    def seen(self) -> Tensor:
        """Return which tokens occurred in its training set, (K,)."""
        return torch.tensor(self.vocab.counts) > 0

    def embedding(self, places: PretrainedSlots) -> Tensor:
        """Return the embedding matrix, (K, width)."""
        weight = self.model.embedding.weight
        assert weight is not None
        return self._of_lines(weight, BOS) if places.lines else weight

    def _of_lines(self, table: Tensor, special: int) -> Tensor:
        """Return a table in which a special token has the row of the line end, which starts the next line in a text."""
        table = table.clone()
        table[special] = table[first_input(self.vocab)]
        return table

    def put_output(self, places: PretrainedSlots, parameters: dict[str, nn.Parameter], rows: list[int]) -> str:
        """Copy the output matrix V and its bias by token; return a note."""
        assert places.output is not None
        if self.model.bias is None or places.output[1] not in parameters:  # an adaptive softmax has clusters instead
            return ""
        V: Tensor = self.model.output_matrix()
        c: Tensor = self.model.bias
        if places.lines:
            V, c = self._of_lines(V, EOS), self._of_lines(c, EOS)
        narrow = parameters.get("narrow.weight")
        if narrow is not None and self.model.narrow is not None:
            narrow.copy_(self.model.narrow.weight)
        matrix = parameters.get(places.output[0])
        if matrix is not None:  # else it is the embedding
            if matrix.shape[1] != V.shape[1]:
                return ""
            copy_rows(matrix, rows, V, V[self.seen])
        copy_rows(parameters[places.output[1]], rows, c, c[self.seen])
        return ", output"


def check_pair(first: SourceModel, second: SourceModel) -> None:
    """Raise an error if two language models differ in anything but their direction."""
    if {first.way, second.way} != {"forward", "backward"}:
        raise OptionError(
            f"--from {first.path} --from {second.path}: both read {first.way}, and the second has to be trained with "
            "--direction backward"
        )
    if first.vocab.tokenizer != second.vocab.tokenizer:
        raise OptionError(f"--from {first.path} --from {second.path}: their tokens are cut in other ways")
    for name in (*SHAPE_OPTIONS, "num_layers"):
        if (a := getattr(first.options, name)) != (b := getattr(second.options, name)):
            raise OptionError(f"--from {first.path} --from {second.path}: they differ in {flag_of(name)}, {a} and {b}")


OptionsT = TypeVar("OptionsT", bound=TaskOptions)
AnyTask = Task[Any, Any, Any, Any]


@dataclass
class WarmStart:
    """Source of the initial weights of a run; without one, all weights are random."""

    sources: tuple[SourceModel, ...] = ()
    vectors: str | None = None
    rows: Vectors | None = None
    """Vectors of the tokens in the vocabulary, once data is read."""

    @classmethod
    def of(cls, options: TaskOptions, trust: bool = False) -> WarmStart:
        if not isinstance(options, WarmStartOptions):
            return cls()
        paths = options.from_
        if len(paths) > 2:
            raise OptionError(f"--from takes one language model, or two of opposite directions, got {len(paths)}")
        sources = tuple(SourceModel.open(path, trust) for path in paths)
        if len(sources) == 2:
            check_pair(*sources)
        return cls(sources, options.vectors)

    # Options ----------------------------------------------------------------------------------------------

    def followed(self, options: OptionsT) -> OptionsT:
        """Return options that fit the source."""
        places = task_class(name_of(options)).places
        given = "--vectors" if self.vectors is not None else "--from" if self.sources else ""
        either: Any = options if "input" in options.names() else None
        if given and either is not None and reads_numbers(with_input(either)):
            raise OptionError(f"{given} is for texts, and these are sequences of numbers")
        if self.vectors is not None:
            width = vectors_width(self.vectors)
            if places.output is not None and options.is_set("vectors_extra"):
                raise OptionError(f"--vectors-extra: the task {name_of(options)} writes tokens, and no text has these")
            return _agreeing(options, {"embedding_size": width}, f"{self.vectors}, whose vectors have {width} numbers")
        if not self.sources:
            return options
        first, names = self.sources[0], options.names()
        if places.token not in names and first.options.token != "word":
            what = f"a model of {first.options.token}s, and the task {name_of(options)} reads words"
            raise OptionError(f"--from {first.path}: {what}")
        there = {name: getattr(first.options, name) for name in SHAPE_OPTIONS} if places.recurrent else {}
        if there.get("top_hidden_size") and "top_hidden_size" not in names:
            what = f"its last layer has another width, and the task {name_of(options)} has layers of one"
            raise OptionError(f"--from {first.path}: {what}")
        there |= first.tokens(places) | {
            "embedding_size": sum(source.options.embedding_size for source in self.sources)
        }
        options = _agreeing(options, {name: there[name] for name in there if name in names}, f"--from {first.path}")
        if places.recurrent and "direction" in names:
            options = self._with_direction(options, places)
        own = {places.layers: first.options.num_layers} if places.recurrent else {}
        own |= _warm_start_defaults(options)
        return options.fixed(**{n: own[n] for n in own if n in names and not options.is_set(n) and n != "epochs"})

    def _with_direction(self, options: OptionsT, places: PretrainedSlots) -> OptionsT:
        """Return options with a direction that fits. A network without a decoder may also read backward."""
        way = "both" if len(self.sources) == 2 else self.sources[0].way
        fits = {way, "both"} if way == "forward" and places.output is None else {way}
        own = _warm_start_defaults(options).get("direction", way)
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
        """Read the data of a task with the vocabulary of the source."""
        if self.vectors is not None:
            return self._read_with_vectors(task, self.vectors)
        if not self.sources:
            return task.read()
        places = _slots(task)
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
        data, name = task.read(), _slots(task).vocab
        if extra := task.options.vectors_extra:
            data = task.read(data.vocabs | {name: data.vocabs[name].with_unseen(first_tokens(file, extra))})
        self.rows = read_vectors(file, data.vocabs[name].tokens)
        if not any(k >= len(SPECIALS) for k in self.rows.found):
            raise OptionError(f"--vectors {file}: it has none of this text's tokens; are they words?")
        return data

    # Weights ----------------------------------------------------------------------------------------------

    @torch.no_grad()
    def fill(self, model: nn.Module, task: AnyTask, vocabs: Vocabs) -> list[str]:
        """Copy the weights of the source into a network; return one note per part."""
        if self.vectors is None and not self.sources:
            return []
        places, parameters = _slots(task), dict(model.named_parameters())
        vocab, table = vocabs[places.vocab], parameters[places.embedding]
        if self.vectors is not None:
            return [self._fill_vectors(table, vocab)]
        notes, at = [], 0
        for source in self.sources:
            given = {name.removeprefix("recurrent."): p for name, p in source.model.recurrent.named_parameters()}
            width = source.options.embedding_size
            rows = [vocab.ids[token] for token in source.vocab.tokens]
            copy_rows(table[:, at : at + width], rows, source.embedding(places), source.embedding(places)[source.seen])
            said = f"embedding of {len(rows) - len(SPECIALS):,} of {len(vocab) - len(SPECIALS):,} tokens"
            if places.recurrent:
                columns = slice(at, table.shape[1])
                backward = source.way == "backward" and places.output is None  # what writes has its lines reversed
                put = copy_layers(parameters, places.recurrent, given, backward=backward, columns=columns)
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
        copy_rows(table, found, torch.from_numpy(rows))
        if UNK not in found:
            table[UNK] = unknown
        known, total = sum(k >= len(SPECIALS) for k in found), len(vocab) - len(SPECIALS)
        return f"vectors for {known:,} of {total:,} tokens, {known / total:.1%}, from {self.vectors}"

    # Records ----------------------------------------------------------------------------------------------

    def fingerprints(self, folder: Path) -> dict[str, list[Fingerprint]]:
        """Return the checksums of the source by option: weights of a run, file of vectors."""
        found = {"from_": [replace(s.weights, name=relative_path(folder, s.path)) for s in self.sources]}
        if self.vectors is not None:
            found["vectors"] = [Fingerprint(relative_path(folder, self.vectors), *fingerprint(self.vectors))]
        return {option: known for option, known in found.items() if known}


def _slots(task: AnyTask) -> PretrainedSlots:
    assert task.places is not None, "only such a task has the options"
    return task.places


def _warm_start_defaults(options: TaskOptions) -> Mapping[str, Any]:
    """Return the defaults of a task that starts from a language model."""
    return options.carried if isinstance(options, WarmStartOptions) else {}


def _agreeing(options: OptionsT, there: dict[str, Any], origin: str) -> OptionsT:
    """Return options with these values; raise an error if the user set another value."""
    for name, value in there.items():
        given = getattr(options, name)
        if options.is_set(name) and given != value:
            raise OptionError(f"{flag_of(name)} {given} does not fit {origin}, which has {value}: leave it out")
    return options.fixed(**there)
