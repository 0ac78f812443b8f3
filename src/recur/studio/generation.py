"""Likeliest next tokens of a text, and generated text."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from recur.data.text import UNK
from recur.decoding.sampling import continue_text, forbidden_tokens, make_generator
from recur.serve.http import RequestModel, finite_or_none, validate
from recur.studio.loaded_model import EncodedText, LoadedModel, display_text, get_sampling, without_specials
from recur.utils.types import JsonObject

LENGTH = 2000
"""Tokens generated for one request, at most."""
BARS = 12
"""Likeliest next tokens."""
UNKNOWN = 12
"""Different unknown tokens that are named."""
CONTEXT = 16
"""Tokens before what is generated that decide how it is joined to them, such as by a space."""


class GenerateRequest(RequestModel):
    """Number of tokens to generate, and the seed of the random numbers."""

    length: Annotated[int, Field(ge=1, le=LENGTH)] = 200
    seed: Annotated[int, Field(ge=0, le=10**9)] = 0


def next_tokens(model: LoadedModel, request: JsonObject) -> JsonObject:
    """Return the likeliest next tokens with their probability, before and after temperature, top-k and top-p.

    After an unfinished word these are the words with this prefix; their probabilities are renormalised.
    """
    language = model.language
    choice = get_sampling(request)
    key, reading = model.read(request)
    logits = _writable(model, reading)
    probability, drawn = logits.softmax(-1), choice.probabilities(logits)
    likeliest = probability.topk(min(BARS, int((probability > 0).sum()))).indices.tolist()
    positive = probability[probability > 0]
    return {
        "key": key,
        "characters": len(reading.text),
        "bars": [
            {
                "token": language.vocab.tokens[k],
                "text": display_text(language.vocab.tokens[k]),
                "insert": _inserted(model, reading, k),
                "p": finite_or_none(float(probability[k])),
                "drawn": finite_or_none(float(drawn[k])),
            }
            for k in likeliest
        ],
        "half": reading.half,
        "entropy": finite_or_none(float(-(positive * positive.log()).sum())),
        "tokens": reading.end.tokens - 1,
        "unknown": _unknown(model, reading),
        "backward": language.backward,
    }


def _writable(model: LoadedModel, reading: EncodedText) -> Tensor:
    """Return the logits of the next token, −∞ for special tokens and for words without the unfinished word's prefix."""
    logits = reading.end.logits.clone()
    logits[forbidden_tokens(model.language.model)] = -torch.inf
    if reading.half:
        begin_so = torch.zeros(len(logits), dtype=torch.bool)
        begin_so[model.readings.completions(reading.half)] = True
        logits[~begin_so] = -torch.inf
    return logits


def _inserted(model: LoadedModel, reading: EncodedText, k: int) -> str:
    """Return the text that a token adds: the rest of an unfinished word, or a word with a space before it."""
    token = display_text(model.language.vocab.tokens[k])
    if reading.half:
        return token[len(reading.half) :]
    vocab = model.language.vocab
    if vocab.tokenizer.kind == "char":
        return token
    if model.language.backward:
        behind = reading.ids[1:][::-1][:CONTEXT].tolist()
        return vocab.decode([k, *behind])[: -len(vocab.decode(behind)) or None]
    if vocab.tokenizer.kind == "subword":
        before = reading.ids[1:][-CONTEXT:].tolist()
        return vocab.decode([*before, k])[len(vocab.decode(before)) :]
    joined = not reading.text or reading.text[-1].isspace() or token.isspace()
    return token if joined else f" {token}"


def _unknown(model: LoadedModel, reading: EncodedText) -> JsonObject:
    """Return the tokens that were read as <unk>, and the probability of <unk> as the next token."""
    vocab, found = model.language.vocab, reading.end.unknown
    return {
        "tokens": [token for token, _ in found.most_common(UNKNOWN)],
        "count": found.total(),
        "seen": vocab.counts[UNK],
        "of": sum(vocab.counts),
        "p": finite_or_none(float(reading.end.logits.softmax(-1)[UNK])),
    }


def generate(model: LoadedModel, request: JsonObject) -> Generator[str, None, None]:
    """Generate a continuation piece by piece. An invalid request is refused before the first piece."""
    choice = get_sampling(request)
    asked = validate(GenerateRequest, request)
    seed = asked.seed if "seed" in request else None
    _, reading = model.read(request)
    first = _writable(model, reading)
    drawn = continue_text(
        model.language.model, first[None], reading.end.state, asked.length, choice, make_generator(seed)
    )
    return _in_order(_pieces(model, reading, (ids[0] for ids in drawn)), model)


def _pieces(model: LoadedModel, reading: EncodedText, drawn: Iterator[int]) -> Iterator[str]:
    """Yield the text that each token adds."""
    vocab, backward = model.language.vocab, model.language.backward
    if vocab.tokenizer.kind == "char":
        for k in drawn:
            yield vocab.tokens[k]
        return
    first = next(drawn, None)
    if first is None:
        return
    before = reading.ids[1:][-CONTEXT:].tolist()
    written = [first]
    yield _inserted(model, reading, first)

    def whole() -> str:
        return vocab.decode([*written[::-1], *before[::-1]] if backward else [*before, *written])

    shown = whole()
    for k in drawn:
        written.append(k)
        now = whole()
        yield now[: len(now) - len(shown)] if backward else now[len(shown) :]
        shown = now


def _in_order(pieces: Iterator[str], model: LoadedModel) -> Generator[str, None, None]:
    """Pieces as they stand in the text. Those of a model that reads from the end stand each before the last one: they
    come once all are there, and nothing for each until then, so that whoever asks can give up."""
    held: list[str] = []
    for piece in pieces:
        if model.language.vocab.tokenizer.kind == "char":  # <eos> is a token of words, and ends a line
            piece = without_specials(piece)
        if model.language.backward:
            held.append(piece)
        yield "" if model.language.backward else piece
    if model.language.backward:
        yield "".join(held[::-1])


def example(model: LoadedModel, _: JsonObject) -> JsonObject:
    """Return an example text."""
    return {"text": model.example()}
