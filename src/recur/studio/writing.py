"""What comes next: the likeliest tokens behind a text, and text that is generated."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import torch

from recur.decode import encode_prompt
from recur.decode.sampling import NEVER_WRITTEN
from recur.studio.fields import choice_of, text_of
from recur.studio.loaded import LoadedModel, display_text, without_specials
from recur.typedefs import JsonObject
from recur.web.fields import field

LENGTH = 2000
"""Tokens generated for one request, at most."""
BARS = 12
"""Likeliest next tokens."""


def next_tokens(model: LoadedModel, request: JsonObject) -> JsonObject:
    """The likeliest next tokens: their probability, and that after temperature, top-k and top-p."""
    vocab = model.language.vocab
    logits = model.logits(encode_prompt(vocab, text_of(request)))
    logits = logits.index_fill(0, torch.tensor(NEVER_WRITTEN), -torch.inf)
    probability = logits.softmax(-1)
    drawn = choice_of(request).probabilities(logits)
    bars = []
    for k in probability.topk(min(BARS, len(probability))).indices.tolist():
        token = vocab.tokens[k]
        p, after = float(probability[k]), float(drawn[k])
        bars.append({"token": token, "text": display_text(token), "p": p, "drawn": after})
    positive = probability[probability > 0]
    entropy = float(-(positive * positive.log()).sum())
    space = vocab.tokenizer.kind == "word"
    return {"bars": bars, "entropy": entropy, "space": space, "backward": model.language.backward}


def generate(model: LoadedModel, request: JsonObject) -> Generator[str, None, None]:
    """A continuation, piece by piece. A bad request is refused before the first one."""
    language = model.language
    choice, text = choice_of(request), text_of(request)
    length = field(request, "length", 200, 1, LENGTH)
    seed = field(request, "seed", 0) if "seed" in request else None
    encode_prompt(language.vocab, text)
    pieces = language.stream(
        text, length, seed=seed, temperature=choice.temperature, top_k=choice.top_k, top_p=choice.top_p
    )
    return _in_order(pieces, language.backward, language.vocab.tokenizer.kind == "char")


def _in_order(pieces: Iterator[str], backward: bool, characters: bool) -> Generator[str, None, None]:
    """Pieces as they stand in the text. Those of a model that reads from the end stand each before the last one: they
    come once all are there, and nothing for each until then, so that whoever asks can give up."""
    held: list[str] = []
    for piece in pieces:
        if characters:  # <eos> is a token of words and ends a line; the page sends back known characters only
            piece = without_specials(piece)
        if backward:
            held.append(piece)
        yield "" if backward else piece
    if backward:
        yield "".join(held[::-1])


def example(model: LoadedModel, _: JsonObject) -> JsonObject:
    """A text to start from."""
    return {"text": model.example()}
