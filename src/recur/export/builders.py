"""Graphs of every model but the forecaster: classifiers, taggers, language models and decoders.

    classifier    sequence(tokens (B, T) or steps (B, T, D)) → log_p (B, classes)
                  step(token (B,) or x (B, D), carried…) → log_p of all read so far, carried…        forward models
    tagger        sequence(…) → scores (B, T, classes) at every token or step; step(…) likewise
                  word(characters (B, N), casing (B,)) → looks (B, W), features of a word for each of its tokens
    transcriber   sequence(…) → logits (B, T, classes + 1), the last class is the blank
    language      sequence(tokens (B, T), state…) → logits (B, T, K), state…
                  step(token (B,), state…) → logits (B, K), state…
    writer        encode(source (B, S) or label (B,)) → initial state and context of the decoder
                  step(token (B,), carried…, context…) → log-probabilities (B, K) of the next token, carried…, and
                  `looked` (B, S), the attention weights

A text classifier may be mixed with n-gram models: `sequence` then also reads `grams` (B, N), the ids of distinct
n-grams in the vocabulary `ngrams`, and `counts` (B, N), 0 for padding. The log-probabilities of a writer are those of
its beam search: <eos> ends the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from recur.baselines.classifiers import LinearTextClassifier
from recur.data.text import BOS, EOS
from recur.data.text.tokenizers import CASINGS
from recur.decoding.sampling import FORBIDDEN_TOKENS, forbidden_tokens
from recur.errors import OptionError
from recur.export.graphs import Graph, NetworkStates, PortableModel, TensorSpec, capture, flatten_state, prepare_model
from recur.models import ConditionalModel, LanguageModel, Seq2Seq
from recur.models.classifiers import Classifier, Regressor, SequenceEncoder, Transcriber
from recur.models.decoder import Decoder, DecoderContext, add_end_probability
from recur.models.layers import append_time
from recur.models.multilabel import MultiLabelClassifier
from recur.models.tagger import OutputTagger, Tagger, WordFormBatch, WordTagger
from recur.nn import CRF, Recurrent
from recur.tasks.classify.data import TextModel
from recur.tasks.common.classification import class_names
from recur.tasks.common.predictor import Predictor
from recur.tasks.conditional.predictor import ConditionalWriter
from recur.tasks.copy.predictor import Copier
from recur.tasks.copy.task import BLANK, GO, MESSAGE, SYMBOLS
from recur.tasks.language.data import first_input
from recur.tasks.language.predictor import Language
from recur.tasks.seq2seq.predictor import Transducer
from recur.tasks.tag.blend import BlendedTagger
from recur.tasks.tag.predictor import TextTagger

INT64 = torch.int64


class CarriedState:
    """State that a reader carries from step to step: network states, pooling, time."""

    def __init__(self, model: SequenceEncoder) -> None:
        self.model, self.states = model, NetworkStates(model.recurrent)
        self.values, self.start = self.states.values, self.states.start()
        self.pooled: list[TensorSpec] = []
        if isinstance(model, Classifier):
            self.pooled = _pooling_specs(model)
            self.values += self.pooled
            for value in self.pooled:
                low = value.name.startswith(("most", "top"))
                self.start[value.name] = torch.full(value.shape[1:], -torch.inf if low else 0.0)  # type: ignore[arg-type]
        if model.clock is not None:
            self.values.append(TensorSpec("t", ("B",), INT64))
            self.start["t"] = torch.zeros((), dtype=INT64)

    def state(self, given: Sequence[Tensor]) -> Any:
        own = self.states.nested(given[: len(self.states.parts)])
        return own if self.model.clock is None else (*own, (given[-1],))

    def pool(self, given: Sequence[Tensor]) -> tuple[Tensor, ...]:
        first = len(self.states.parts)
        return tuple(given[first : first + len(self.pooled)])


def _pooling_specs(model: Classifier) -> list[TensorSpec]:
    pooling, H, found = model.pooling, model.recurrent.output_size, list[TensorSpec]()
    for part in pooling.parts:
        if part == "max":
            found.append(TensorSpec("most_max", ("B", H)))
        elif part != "last":
            heads = pooling.heads if part == "self-attention" else 1
            name = part.replace("-", "_")
            found += [
                TensorSpec(f"total_{name}", ("B", heads, H)),
                TensorSpec(f"weight_{name}", ("B", heads, 1)),
                TensorSpec(f"top_{name}", ("B", heads, 1)),
            ]
    return found


def _read_step(
    model: SequenceEncoder, x: Tensor, carried: CarriedState, given: Sequence[Tensor], more: Tensor | None = None
) -> Any:
    """Read one step like `Reader.read_step`, by a pass over a sequence of length one: only there the graph contains the
    cell."""
    vectors = model.embedding.vectors(x)
    parts = [vectors] if more is None else [vectors, more]
    state = carried.state(given)
    if model.clock is not None:
        *own, (t,) = state
        inputs = append_time(torch.cat(parts, -1), t, model.clock)
        found = model.recurrent(inputs[:, None], tuple(own))
        return found.outputs[:, 0], (*flatten_state(found.state),), (t + 1,)
    found = model.recurrent(torch.cat(parts, -1)[:, None], state)
    return found.outputs[:, 0], tuple(flatten_state(found.state)), ()


# Classifiers ------------------------------------------------------------------------------------------------------


class NGramModels(nn.Module):
    """The n-gram models of `LinearText` on n-gram ids (B, N) with counts (B, N)."""

    idf: Tensor
    weight: Tensor
    bias: Tensor
    bayes: Tensor
    prior: Tensor

    def __init__(self, linear: LinearTextClassifier) -> None:
        super().__init__()
        for name in ("idf", "weight", "bias", "bayes", "prior"):
            self.register_buffer(name, getattr(linear, name).detach().clone())

    def forward(self, grams: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-probabilities (B, classes) of naive Bayes and of logistic regression."""
        there = (counts > 0).to(counts.dtype)[..., None]
        bayes = (embedding(grams, self.bayes) * there).sum(1) + self.prior
        x = counts * self.idf[grams]
        x = x / x.square().sum(1, keepdim=True).sqrt().clamp_min(1e-12)
        regression = (embedding(grams, self.weight) * x[..., None]).sum(1) + self.bias
        return bayes.log_softmax(-1), regression.log_softmax(-1)


def _log_sigmoid(logits: Tensor) -> Tensor:
    """Return log σ of logits by operations that every printer has."""
    return logits.sigmoid().clamp_min(1e-30).log()


class ClassifierGraph(nn.Module):
    def __init__(self, model: Classifier, blended: bool) -> None:
        super().__init__()
        self.model = model
        self.grams = (
            NGramModels(model.linear) if blended and isinstance(model, TextModel) and model.linear is not None else None
        )

    def forward(self, x: Tensor, *more: Tensor) -> tuple[Tensor]:
        if isinstance(self.model, MultiLabelClassifier):
            return (_log_sigmoid(self.model(x, None)),)
        log_p = self.model(x, None).log_softmax(-1)
        if self.grams is not None:
            assert isinstance(self.model, TextModel)
            assert self.model.blend is not None
            return (self.model.blend(log_p, *self.grams(*more)),)
        return (self.model.temperature(log_p) if isinstance(self.model, TextModel) else log_p,)


class ClassifierStep(nn.Module):
    def __init__(self, model: Classifier, carried: CarriedState) -> None:
        super().__init__()
        self.model, self.carried = model, carried

    def forward(self, x: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
        h, state, t = _read_step(self.model, x, self.carried, given)
        pooled, pool = self.model.pooling.step(h, self.carried.pool(given) or None)
        if isinstance(self.model, MultiLabelClassifier):
            return (_log_sigmoid(self.model.output(pooled)), *state, *pool, *t)
        log_p = self.model.output(pooled).log_softmax(-1)
        if isinstance(self.model, TextModel):
            log_p = self.model.temperature(log_p)
        return (log_p, *state, *pool, *t)


def build_classifier(predictor: Predictor[Any], plain: bool = True) -> PortableModel:
    """Build the graphs of a classifier of texts or numbers.

    plain: False exports the network without the n-gram models.
    """
    model, vocabs = prepare_model(predictor.model), predictor.run.vocabs
    assert isinstance(model, Classifier)
    labels = class_names(vocabs["labels"])
    mixed = isinstance(model, TextModel) and model.blend is not None
    whole, one, settings = _input_specs(predictor)
    inputs = [whole]
    if mixed and plain:
        inputs += [TensorSpec("grams", ("B", "N"), INT64, len(vocabs["ngrams"]) - 4), TensorSpec("counts", ("B", "N"))]
        settings["grams"] = vocabs["ngrams"].tokenizer.kind
    output = TensorSpec("log_p", ("B", len(labels)))
    graphs = {"sequence": capture("sequence", ClassifierGraph(model, plain), inputs, [output])}
    carried = CarriedState(model)
    streams = _streams(model)
    if streams:
        given = [one, *carried.values]
        graphs["step"] = capture("step", ClassifierStep(model, carried), given, [output, *carried.values])
    notes: list[str] = []
    if isinstance(model, MultiLabelClassifier):
        settings["thresholds"] = model.thresholds.tolist()
        notes.append("log_p has the log-probability of each label; a label is predicted from its threshold on")
    if mixed:
        settings["mixed"] = plain
        if not plain:
            notes.append("the network alone with its temperature; recur predict mixes it with n-gram models")
        elif streams:
            notes.append("step by step it is the network alone with its temperature, as in streaming")
    kept = {name: vocab for name, vocab in vocabs.items() if name != "ngrams" or (mixed and plain)}
    return PortableModel(
        "classify", "classifier", predictor.name, graphs, carried.start if streams else {}, kept, labels,
        settings=settings, network=model.recurrent, notes=tuple(notes),
    )  # fmt: skip


def _input_specs(predictor: Predictor[Any]) -> tuple[TensorSpec, TensorSpec, dict[str, Any]]:
    """Return the specs of a sequence and of a step, and settings of the input."""
    vocabs = predictor.run.vocabs
    if "vocab" in vocabs:
        K = len(vocabs["vocab"])
        return TensorSpec("tokens", ("B", "T"), INT64, K), TensorSpec("token", ("B",), INT64, K), {"reads": "tokens"}
    stack, D = int(predictor.task.options.stack), len(class_names(vocabs["features"]))
    settings = {"reads": "numbers", "features": D, "stack": stack}
    return TensorSpec("x", ("B", "T", stack * D)), TensorSpec("x", ("B", stack * D)), settings


def _streams(model: SequenceEncoder) -> bool:
    return model.recurrent.direction == "forward"


# Taggers ----------------------------------------------------------------------------------------------------------


class TaggerGraph(nn.Module):
    """Scores at every token; `looks` (B, T, W) are the features of the token's word."""

    def __init__(self, model: SequenceEncoder) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, *looks: Tensor) -> tuple[Tensor]:
        return (self.model.output(self.model.read(x, None, *looks)),)


class TaggerStep(nn.Module):
    def __init__(self, model: SequenceEncoder, carried: CarriedState, looks: bool) -> None:
        super().__init__()
        self.model, self.carried, self.looks = model, carried, looks

    def forward(self, x: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
        more, given = (given[0], given[1:]) if self.looks else (None, given)
        h, state, t = _read_step(self.model, x, self.carried, given, more)
        return (self.model.output(h), *state, *t)


class WordFeatures(nn.Module):
    """Character and casing features of words, one word per row, all of the same length."""

    def __init__(self, model: WordTagger) -> None:
        super().__init__()
        self.forms = model.forms

    def forward(self, characters: Tensor, casing: Tensor) -> tuple[Tensor]:
        assert self.forms is not None
        return (self.forms(WordFormBatch(characters, None, casing, casing)),)


class OutputTaggerStep(nn.Module):
    """Step of a tagger that reads its previous tag; it has no pass over a sequence."""

    def __init__(self, model: OutputTagger) -> None:
        super().__init__()
        self.model = model

    def forward(self, token: Tensor, y: Tensor, t: Tensor) -> tuple[Tensor, ...]:
        scores, ((y,), (t,)) = self.model.step(token, ((y,), (t,)))
        return scores, y, t


def build_tagger(predictor: Predictor[Any], plain: bool = True) -> PortableModel:
    """Build the graphs of a tagger of words or of steps of numbers.

    plain: False exports the network without the linear CRF that it is blended with.
    """
    if plain and isinstance(predictor.model, BlendedTagger) and predictor.model.network_share < 1:
        raise OptionError(
            f"{predictor.run.path} is a blend of its network and a CRF on words, which no exported file can hold; "
            "export the network alone with --no-plain"
        )
    model = prepare_model(predictor.model)
    assert isinstance(model, SequenceEncoder | OutputTagger)
    whole, one, settings = _input_specs(predictor)
    settings["words"] = isinstance(predictor, TextTagger)
    return build_tagger_graphs(
        "tag", predictor, model, whole, one, class_names(predictor.run.vocabs["labels"]), settings
    )


def build_tagger_graphs(
    task: str,
    predictor: Predictor[Any],
    model: SequenceEncoder | OutputTagger,
    whole: TensorSpec,
    one: TensorSpec,
    labels: tuple[str, ...],
    settings: dict[str, Any],
) -> PortableModel:
    vocabs, name = {k: v for k, v in predictor.run.vocabs.items() if k != "features"}, predictor.name
    if isinstance(model, OutputTagger):
        K = len(labels)
        before = [TensorSpec("y", ("B", K)), TensorSpec("t", ("B",), INT64)]
        begin = {"y": torch.zeros(K), "t": torch.zeros((), dtype=INT64)}
        step = capture("step", OutputTaggerStep(model), [one, *before], [TensorSpec("scores", ("B", K)), *before])
        settings |= {"crf": False}
        return PortableModel(task, "tagger", name, {"step": step}, begin, vocabs, labels, settings=settings)
    blank = isinstance(model, Transcriber)
    width = len(labels) + blank
    graphs: dict[str, Graph] = {}
    carried, looks = CarriedState(model), list[TensorSpec]()
    if isinstance(model, WordTagger) and model.forms is not None:
        looks, characters = [TensorSpec("looks", ("B", model.forms.width))], vocabs["characters"]
        given = [
            TensorSpec("characters", ("B", "N"), INT64, len(characters)),
            TensorSpec("casing", ("B",), INT64, len(CASINGS)),
        ]
        graphs["word"] = capture("word", WordFeatures(model), given, looks)
    along = [TensorSpec(value.name, ("B", "T", value.shape[1])) for value in looks]
    graphs["sequence"] = capture(
        "sequence", TaggerGraph(model), [whole, *along], [TensorSpec("scores", ("B", "T", width))]
    )
    if _streams(model):
        module, scores = TaggerStep(model, carried, bool(looks)), TensorSpec("scores", ("B", width))
        graphs["step"] = capture("step", module, [one, *looks, *carried.values], [scores, *carried.values])
    tables: dict[str, Tensor] = {}
    tags = getattr(model, "tags", None)
    if isinstance(tags, CRF):
        tables = {f"moves_{part}": scores.detach().clone() for part, scores in tags.moves()._asdict().items()}
    settings |= {"crf": bool(tables)}
    if blank:
        settings["blank"] = len(labels)
    start = carried.start if "step" in graphs else {}
    kind = "transcriber" if blank else "tagger"
    return PortableModel(task, kind, name, graphs, start, vocabs, labels, tables, settings, model.recurrent)


class SingleOutput(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *given: Tensor) -> tuple[Tensor]:
        return (self.model(*given),)


def build_adder(predictor: Predictor[Regressor]) -> PortableModel:
    graph = capture(
        "sequence",
        SingleOutput(prepare_model(predictor.model)),
        [TensorSpec("x", ("B", "T", 2))],
        [TensorSpec("value", ("B",))],
    )
    settings = {"reads": "numbers", "features": 2, "stack": 1}
    return PortableModel("adding", "numbers", predictor.name, {"sequence": graph}, settings=settings)


def build_copier(predictor: Copier) -> PortableModel:
    """Build a tagger of token ids: 0 … 7, blank, and the recall signal."""
    model = prepare_model(predictor.model)
    assert isinstance(model, Tagger | OutputTagger)
    tokens, token = (
        TensorSpec(name, shape, torch.int64, SYMBOLS + 2) for name, shape in (("tokens", ("B", "T")), ("token", ("B",)))
    )
    labels = (*tuple(str(k) for k in range(SYMBOLS)), "")
    settings = {
        "reads": "tokens",
        "words": False,
        "silence": BLANK,
        "go": GO,
        "message": MESSAGE,
        "length": predictor.task.length,
    }
    return build_tagger_graphs("copy", predictor, model, tokens, token, labels, settings)


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
        "never": forbidden_tokens(predictor.model),
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
            self.carried.append(TensorSpec("left", ("B",), INT64, o.max_length + 1 if o.stop == "length" else 0))
        if d.input_feeding:
            self.carried.append(TensorSpec("fed", ("B", o.hidden_size)))
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


def build_decoder(predictor: Transducer | ConditionalWriter) -> PortableModel:
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
    log_length = [TensorSpec("log_length", ("B", o.max_length + 1))] if d.length is not None else []
    token = TensorSpec("token", ("B",), INT64, d.K)
    encode = capture(
        "encode", EncoderGraph(model, parts), [source], [*parts.states.values, *parts.context, *log_length]
    )
    looked = [TensorSpec("looked", ("B", "S"))] if d.attention is not None else []
    outputs = [TensorSpec("logp", ("B", d.K)), *parts.carried, *looked]
    step = capture("step", DecoderStep(parts), [token, *parts.carried, *parts.context], outputs)
    begin = {"t": torch.zeros((), dtype=INT64), "fed": torch.zeros(o.hidden_size)}
    start = {value.name: begin[value.name] for value in parts.carried if value.name in begin}
    settings = {
        "first": BOS,
        "end": EOS,
        "never": list(FORBIDDEN_TOKENS),
        "longest": o.max_length,
        "stop": o.stop,
        "backward": isinstance(predictor, ConditionalWriter) and predictor.task.backward,
        "source": "source" if pairs else "labels",
        "target": "target" if pairs else "vocab",
    }
    name = "seq2seq" if pairs else "conditional"
    return PortableModel(
        name, "writer", predictor.name, {"encode": encode, "step": step}, start, vocabs, settings=settings
    )
