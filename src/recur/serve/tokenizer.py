"""/tokenize, /detokenize and /tokenizer_info, as lm-eval's remote tokenizer and vLLM's clients ask for them."""

from __future__ import annotations

from recur.data.text import BOS
from recur.errors import OptionError
from recur.serve.asked import check_ids, given, word
from recur.serve.http.fields import field
from recur.serve.limits import Limits
from recur.serve.models import Models, Served
from recur.utils.types import JsonObject


def served_of(models: Models, name: str | None) -> Served:
    """The language model of a name; the first that there is, if none is said."""
    first = next((each for each in models if each.writes), models.get(None))
    served = first if name is None else models.get(name)
    served.language  # noqa: B018  says why, if it is none
    return served


def tokenizer_info(models: Models, name: str | None) -> JsonObject:
    """`eos_token` ends a line, which is where these models pause; `bos_token` stands where a text begins."""
    served = served_of(models, name)
    ends = "\n" if served.vocab.tokenizer.lines or "\n" in served.vocab.ids else None
    return {
        "model": served.name,
        "tokenizer_class": served.vocab.tokenizer.kind,
        "vocab_size": len(served.vocab),
        "bos_token": served.vocab.tokens[BOS],
        "eos_token": ends,
        "pad_token": None,
        "unk_token": served.vocab.tokens[0],
        "chat_template": None,
    }


def tokenize(models: Models, body: JsonObject, limits: Limits) -> JsonObject:
    """What is not in the vocabulary is <unk>, 0."""
    body = given(body)
    served, prompt = served_of(models, word(body, "model")), field(body, "prompt", "")
    tokens = [BOS] if prompt == served.vocab.tokens[BOS] else [int(k) for k in served.vocab.encode(prompt)]
    return {"tokens": tokens, "count": len(tokens), "max_model_len": limits.prompt_tokens}


def detokenize(models: Models, body: JsonObject) -> JsonObject:
    body = given(body)
    served, tokens = served_of(models, word(body, "model")), body.get("tokens", [])
    if not isinstance(tokens, list) or not all(type(k) is int for k in tokens):
        raise OptionError("tokens must be a list of whole numbers")
    check_ids(tokens, served)
    return {"prompt": served.vocab.decode(tokens)}
