"""One layer of a network after a pass, with all that its steps read and left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from recur.cells import Cell
from recur.cells.tensors import Tensors
from recur.data.text import Corpus, Vocab
from recur.errors import OptionError, TextError
from recur.i18n import Message
from recur.models import LanguageModel
from recur.nn import Recurrent
from recur.ops.bptt import BPTT
from recur.tasks.common.contract import TrainingProgress
from recur.tasks.common.predictor import Predictor
from recur.tasks.common.signals import SignalBatch, SignalTask, signals_of
from recur.tasks.language.data import first_input, in_reading_order, place_of, valid_text
from recur.tasks.language.predictor import Language

if TYPE_CHECKING:
    from recur.nn.recurrent import RecurrentOutput
    from recur.runs import Run
    from recur.tasks.common.options import TaskOptions


@dataclass
class Layer:
    """One layer and direction of a network, with its inputs and states, on the CPU.

    >>> subject = recur.diagnostics.Subject.of(recur.Recurrent("gru", 3, 4), torch.randn(2, 20, 3))
    >>> layer = subject.layers[0]
    >>> layer.name, layer.states["h"].shape
    ('layer 1', torch.Size([2, 20, 4]))
    """

    name: str
    cell: Cell
    weights: Mapping[str, Tensor]
    inputs: Tensor
    """(B, T, D), in the order in which the layer read them."""
    states: dict[str, Tensor]
    """(B, T, H) each: after every step."""

    @property
    def previous(self) -> tuple[Tensor, ...]:
        """The states that each step but the first started from, (B, T − 1, H)."""
        return tuple(part[:, :-1] for part in self.states.values())

    def step_arguments(self, inputs: Tensor, previous: Sequence[Tensor]) -> tuple[Tensors, Tensors, Tensors, Tensors]:
        """The arguments of the cell's step, x, h, s and w, for any number of steps at once: (…, D) and (…, H)."""
        return self.cell.step_arguments(inputs, self.cell.state(previous), self.weights)

    def advance(self, inputs: Tensor, previous: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The cell's step, each from the state given for it."""
        return tuple(self.cell.projected(self.cell.advance(*self.step_arguments(inputs, previous)), self.weights))


def layer_name(suffix: str) -> str:
    """Return the name of a layer by the suffix of its weights: `_l1_reverse` is `layer 2, backward`."""
    number = int(suffix.removeprefix("_l").removesuffix("_reverse")) + 1
    if suffix.endswith("_reverse"):
        return Message("layer {n}, backward", n=number)
    return Message("layer {n}", n=number)


def part_name(layer: str, part: str) -> str:
    """Return the name of a state, gate or weight of a layer: `layer 2, backward, c`."""
    return Message("{layer}, {part}", layer=layer, part=part)


def layers_of(net: Recurrent, result: RecurrentOutput) -> list[Layer]:
    """The layers of a network after a traced pass. They are on the CPU: probes take many small steps."""
    found = []
    for suffix, trace in zip(net.suffixes(), result.trace, strict=True):
        weights = {key: value.detach().cpu() for key, value in net.weights(suffix).items()}
        inputs, states = trace.inputs.cpu(), {key: part.cpu() for key, part in trace.states.items()}
        if suffix.endswith("_reverse"):
            inputs, states = inputs.flip(1), {key: part.flip(1) for key, part in states.items()}
        found.append(Layer(layer_name(suffix), net.cell, weights, inputs, states))
    return found


TOKENS = 4000
"""How many tokens of a text are read, unless a number is given."""
FEWEST = 8
"""Tokens that a text must have."""

Text = str | Corpus | Tensor
Loss = Callable[[Any], Tensor]
"""From the output of a model, whatever that is, to a scalar."""


@dataclass
class Subject:
    """A model and what it reads; made by `Subject.of`.

    >>> subject = recur.diagnostics.Subject.of(recur.Recurrent("gru", 3, 4), torch.randn(2, 20, 3))
    >>> subject.length
    20
    """

    model: nn.Module
    net: Recurrent
    inputs: Tensor
    """Ids (N,), or numbers (B, T, D)."""
    language: Language | None = None
    """The trained language model, where it is one."""
    loss: Loss | None = None
    start: int = 0
    """Which token of a longer text the first one is, for a network that reads the time."""
    seed: int = 0
    """For probes that draw random numbers; they leave torch's own generator alone."""
    predictor: Predictor[Any] | None = None
    """The trained model of another task, whose part this is …"""
    part: str = ""
    """… and the name of that part in it."""

    @staticmethod
    def of(
        model: object, text: Text | None = None, *, loss: Loss | None = None, tokens: int = TOKENS, part: str = ""
    ) -> Subject:
        """A `Language` and a text (its run's validation part, if none is given); the model of another task and a file
        of what it reads (else what it learned from); or a module and a tensor."""
        if isinstance(model, Subject):
            return model
        if isinstance(model, Language):
            return _of_language(model, text, tokens)
        if isinstance(model, Predictor):
            return _of_predictor(model, text, part)
        if isinstance(model, nn.Module):
            return _of_module(model, text, loss)
        raise OptionError(f"X-ray reads a trained model or a torch module, got {type(model).__name__}")

    @property
    def is_language(self) -> bool:
        return isinstance(self.model, LanguageModel)

    @property
    def run(self) -> Run | None:
        trained = self.language or self.predictor
        return None if trained is None else trained.run

    @property
    def options(self) -> TaskOptions | None:
        """Options that the run was trained with."""
        trained = self.language or self.predictor
        return None if trained is None else trained.task.options

    @property
    def window(self) -> int | None:
        """Steps of the windows that a language model learned from."""
        return None if self.language is None else self.language.options.window

    @property
    def backpropagated(self) -> int | None:
        """Over how many steps gradients reached while it was trained; None where nothing cut them."""
        return min((w for w in (self.net.bptt.window, self.net.bptt.sliding, self.window) if w), default=None)

    @property
    def vocab(self) -> Vocab | None:
        return None if self.language is None else self.language.vocab

    @property
    def length(self) -> int:
        """Tokens, or steps, of the input."""
        return self.inputs.shape[0 if self.inputs.dim() == 1 else 1]

    def token(self, k: int) -> str:
        """The token of an id; the id itself for a model without a vocabulary."""
        return str(k) if self.vocab is None else self.vocab.tokens[k]

    # Rows of a text ---------------------------------------------------------------------------------------

    def rows(self, rows: int, steps: int) -> tuple[Tensor, Tensor]:
        """Pieces of the text, spread over all of it: ids (B, T), and the ids that follow each."""
        N = len(self.inputs)
        steps = min(steps, N)
        starts = np.linspace(0, N - steps, min(rows, max(1, N // steps))).astype(int)
        first = 0 if self.vocab is None else first_input(self.vocab)
        shifted = torch.cat([self.inputs.new_tensor([first]), self.inputs[:-1]])
        index = torch.as_tensor(starts)[:, None] + torch.arange(steps)
        return shifted[index].long(), self.inputs[index].long()

    def last_loss(self, rows: int, steps: int) -> tuple[Tensor, Loss]:
        """The model's input, and the loss L_T of its last step, summed over the rows."""
        if self.is_language:
            x, y = self.rows(rows, steps)
            return x, lambda out: cross_entropy(out.logits[:, -1], y[:, -1], reduction="sum")
        x = self.inputs[:rows, -steps:] if self.inputs.dim() == 3 else self.inputs
        return x, self.loss or (self._last_output if self.predictor is not None else _random_projection)

    def _last_output(self, out: RecurrentOutput) -> Tensor:
        """A random projection of what each direction says at its end."""
        outputs = out[0]
        ahead, behind = outputs[:, -1:], outputs[:, :1]
        if self.net.direction == "forward":
            return _random_projection(ahead)
        half = outputs.shape[-1] // 2
        return _random_projection(
            behind if self.net.direction == "backward" else torch.cat([ahead[..., :half], behind[..., half:]], -1)
        )

    # Passes -----------------------------------------------------------------------------------------------

    @contextmanager
    def traced(self, bptt: str | BPTT = "full") -> Iterator[list[RecurrentOutput]]:
        """Every call of the network inside runs on the loop backend, traced, with this mode; the list collects results.

        Gradients flow to the network's input and to no weight: summing those of all steps would cost the most.
        """
        results: list[RecurrentOutput] = []
        net, bptt_before, backend_before = self.net, self.net.bptt, self.net.backend
        run_layers = net.run_layers

        def run_traced(x: Tensor, *args: Any, **kwargs: Any) -> RecurrentOutput:
            x = x.detach().requires_grad_(torch.is_grad_enabled())
            results.append(run_layers(x, *args, **{**kwargs, "trace": True}))
            return results[-1]

        trained = [p for p in self.model.parameters() if p.requires_grad]
        training = self.model.training
        self.model.eval()
        vars(net)["run_layers"] = run_traced
        net.bptt, net.backend = BPTT.parse(bptt), "loop"
        for p in trained:
            p.requires_grad_(False)
        try:
            yield results
        finally:
            del vars(net)["run_layers"]
            net.bptt, net.backend = bptt_before, backend_before
            self.model.train(training)
            for p in trained:
                p.requires_grad_(True)

    @cached_property
    def layers(self) -> list[Layer]:
        """The network's layers after reading the text once, from its beginning."""
        x = self.rows(1, len(self.inputs))[0] if self.is_language else self.inputs
        with torch.no_grad(), self.traced() as results:
            self.model(x)
        return layers_of(self.net, results[-1])


def _of_language(language: Language, text: Text | None, tokens: int) -> Subject:
    if text is None:
        language.find_texts("valid" if language.options.valid else "texts")
        text = valid_text(language.options)
    ids = text if isinstance(text, Tensor) else _encoded(language, text, tokens)
    if len(ids) < FEWEST:
        raise TextError(
            Message("the text is too short: {n} tokens, and X-ray needs at least {fewest}", n=len(ids), fewest=FEWEST)
        )
    network = language.model
    if not isinstance(network.recurrent, Recurrent):
        raise OptionError(
            f"{language.run.path} has no recurrence between hidden states (--recurrence output) for X-ray to look at"
        )
    start = 0
    if language.options.time_input and isinstance(text, Corpus):
        start = place_of(text, len(language.vocab.encode_corpus(text)), language.options)
    return Subject(network, network.recurrent, ids.to(network.device), language, start=start)


def _of_predictor(predictor: Predictor[Any], text: object, name: str) -> Subject:
    files = [str(text)] if isinstance(text, str | Path) else () if text is None else text
    if not isinstance(files, list | tuple | np.ndarray):
        raise OptionError(f"a model of the task {predictor.task.name} reads files, got {type(text).__name__}")
    parts = recurrent_parts(predictor, files if isinstance(files, np.ndarray) else [str(file) for file in files])
    if not parts:
        raise OptionError(f"{predictor.run.path}: {why_none(predictor)}")
    part = chosen(parts, name)
    return Subject(part.net, part.net, part.inputs, predictor=predictor, part=part.name)


def _of_module(model: nn.Module, x: object, loss: Loss | None) -> Subject:
    name = type(model).__name__
    nets = [module for module in model.modules() if isinstance(module, Recurrent)]
    if not nets:
        raise OptionError(f"{name} has no recur.Recurrent in it")
    if not isinstance(x, Tensor):
        raise OptionError(f"{name} reads a tensor, got {type(x).__name__}")
    if x.is_floating_point() and x.dim() == 2:
        x = x[None]
    if isinstance(model, LanguageModel) and x.dim() != 1:
        raise OptionError(f"a language model reads ids (N,), got {tuple(x.shape)}")
    return Subject(model, nets[0], x, loss=loss)


def _encoded(language: Language, text: object, tokens: int) -> Tensor:
    """The first ids of a text, in the order in which the network reads them."""
    vocab = language.vocab
    if isinstance(text, str):
        found = [vocab.encode(text)[:tokens]]
    elif isinstance(text, Corpus):
        found = [np.empty(0, np.int64)]
        for ids in vocab.encode_pieces(text.pieces()):  # a corpus may be larger than memory
            found.append(ids)
            if sum(map(len, found)) >= tokens:
                break
    else:
        raise OptionError(f"a text is a str, a Corpus or a tensor of ids, got {type(text).__name__}")
    read = in_reading_order(vocab.without_unseen(np.concatenate(found)[:tokens]), language.options)
    return torch.from_numpy(np.asarray(read, np.int64).copy())


def _random_projection(out: Tensor | tuple[Tensor, ...]) -> Tensor:
    """For a network without a loss: its last output, projected on one random unit vector for each row."""
    outputs = out if isinstance(out, Tensor) else out[0]
    if outputs.dim() != 3:
        raise OptionError(
            f"outputs of (B, T, H) are expected, got {tuple(outputs.shape)}; give the loss of the last step"
        )
    last = outputs[:, -1]
    drawn = torch.randn(last.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(last)
    direction: Tensor = drawn / torch.linalg.vector_norm(drawn, dim=-1, keepdim=True)
    return (last * direction).sum()


ROWS = 16
"""Sequences of a batch that are looked at: its longest."""


class Part(NamedTuple):
    """A recurrent part of a network and what it read."""

    name: str
    net: Recurrent
    inputs: Tensor
    """(B, T, D), all of one length."""


def recurrent_parts(predictor: Predictor[Any], files: Sequence[str] | np.ndarray[Any, Any] = ()) -> list[Part]:
    """The recurrent parts that a batch goes through, the one of most weights first; of files, or of what the run
    learned from; of sequences of numbers, which need no labels here, also of one as an array. None for a network
    without a recurrence in time."""
    model: nn.Module = predictor.model
    nets = {name: module for name, module in model.named_modules() if isinstance(module, Recurrent)}
    if not nets:
        return []
    read = _read(predictor, files, nets)
    parts = [Part(name, nets[name], _rows(*read[name])) for name in nets if name in read]
    return sorted(parts, key=lambda part: -sum(p.numel() for p in part.net.parameters()))


def why_none(predictor: Predictor[Any]) -> str:
    """Return the message that a network without a recurrence in time has no probes of it."""
    task = predictor.task
    return Message(
        "the network of this {task} run ({network}) has no recurrent layer over time: only its training is diagnosed, "
        "not gradient flow, gates, saturation, states and the spectrum of W",
        task=task.name, network=task.architecture,
    )  # fmt: skip


def chosen(parts: Sequence[Part], name: str) -> Part:
    """A part by its name; the largest, if none is given."""
    found = [part for part in parts if name in ("", part.name)]
    if not found:
        raise OptionError(f"no recurrent part {name!r}; this network has {', '.join(part.name for part in parts)}")
    return found[0]


def _read(
    predictor: Predictor[Any], files: Sequence[str] | np.ndarray[Any, Any], nets: dict[str, Recurrent]
) -> dict[str, tuple[Tensor, Sequence[int] | None]]:
    """Return the input of each layer and the length of its rows."""
    found: dict[str, tuple[Tensor, Sequence[int] | None]] = {}

    def watch(name: str) -> Any:
        def hook(_: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Any]) -> None:
            lengths = kwargs.get("lengths")
            found.setdefault(name, (args[0].detach(), None if lengths is None else [int(n) for n in lengths]))

        return hook

    run = _pass(predictor, files)
    hooks = [net.register_forward_pre_hook(watch(name), with_kwargs=True) for name, net in nets.items()]
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            run()
    finally:
        for hook in hooks:
            hook.remove()
    return found


def _pass(predictor: Predictor[Any], files: Sequence[str] | np.ndarray[Any, Any]) -> Callable[[], object]:
    """One pass of the network over a batch."""
    task = predictor.task
    if len(files) and isinstance(task, SignalTask):
        given = [files] if isinstance(files, np.ndarray) else files
        signals = [signal._replace(target=None) for one in given for signal in signals_of(one)]
        examples = task.encode(signals, predictor.run.vocabs)
        numbers = SignalBatch.of(sorted(examples, key=lambda example: -example.size)[:ROWS])
        return lambda: predictor.model(numbers.x.to(predictor.device), numbers.lengths)
    if isinstance(files, np.ndarray):
        raise OptionError(f"a model of the task {task.name} reads files, got an array")
    if files:
        parts = [part for part in ("texts", "valid", "test") if part in task.options.names()]
        # A task that cuts its validation part off itself may join the test part to the others.
        own = {part: () if part == "test" and "valid" not in parts else tuple(files) for part in parts}
        task = type(task)(task.options.changed(**own))
    else:
        predictor.find_texts(*(part for part in ("texts", "valid") if part in task.options.names()))
    data = task.read(predictor.run.vocabs)
    batch = next(iter(task.batches(data).batches(0)))
    return lambda: task.training_step(predictor.model, batch, None, TrainingProgress(0, 0, 0.0))


def _rows(x: Tensor, lengths: Sequence[int] | None) -> Tensor:
    """The longest rows, as far as the shortest of them reaches."""
    if lengths is None:
        return x[:ROWS]
    order = sorted(range(len(lengths)), key=lambda k: -lengths[k])
    kept = [k for k in order if lengths[k] >= 0.8 * lengths[order[0]]][:ROWS]
    return x[kept, : min(lengths[k] for k in kept)]
