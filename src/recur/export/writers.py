"""Language models and decoders as graphs.

    language   sequence(tokens (B, T), state…) → logits (B, T, K), state…
               step(token (B,), state…) → logits (B, K), state…
    writer     encode(source (B, S) or label (B,)) → initial state and context of the decoder
               step(token (B,), carried…, context…) → log-probabilities (B, K) of the next token, carried…, and
               `looked` (B, S), the attention weights

The log-probabilities of a writer are those of its beam search: <eos> ends the text.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from recur.data.text import BOS, EOS
from recur.decoding.sampling import FORBIDDEN_TOKENS
from recur.export.graphs import NetworkStates, PortableModel, TensorSpec, capture, flatten_state, prepare_model
from recur.models import ConditionalModel, LanguageModel, Seq2Seq
from recur.models.decoder import Decoder, DecoderContext, add_end_probability
from recur.nn import Recurrent
from recur.tasks.conditional.predictor import ConditionalWriter
from recur.tasks.language.data import first_input
from recur.tasks.language.predictor import Language
from recur.tasks.seq2seq.predictor import Transducer

INT64 = torch.int64


class LanguageModelGraph(nn.Module):
    """Language model along tokens (B, T), or for one token per row (B,)."""

    def __init__(self, model: LanguageModel, states: NetworkStates) -> None:
        super().__init__()
        self.model, self.states = model, states

    def forward(self, tokens: Tensor, *carried: Tensor) -> tuple[Tensor, ...]:
        clocked = self.model.clock is not None
        own = self.states.nested(carried[: len(carried) - clocked])
        state = (*own, (carried[-1],)) if clocked else own
        one = tokens.dim() == 1
        found = self.model(tokens[:, None] if one else tokens, state)
        return (found.logits[:, 0] if one else found.logits, *flatten_state(found.state))


def build_language_model(predictor: Language) -> PortableModel:
    model = prepare_model(predictor.model)
    assert isinstance(model, LanguageModel)
    states, K = NetworkStates(model.recurrent), model.K
    carried, start = states.values, states.start()
    if model.clock is not None:
        carried, start = [*carried, TensorSpec("t", ("B",), INT64)], start | {"t": torch.zeros((), dtype=INT64)}
    module = LanguageModelGraph(model, states)
    tokens, token = TensorSpec("tokens", ("B", "T"), INT64, K), TensorSpec("token", ("B",), INT64, K)
    graphs = {
        "step": capture("step", module, [token, *carried], [TensorSpec("logits", ("B", K)), *carried]),
        "sequence": capture("sequence", module, [tokens, *carried], [TensorSpec("logits", ("B", "T", K)), *carried]),
    }
    settings = {
        "first": first_input(predictor.vocab),
        "backward": predictor.backward,
        "never": list(FORBIDDEN_TOKENS),
    }
    network = model.recurrent if isinstance(model.recurrent, Recurrent) else None
    return PortableModel(
        "language",
        "language",
        predictor.name,
        graphs,
        start,
        predictor.run.vocabs,
        settings=settings,
        network=network,
    )


class DecoderSpecs:
    """Inputs of a decoder's step: carried state and context."""

    def __init__(self, decoder: Decoder, context: Sequence[int | str]) -> None:
        """context: shape of the memory without B; empty if there is none."""
        d, o = decoder, decoder.options
        self.decoder, self.states = d, NetworkStates(d.network.recurrent)
        self.clocked, self.aligned = d.clock is not None, o.condition == "aligned"
        self.counts = o.stop in ("length", "source")
        self.carried = list(self.states.values)
        if self.clocked or self.aligned:
            self.carried.append(TensorSpec("t", ("B",), INT64))
        if self.counts:
            self.carried.append(TensorSpec("left", ("B",), INT64, o.longest + 1 if o.stop == "length" else 0))
        if d.input_feeding:
            self.carried.append(TensorSpec("fed", ("B", o.hidden)))
        self.context: list[TensorSpec] = []
        if d.network.by_input and not self.aligned:
            self.context.append(TensorSpec("vector", ("B", d.network.context_size)))
        if d.attention is not None or self.aligned:
            self.context.append(TensorSpec("memory", ("B", *context)))
        if d.attention is not None:
            self.context.append(TensorSpec("keys", ("B", *context[:-1], d.attention.size)))
        if d.written is not None:
            self.context.append(TensorSpec("symbols", ("B", *context[:-1]), INT64, d.K))

    def named(self, given: Sequence[Tensor]) -> dict[str, Tensor]:
        names = [value.name for value in (*self.carried, *self.context)]
        return dict(zip(names, given, strict=True))


class EncoderGraph(nn.Module):
    """Source (B, S) or label (B,) to the initial state and context, and log P(length) if it is predicted first."""

    def __init__(self, model: Seq2Seq | ConditionalModel, parts: DecoderSpecs) -> None:
        super().__init__()
        self.model, self.parts = model, parts

    def forward(self, source: Tensor) -> tuple[Tensor, ...]:
        d = self.model.decoder
        if isinstance(self.model, Seq2Seq):
            context = self.model.encode(source, None)
        else:
            context = DecoderContext(self.model.labels(source))
        found: list[Tensor] = []
        if self.parts.states.parts:
            start = d.network.start(context.vector)
            if start is None:
                begin = self.parts.states.start()
                found += [begin[name].expand(source.shape[0], -1) for _, name, _ in self.parts.states.parts]
            else:
                found += flatten_state(start)
        named = {
            "vector": context.vector,
            "memory": context.memory,
            "keys": d.keys(context),
            "symbols": context.symbols,
        }
        for value in self.parts.context:
            part = named[value.name]
            assert part is not None
            found.append(part)
        if d.length is not None:
            found.append(d.length(context.vector).log_softmax(-1))
        return tuple(part.clone() for part in found)


class DecoderStep(nn.Module):
    """One token per row (B,) to log P of the next (B, K)."""

    def __init__(self, parts: DecoderSpecs) -> None:
        super().__init__()
        self.decoder, self.parts = parts.decoder, parts

    def forward(self, token: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
        d, parts, states = self.decoder, self.parts, self.parts.states
        known = parts.named(given)
        t, left, fed = known.get("t"), known.get("left"), known.get("fed")
        memory = known.get("memory")
        share = known.get("vector")
        if parts.aligned:
            assert memory is not None
            assert t is not None
            at = t.clamp(max=memory.shape[1] - 1)
            share = memory.gather(1, at[:, None, None].expand(-1, 1, memory.shape[2]))
        elif share is None:
            share = token.new_zeros(token.shape[0], 0)  # nothing reads it
        x = d.inputs(
            token[:, None],
            None if d.count is None or left is None else left[:, None],
            0 if t is None else t[:, None],
            None if fed is None else fed[:, None],
        )
        h, after, _ = d.network(x, share, states.nested(given[: len(states.parts)]))
        context = DecoderContext(h, memory, None, known.get("symbols"))
        step = d.attend(h, context, known.get("keys"))
        logits, stop = d.outputs(step, context)
        found = [add_end_probability(logits[:, 0], None if stop is None else stop[:, 0], left), *flatten_state(after)]
        if t is not None:
            found.append(t + 1)
        if left is not None:
            found.append((left - 1).clamp(min=0))
        if fed is not None:
            found.append(step.g[:, 0])
        if step.weights is not None:
            found.append(step.weights[:, 0])
        return tuple(found)


def build_writer(predictor: Transducer | ConditionalWriter) -> PortableModel:
    model, vocabs = prepare_model(predictor.model), predictor.run.vocabs
    assert isinstance(model, Seq2Seq | ConditionalModel)
    d, o = model.decoder, model.decoder.options
    pairs = isinstance(model, Seq2Seq)
    if isinstance(model, Seq2Seq):
        source = TensorSpec("source", ("B", "S"), INT64, len(vocabs["source"]))
        parts = DecoderSpecs(d, ("S", model.encoder.output_size))
    else:
        source = TensorSpec("label", ("B",), INT64, len(vocabs["labels"]))
        parts = DecoderSpecs(d, ())
    log_length = [TensorSpec("log_length", ("B", o.longest + 1))] if d.length is not None else []
    token = TensorSpec("token", ("B",), INT64, d.K)
    encode = capture(
        "encode", EncoderGraph(model, parts), [source], [*parts.states.values, *parts.context, *log_length]
    )
    looked = [TensorSpec("looked", ("B", "S"))] if d.attention is not None else []
    outputs = [TensorSpec("logp", ("B", d.K)), *parts.carried, *looked]
    step = capture("step", DecoderStep(parts), [token, *parts.carried, *parts.context], outputs)
    begin = {"t": torch.zeros((), dtype=INT64), "fed": torch.zeros(o.hidden)}
    start = {value.name: begin[value.name] for value in parts.carried if value.name in begin}
    settings = {
        "first": BOS,
        "end": EOS,
        "never": list(FORBIDDEN_TOKENS),
        "longest": o.longest,
        "stop": o.stop,
        "backward": isinstance(predictor, ConditionalWriter) and predictor.task.backward,
        "source": "source" if pairs else "labels",
        "target": "target" if pairs else "vocab",
    }
    name = "seq2seq" if pairs else "conditional"
    return PortableModel(
        name, "writer", predictor.name, {"encode": encode, "step": step}, start, vocabs, settings=settings
    )
