"""Models that read, as graphs: classifiers and taggers of texts and of sequences of numbers.

    classifier    sequence(tokens (B, T) or steps (B, T, D)) → log_p (B, classes)
                  step(token (B,) or x (B, D), carried…) → log_p of all read so far, carried…        reading forward
    tagger        sequence(…) → scores (B, T, classes), at every token or step; step(…) likewise
                  word(characters (B, N), casing (B,)) → looks (B, W), which tokens of the word have beside them
    transcriber   sequence(…) → logits (B, T, classes + 1), the last of them the blank

A classifier of texts is mixed with plain models of n-grams where the run says so: `sequence` then reads `grams` (B, N),
the n-grams that the vocabulary `ngrams` has, each once and counted from 0, and how often each stands there, `counts`
(B, N), 0 for none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from recur.baselines.text_classifiers import LinearTextClassifier
from recur.data.text.tokenizers import CASINGS
from recur.export.graphs import Graph, Portable, States, Value, capture, flat, ready
from recur.models.classifier import Classifier, SequenceEncoder
from recur.models.inputs import append_time
from recur.models.signals import Transcriber
from recur.models.tagger import OutputTagger, WordFormBatch, WordTagger
from recur.nn import CRF
from recur.tasks.classify.data import TextModel
from recur.tasks.common.classification import class_names
from recur.tasks.common.predictor import Predictor
from recur.tasks.tag.predictor import TextTagger

WHOLE = torch.int64


class Carried:
    """What a reader hands on from step to step: its network's states, what it has pooled, the time."""

    def __init__(self, model: SequenceEncoder) -> None:
        self.model, self.states = model, States(model.recurrent)
        self.values, self.start = self.states.values, self.states.start()
        self.pooled: list[Value] = []
        if isinstance(model, Classifier):
            self.pooled = _pooled(model)
            self.values += self.pooled
            for value in self.pooled:
                low = value.name.startswith(("most", "top"))
                self.start[value.name] = torch.full(value.shape[1:], -torch.inf if low else 0.0)  # type: ignore[arg-type]
        if model.clock is not None:
            self.values.append(Value("t", ("B",), WHOLE))
            self.start["t"] = torch.zeros((), dtype=WHOLE)

    def state(self, given: Sequence[Tensor]) -> Any:
        own = self.states.nested(given[: len(self.states.parts)])
        return own if self.model.clock is None else (*own, (given[-1],))

    def pool(self, given: Sequence[Tensor]) -> tuple[Tensor, ...]:
        first = len(self.states.parts)
        return tuple(given[first : first + len(self.pooled)])


def _pooled(model: Classifier) -> list[Value]:
    pooling, H, found = model.pooling, model.recurrent.output_size, list[Value]()
    for part in pooling.parts:
        if part == "max":
            found.append(Value("most_max", ("B", H)))
        elif part != "last":
            heads = pooling.heads if part == "self-attention" else 1
            name = part.replace("-", "_")
            found += [
                Value(f"total_{name}", ("B", heads, H)),
                Value(f"weight_{name}", ("B", heads, 1)),
                Value(f"top_{name}", ("B", heads, 1)),
            ]
    return found


def _read_step(
    model: SequenceEncoder, x: Tensor, carried: Carried, given: Sequence[Tensor], more: Tensor | None = None
) -> Any:
    """As `SequenceEncoder.read_step`, by the pass over sequences of one step: there the graph sees the cell."""
    vectors = model.embedding.vectors(x)
    parts = [vectors] if more is None else [vectors, more]
    state = carried.state(given)
    if model.clock is not None:
        *own, (t,) = state
        inputs = append_time(torch.cat(parts, -1), t, model.clock)
        found = model.recurrent(inputs[:, None], tuple(own))
        return found.outputs[:, 0], (*flat(found.state),), (t + 1,)
    found = model.recurrent(torch.cat(parts, -1)[:, None], state)
    return found.outputs[:, 0], tuple(flat(found.state)), ()


# Classifiers ------------------------------------------------------------------------------------------------------


class Grams(nn.Module):
    """The plain models of `LinearTextClassifier` on n-grams as numbers (B, N) with their counts (B, N)."""

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
        """Log-probabilities (B, classes): naive Bayes', and the regression's."""
        there = (counts > 0).to(counts.dtype)[..., None]
        bayes = (embedding(grams, self.bayes) * there).sum(1) + self.prior
        x = counts * self.idf[grams]
        x = x / x.square().sum(1, keepdim=True).sqrt().clamp_min(1e-12)
        regression = (embedding(grams, self.weight) * x[..., None]).sum(1) + self.bias
        return bayes.log_softmax(-1), regression.log_softmax(-1)


class Classify(nn.Module):
    def __init__(self, model: Classifier, blended: bool) -> None:
        super().__init__()
        self.model = model
        self.grams = (
            Grams(model.linear) if blended and isinstance(model, TextModel) and model.linear is not None else None
        )

    def forward(self, x: Tensor, *more: Tensor) -> tuple[Tensor]:
        log_p = self.model(x, None).log_softmax(-1)
        if self.grams is not None:
            assert isinstance(self.model, TextModel)
            assert self.model.blend is not None
            return (self.model.blend(log_p, *self.grams(*more)),)
        return (self.model.temperature(log_p) if isinstance(self.model, TextModel) else log_p,)


class ClassifyStep(nn.Module):
    def __init__(self, model: Classifier, carried: Carried) -> None:
        super().__init__()
        self.model, self.carried = model, carried

    def forward(self, x: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
        h, state, t = _read_step(self.model, x, self.carried, given)
        pooled, pool = self.model.pooling.step(h, self.carried.pool(given) or None)
        log_p = self.model.output(pooled).log_softmax(-1)
        if isinstance(self.model, TextModel):
            log_p = self.model.temperature(log_p)
        return (log_p, *state, *pool, *t)


def classifier(predictor: Predictor[Any], plain: bool = True) -> Portable:
    """Of texts or of numbers. Without `plain`, a network that is mixed with plain models stands alone."""
    model, vocabs = ready(predictor.model), predictor.run.vocabs
    assert isinstance(model, Classifier)
    labels = class_names(vocabs["labels"])
    mixed = isinstance(model, TextModel) and model.blend is not None
    whole, one, settings = _given(predictor)
    inputs = [whole]
    if mixed and plain:
        inputs += [Value("grams", ("B", "N"), WHOLE, len(vocabs["ngrams"]) - 4), Value("counts", ("B", "N"))]
        settings["grams"] = vocabs["ngrams"].tokenizer.kind
    output = Value("log_p", ("B", len(labels)))
    graphs = {"sequence": capture("sequence", Classify(model, plain), inputs, [output])}
    carried = Carried(model)
    streams = _streams(model)
    if streams:
        given = [one, *carried.values]
        graphs["step"] = capture("step", ClassifyStep(model, carried), given, [output, *carried.values])
    notes: list[str] = []
    if mixed:
        settings["mixed"] = plain
        if not plain:
            notes.append("the network alone, with its temperature: recur predict mixes it with plain models of n-grams")
        elif streams:
            notes.append("one step at a time it is the network alone, with its temperature, as a stream is")
    kept = {name: vocab for name, vocab in vocabs.items() if name != "ngrams" or (mixed and plain)}
    return Portable(
        "classify", "classifier", predictor.name, graphs, carried.start if streams else {}, kept, labels,
        settings=settings, network=model.recurrent, notes=tuple(notes),
    )  # fmt: skip


def _given(predictor: Predictor[Any]) -> tuple[Value, Value, dict[str, Any]]:
    """What a sequence is, what a step is, and what is to be known of them."""
    vocabs = predictor.run.vocabs
    if "vocab" in vocabs:
        K = len(vocabs["vocab"])
        return Value("tokens", ("B", "T"), WHOLE, K), Value("token", ("B",), WHOLE, K), {"reads": "tokens"}
    stack, D = int(predictor.task.options.stack), len(class_names(vocabs["features"]))
    settings = {"reads": "numbers", "features": D, "stack": stack}
    return Value("x", ("B", "T", stack * D)), Value("x", ("B", stack * D)), settings


def _streams(model: SequenceEncoder) -> bool:
    return model.recurrent.direction == "forward"


# Taggers ----------------------------------------------------------------------------------------------------------


class Tag(nn.Module):
    """Scores at every token, whatever word it is of; `looks` (B, T, W) are those of its word."""

    def __init__(self, model: SequenceEncoder) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, *looks: Tensor) -> tuple[Tensor]:
        return (self.model.output(self.model.read(x, None, *looks)),)


class TagStep(nn.Module):
    def __init__(self, model: SequenceEncoder, carried: Carried, looks: bool) -> None:
        super().__init__()
        self.model, self.carried, self.looks = model, carried, looks

    def forward(self, x: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
        more, given = (given[0], given[1:]) if self.looks else (None, given)
        h, state, t = _read_step(self.model, x, self.carried, given, more)
        return (self.model.output(h), *state, *t)


class Looks(nn.Module):
    """What words look like: one word in each row, all of them as long."""

    def __init__(self, model: WordTagger) -> None:
        super().__init__()
        self.forms = model.forms

    def forward(self, characters: Tensor, casing: Tensor) -> tuple[Tensor]:
        assert self.forms is not None
        return (self.forms(WordFormBatch(characters, None, casing, casing)),)


class OutputStep(nn.Module):
    """A tagger whose steps see the tag before: it has no pass over a sequence, for each waits for the last."""

    def __init__(self, model: OutputTagger) -> None:
        super().__init__()
        self.model = model

    def forward(self, token: Tensor, y: Tensor, t: Tensor) -> tuple[Tensor, ...]:
        scores, ((y,), (t,)) = self.model.step(token, ((y,), (t,)))
        return scores, y, t


def tagger(predictor: Predictor[Any]) -> Portable:
    """Of the words of texts, or of steps of numbers."""
    model = ready(predictor.model)
    assert isinstance(model, SequenceEncoder | OutputTagger)
    whole, one, settings = _given(predictor)
    settings["words"] = isinstance(predictor, TextTagger)
    return tagger_of("tag", predictor, model, whole, one, class_names(predictor.run.vocabs["labels"]), settings)


def tagger_of(
    task: str,
    predictor: Predictor[Any],
    model: SequenceEncoder | OutputTagger,
    whole: Value,
    one: Value,
    labels: tuple[str, ...],
    settings: dict[str, Any],
) -> Portable:
    vocabs, name = predictor.run.vocabs, predictor.name
    if isinstance(model, OutputTagger):
        K = len(labels)
        before = [Value("y", ("B", K)), Value("t", ("B",), WHOLE)]
        begin = {"y": torch.zeros(K), "t": torch.zeros((), dtype=WHOLE)}
        step = capture("step", OutputStep(model), [one, *before], [Value("scores", ("B", K)), *before])
        settings |= {"crf": False}
        return Portable(task, "tagger", name, {"step": step}, begin, vocabs, labels, settings=settings)
    blank = isinstance(model, Transcriber)
    width = len(labels) + blank
    graphs: dict[str, Graph] = {}
    carried, looks = Carried(model), list[Value]()
    if isinstance(model, WordTagger) and model.forms is not None:
        looks, characters = [Value("looks", ("B", model.forms.width))], vocabs["characters"]
        given = [Value("characters", ("B", "N"), WHOLE, len(characters)), Value("casing", ("B",), WHOLE, len(CASINGS))]
        graphs["word"] = capture("word", Looks(model), given, looks)
    along = [Value(value.name, ("B", "T", value.shape[1])) for value in looks]
    graphs["sequence"] = capture("sequence", Tag(model), [whole, *along], [Value("scores", ("B", "T", width))])
    if _streams(model):
        module, scores = TagStep(model, carried, bool(looks)), Value("scores", ("B", width))
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
    return Portable(task, kind, name, graphs, start, vocabs, labels, tables, settings, model.recurrent)
