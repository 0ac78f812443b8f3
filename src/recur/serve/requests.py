"""Requests resolved against a model: prompts and inputs as token ids or vectors, and the size of the response."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from recur.data.text import BOS
from recur.decoding import encode_prompt
from recur.errors import OptionError
from recur.serve.http.requests import SURROGATE
from recur.serve.models import ServedModel
from recur.serve.rows import SamplingParams
from recur.serve.schemas import CompletionRequest, Limits, SamplingRequest


@dataclass(frozen=True)
class Prompt:
    """Prompt as token ids and as text."""

    ids: list[int]
    text: str
    begins: bool = False
    """Whether the client sent the start token <bos> itself; the model reads that token in any case."""


@dataclass(frozen=True)
class CompletionParams:
    """Request for completions, resolved against its model."""

    request: CompletionRequest
    prompts: list[Prompt]

    @property
    def values(self) -> int:
        """Number of tokens of the response, each counted with its log probabilities."""
        request = self.request
        echoed = sum(len(prompt.ids) for prompt in self.prompts) if self.scores_prompt else 0
        return request.n * (echoed + len(self.prompts) * request.max_tokens) * (1 + (request.logprobs or 0))

    @property
    def scores_prompt(self) -> bool:
        """Whether the response has log probabilities of the prompt's tokens."""
        return self.request.echo and self.request.logprobs is not None


def check_model(name: str | None, served: ServedModel) -> None:
    """Refuse a request that names another model than the one whose session or state it resumes."""
    if name is not None and name != served.name:
        raise OptionError(
            f"the session belongs to the model {served.name!r} and cannot be used with {name!r}; "
            f"name {served.name!r}, or leave model out"
        )


def sampling_params(request: SamplingRequest) -> SamplingParams:
    """Return the sampling options of a request; top_p 0 keeps the likeliest token alone."""
    return SamplingParams(request.temperature, request.top_k, max(request.top_p, 1e-9), request.min_p)


def resolve_completion(request: CompletionRequest, served: ServedModel, limits: Limits) -> CompletionParams:
    """Encode the prompts of a request; refuse a request whose response would be too large."""
    prompts = [_encode_prompt(prompt, served) for prompt in request.prompt]
    count = sum(len(prompt.ids) for prompt in prompts)
    if count > limits.prompt_tokens:
        raise OptionError(f"the prompt has {count:,} tokens: at most {limits.prompt_tokens:,}")
    choices = request.n * len(prompts)
    if choices > limits.choices:
        raise OptionError(f"{choices:,} completions are too many for one request: at most {limits.choices}")
    params = CompletionParams(request, prompts)
    if params.values > limits.values:
        raise OptionError(
            f"the response would have {params.values:,} values, at most {limits.values:,}: lower n × max_tokens × "
            f"(1 + logprobs), which is {choices:,} × {request.max_tokens:,} × {1 + (request.logprobs or 0)}"
            + (", and the number of echoed prompt tokens" if params.scores_prompt else "")
        )
    return params


def _encode_prompt(prompt: Any, served: ServedModel) -> Prompt:
    if isinstance(prompt, str):
        return Prompt(text_ids(prompt, served), prompt)
    check_ids(prompt, served)
    begins = prompt[0] == BOS
    ids = prompt[1:] if begins else prompt
    return Prompt(ids, served.vocab.decode(ids), begins)


def text_ids(text: str, served: ServedModel) -> list[int]:
    """Return the token ids of a text."""
    if SURROGATE.search(text):
        raise OptionError("the text has half of a surrogate pair in it, which is no character")
    return encode_prompt(served.vocab, text)


def check_ids(ids: Sequence[int], served: ServedModel) -> None:
    """Refuse token ids that are not in the vocabulary of a model."""
    K = len(served.vocab)
    if not all(0 <= k < K for k in ids):
        raise OptionError(f"token ids of {served.name} must be 0 to {K - 1}")


def parse_inputs(value: object, served: ServedModel, limits: Limits) -> Any:
    """Return the inputs of a session as a list: token ids of tokens or of a text, or vectors of numbers."""
    network = served.network
    if network.numbers:
        return _parse_numbers(value, network.width, limits.steps)
    if isinstance(value, str):
        inputs = text_ids(value, served)
    else:
        inputs = [value] if type(value) is int else value  # type: ignore[assignment]
        if not isinstance(inputs, list) or not all(type(k) is int for k in inputs):
            raise OptionError("input must be a text, a token or a list of tokens")
        check_ids(inputs, served)
    if len(inputs) > limits.prompt_tokens:
        raise OptionError(f"{len(inputs):,} tokens are too many: at most {limits.prompt_tokens:,}")
    return inputs


def _parse_numbers(value: object, width: int, most: int) -> list[np.ndarray[Any, Any]]:
    expected = f"input must be {width} numbers, or a list of such steps" if width > 1 else "input must be numbers"
    try:
        values = np.asarray(value, dtype=np.float64)
    except (ValueError, TypeError, OverflowError):
        raise OptionError(expected) from None
    if not _all_numbers(value):
        raise OptionError(expected)
    if values.ndim < 2 and width == 1:
        values = values.reshape(-1, 1)
    elif values.ndim == 1:
        values = values[None]
    if values.ndim != 2 or (len(values) and values.shape[1] != width):
        raise OptionError(expected)
    if len(values) > most:
        raise OptionError(f"{len(values):,} steps are too many for one message: at most {most:,}")
    with np.errstate(over="ignore"):
        vectors = values.astype(np.float32)
    if not np.isfinite(vectors).all():
        raise OptionError("input must be numbers that float32 can hold")
    return list(vectors)


def _all_numbers(value: object) -> bool:
    if isinstance(value, list):
        return all(_all_numbers(each) for each in value)
    return isinstance(value, int | float) and not isinstance(value, bool)
