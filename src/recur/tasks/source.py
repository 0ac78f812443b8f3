"""A language model's run that another network begins with."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from recur.data.text import BOS, EOS, Vocab
from recur.errors import OptionError
from recur.models import LanguageModel
from recur.options import flag_of
from recur.runs import Fingerprint, Run
from recur.tasks.language.data import first_input
from recur.tasks.language.options import LanguageOptions
from recur.tasks.places import Places
from recur.tasks.registry import task_of
from recur.tasks.runs import options_of_run
from recur.tasks.weights import put_rows

SHAPE = (
    "cell",
    "hidden",
    "hidden_top",
    "residual",
    "depth_input",
    "depth_transition",
    "depth_output",
    "depth_between",
    "initial",
    "recurrence",
    "tied",
)
"""Options that must be as they were for layers to fit."""


class Source(NamedTuple):
    """A language model that was trained."""

    path: str
    options: LanguageOptions
    vocab: Vocab
    model: LanguageModel
    weights: Fingerprint
    """What its weights are known by."""

    @classmethod
    def open(cls, path: str, trust: bool) -> Source:
        run = Run.open(path, trust=trust)
        if run.task != "language":
            raise OptionError(f"--from {path}: a run of the task {run.task}; what carries over is a language model")
        options = options_of_run(run)
        assert isinstance(options, LanguageOptions)
        lacks = {"embedding": not options.embedding, "hidden state": options.recurrence == "output"}
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

    def tokens(self, places: Places) -> dict[str, Any]:
        """How its text was cut, as options of a task that has these places."""
        o = self.options
        if places.token != "token":  # punctuation and case are those of another text too
            return {places.token: o.token}
        return {"token": o.token, "punctuation": o.punctuation, "lower": o.lower}

    @property
    def seen(self) -> Tensor:
        """Which tokens it met in training, (K,)."""
        return torch.tensor(self.vocab.counts) > 0

    def embedding(self, places: Places) -> Tensor:
        """(K, width)"""
        weight = self.model.embedding.weight
        assert weight is not None
        return self._of_lines(weight, BOS) if places.lines else weight

    def _of_lines(self, table: Tensor, special: int) -> Tensor:
        """In a text the end of a line is what begins the next: a task of lines has tokens of its own for that."""
        table = table.clone()
        table[special] = table[first_input(self.vocab)]
        return table

    def put_output(self, places: Places, parameters: dict[str, nn.Parameter], rows: list[int]) -> str:
        """The softmax over the vocabulary, by token: V and its bias."""
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
            put_rows(matrix, rows, V, V[self.seen])
        put_rows(parameters[places.output[1]], rows, c, c[self.seen])
        return ", output"


def check_pair(first: Source, second: Source) -> None:
    """Of a network of both directions: alike but for that."""
    if {first.way, second.way} != {"forward", "backward"}:
        raise OptionError(
            f"--from {first.path} --from {second.path}: both read {first.way}, and the second has to be trained with "
            "--direction backward"
        )
    if first.vocab.tokenizer != second.vocab.tokenizer:
        raise OptionError(f"--from {first.path} --from {second.path}: their tokens are cut in other ways")
    for name in (*SHAPE, "layers"):
        if (a := getattr(first.options, name)) != (b := getattr(second.options, name)):
            raise OptionError(f"--from {first.path} --from {second.path}: they differ in {flag_of(name)}, {a} and {b}")
