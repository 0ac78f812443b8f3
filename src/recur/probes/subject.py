"""What is looked at: a model that has a `Recurrent` in it, and something for it to read.

A language model brings its vocabulary and its run. Any other module joins with its input as a tensor and, if the
gradient is to start from its own loss, a function from what it returns to a scalar.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

from recur.bptt import BPTT
from recur.cells import Cell
from recur.errors import OptionError, TextError
from recur.layers import Recurrent
from recur.models import LanguageModel
from recur.text import Corpus, Vocab
from recur.train.data import corpora, first_input
from recur.train.tasks.language import Language

if TYPE_CHECKING:
    from recur.layers.recurrent import Recurred
    from recur.train.run import Run

TOKENS = 4000
"""How much of a text is looked at, unless said."""


@dataclass
class Layer:
    """One layer and direction of a network, with what it read and the states it went through."""

    name: str
    cell: Cell
    weights: Mapping[str, Tensor]
    inputs: Tensor
    """(B, T, D), in the order in which the layer took them."""
    states: dict[str, Tensor]
    """(B, T, H) each: after every step."""

    @property
    def before(self) -> tuple[Tensor, ...]:
        """The states that each step but the first started from, (B, T − 1, H)."""
        return tuple(part[:, :-1] for part in self.states.values())

    def shares(self, inputs: Tensor, before: Sequence[Tensor]) -> tuple[Any, Any, Any, Any]:
        """What the cell's step takes, x, h, s and w, for any number of steps at once: (…, D) and (…, H)."""
        cell = self.cell
        w = cell.tuple_of("w")._make(self.weights[name] for name in cell.extras)
        s = cell.state(before)
        x = linear(inputs, self.weights["weight_ih"], self.weights.get("bias_ih")).chunk(len(cell.gates), dim=-1)
        h: Sequence[Tensor] = ()
        if cell.recurrent_gates:
            W, b = self.weights["weight_hh"], self.weights.get("bias_hh")
            h = linear(cell.multiplied(s, w), W, b).chunk(len(cell.recurrent_gates), dim=-1)
        return cell.tuple_of("x")._make(x), cell.tuple_of("h")._make(h), s, w

    def advance(self, inputs: Tensor, before: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The cell's step, each from the state given for it."""
        return tuple(self.cell.advance(*self.shares(inputs, before)))


@dataclass
class Subject:
    """A model and what it reads; made by `Subject.of`."""

    model: nn.Module
    net: Recurrent
    inputs: Tensor
    """Ids (N,), or numbers (B, T, D)."""
    vocab: Vocab | None = None
    run: Run | None = None
    loss: Callable[[Any], Tensor] | None = None
    first: int = 0
    """What stands before a text."""
    seed: int = 0
    """Where the random numbers of probes start; they take none of the caller's."""
    _layers: list[Layer] = field(default_factory=list, repr=False)

    @staticmethod
    def of(
        model: Any, text: Any = None, *, loss: Callable[[Any], Tensor] | None = None, tokens: int = TOKENS
    ) -> Subject:
        """A `Language` and a text (its run's validation part, if none is given), or a module and a tensor."""
        if isinstance(model, Subject):
            return model
        if isinstance(model, Language):
            if text is None:
                text = corpora(model.run.config)[1]
            ids = text if isinstance(text, Tensor) else torch.from_numpy(_ids(model.vocab, text, tokens))
            if len(ids) < 8:
                raise TextError(f"there is too little to look at: {len(ids)} tokens; give a text of some lines")
            network = model.model
            ids = ids.to(network.bias.device)
            return Subject(network, network.recurrent, ids, model.vocab, model.run, first=first_input(model.vocab))
        run = getattr(model, "run", None)
        if run is not None and not isinstance(model, nn.Module):
            raise OptionError(f"{run.path} is a run of task {run.config.task}; of runs, xray takes language models")
        if not isinstance(model, nn.Module):
            raise OptionError(f"xray takes a trained model, a run or a module, got {type(model).__name__}")
        nets = [module for module in model.modules() if isinstance(module, Recurrent)]
        if not nets:
            raise OptionError(f"{type(model).__name__} has no recur.Recurrent in it")
        if not isinstance(text, Tensor):
            raise OptionError(f"{type(model).__name__} reads a tensor, got {type(text).__name__}")
        if text.is_floating_point() and text.dim() == 2:
            text = text[None]
        if isinstance(model, LanguageModel) and text.dim() != 1:
            raise OptionError(f"a language model reads ids (N,), got {tuple(text.shape)}")
        return Subject(model, nets[0], text, loss=loss)

    @property
    def is_language(self) -> bool:
        return isinstance(self.model, LanguageModel)

    # Rows of a text ---------------------------------------------------------------------------------------

    def rows(self, rows: int, steps: int) -> tuple[Tensor, Tensor]:
        """Pieces of the text, spread over all of it: ids (B, T), and the ids that follow each."""
        N = len(self.inputs)
        steps = min(steps, N)
        starts = np.linspace(0, N - steps, min(rows, max(1, N // steps))).astype(int)
        before = torch.cat([self.inputs.new_tensor([self.first]), self.inputs[:-1]])
        take = torch.as_tensor(starts)[:, None] + torch.arange(steps)
        return before[take].long(), self.inputs[take].long()

    def last_loss(self, rows: int, steps: int) -> tuple[Tensor, Callable[[Any], Tensor]]:
        """What to hand to the model, and the loss L_T of its last step, summed over the rows."""
        if self.is_language:
            x, y = self.rows(rows, steps)
            return x, lambda out: cross_entropy(out.logits[:, -1], y[:, -1], reduction="sum")
        x = self.inputs[:rows, -steps:] if self.inputs.dim() == 3 else self.inputs
        return x, self.loss or _along_a_direction

    # Passes -----------------------------------------------------------------------------------------------

    @contextmanager
    def watched(self, bptt: str | BPTT = "full") -> Iterator[list[Recurred]]:
        """Whatever calls the network inside goes step by step, traced, with this mode; what it gave is collected.

        Gradients go to the network's input and to no weight: summing up those over all steps would cost the most.
        """
        seen: list[Recurred] = []
        net, was = self.net, (self.net.bptt, self.net.backend)

        def asked(_: nn.Module, args: Any, kw: Any) -> Any:
            return (args[0].detach().requires_grad_(torch.is_grad_enabled()), *args[1:]), {**kw, "trace": True}

        trained = [p for p in self.model.parameters() if p.requires_grad]
        ask = net.register_forward_pre_hook(asked, with_kwargs=True)
        hear = net.register_forward_hook(lambda _, args, out: seen.append(out))
        training = self.model.training
        self.model.eval()
        net.bptt, net.backend = BPTT.parse(bptt), "loop"
        for p in trained:
            p.requires_grad_(False)
        try:
            yield seen
        finally:
            net.bptt, net.backend = was
            self.model.train(training)
            for p in trained:
                p.requires_grad_(True)
            ask.remove()
            hear.remove()

    @property
    def layers(self) -> list[Layer]:
        """The network's layers after reading the text once, from its beginning."""
        if not self._layers:
            x = self.rows(1, len(self.inputs))[0] if self.is_language else self.inputs
            with torch.no_grad(), self.watched() as seen:
                self.model(x)
            self._layers = layers_of(self.net, seen[-1])
        return self._layers


def layer_name(suffix: str) -> str:
    number = int(suffix.removeprefix("_l").removesuffix("_reverse")) + 1
    return f"layer {number}" + ", backward" * suffix.endswith("_reverse")


def layers_of(net: Recurrent, seen: Recurred) -> list[Layer]:
    found = []
    for suffix, trace in zip(net.suffixes(), seen.trace, strict=True):
        back, name = suffix.endswith("_reverse"), layer_name(suffix)
        weights = {key: value.detach() for key, value in net.weights(suffix).items()}
        inputs, states = trace.inputs, trace.states
        if back:
            inputs, states = inputs.flip(1), {key: part.flip(1) for key, part in states.items()}
        found.append(Layer(name, net.cell, weights, inputs, states))
    return found


def _along_a_direction(out: Any) -> Tensor:
    """For a network without a loss: its last output along one random direction for each row."""
    outputs: Tensor = out if isinstance(out, Tensor) else out[0]
    last = outputs[:, -1]
    drawn = torch.randn(last.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(last)
    direction: Tensor = drawn / torch.linalg.vector_norm(drawn, dim=-1, keepdim=True)
    return (last * direction).sum()


def _ids(vocab: Vocab, text: Any, tokens: int) -> Any:
    if isinstance(text, Corpus):
        found: list[Any] = []
        for ids in vocab.encode_pieces(text.pieces()):
            found.append(ids)
            if sum(map(len, found)) >= tokens:
                break
        return np.concatenate(found)[:tokens].astype(np.int64) if found else np.empty(0, np.int64)
    if not isinstance(text, str):
        raise OptionError(f"a text is a str, a Corpus or ids, got {type(text).__name__}")
    return vocab.encode(text)[:tokens].astype(np.int64)
