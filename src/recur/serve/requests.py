"""What a request for completions asks for, checked: OpenAI's names, and `session`, `state`, `top_k`, `min_p`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from recur.data.text import BOS
from recur.decoding import encode_prompt
from recur.errors import OptionError
from recur.serve.http.requests import (SURROGATE, get_field)
from recur.serve.schemas import Limits
from recur.serve.models import ServedModel
from recur.serve.rows import SamplingParams
from recur.utils.types import JsonObject
from typing import (TYPE_CHECKING, Any)
import numpy as np

if TYPE_CHECKING:
    from recur.serve.registry import Registry

UNSUPPORTED: JsonObject = {"suffix": None, "frequency_penalty": 0, "presence_penalty": 0, "logit_bias": {}}
"""Of OpenAI's options: those that recur does not have, with the values that ask for nothing."""


@dataclass(frozen=True)
class Prompt:
    ids: list[int]
    text: str
    begins: bool = False
    """Whether the client wrote the beginning of a text out (<bos>), which is read in any case."""


@dataclass(frozen=True)
class CompletionParams:
    """A request for completions."""

    prompts: list[Prompt]
    n: int
    max_tokens: int
    draw: SamplingParams
    stops: list[str]
    logprobs: int | None
    echo: bool
    seed: int | None
    stream: bool
    usage: bool
    """Whether a stream ends with how many tokens it took."""
    session: str | None
    state: str | None

    @property
    def resumes(self) -> bool:
        """Whether it continues a session or a state, and not a new text."""
        return self.session is not None or self.state is not None

    @property
    def values(self) -> int:
        """Tokens of the answer, each counted with its log probabilities."""
        read = sum(len(prompt.ids) for prompt in self.prompts) if self.echo and self.logprobs is not None else 0
        return self.n * (read + len(self.prompts) * self.max_tokens) * (1 + (self.logprobs or 0))


def drop_nulls(body: JsonObject) -> JsonObject:
    """What a body says; of OpenAI's, null is nothing."""
    return {name: value for name, value in body.items() if value is not None}


def flag(body: JsonObject, name: str) -> bool:
    value = body.get(name, False)
    if not isinstance(value, bool):
        raise OptionError(f"{name} must be true or false, got {type(value).__name__}")
    return value


def short_string(body: JsonObject, name: str, longest: int = 100) -> str | None:
    """A name or an id; None where there is none."""
    if name not in body:
        return None
    value = get_field(body, name, "")
    if len(value) > longest:
        raise OptionError(f"{name} is too long: at most {longest:,} characters")
    return value


def check_model(body: JsonObject, served: ServedModel) -> None:
    """Refuse a request that names another model than the one whose session or state it resumes."""
    name = short_string(body, "model")
    if name is not None and name != served.name:
        raise OptionError(
            f"the session belongs to the model {served.name!r} and cannot be used with {name!r}; "
            f"name {served.name!r}, or leave model out"
        )


def draw_of(body: JsonObject, temperature: float) -> SamplingParams:
    return SamplingParams(
        get_field(body, "temperature", temperature, 0, 100),
        get_field(body, "top_k", 0, 0, 10**9),
        max(get_field(body, "top_p", 1.0, 0, 1), 1e-9),  # 0 is the likeliest alone
        get_field(body, "min_p", 0.0, 0, 1),
    )


def seed_of(body: JsonObject) -> int | None:
    return get_field(body, "seed", 0, -(2**63), 2**63) if "seed" in body else None


def completion_params(body: JsonObject, served: ServedModel, limits: Limits) -> CompletionParams:
    """What a body asks of a language model; OpenAI's defaults."""
    for name, nothing in UNSUPPORTED.items():
        if name in body and body[name] != nothing:
            raise OptionError(f"{name} is not supported")
    session, state = short_string(body, "session"), short_string(body, "state", 1 << 24)
    n = get_field(body, "n", 1, 1, limits.choices)
    if get_field(body, "best_of", n, 1, limits.choices) != n:
        raise OptionError("best_of other than n is not supported")
    prompts = prompts_of(body.get("prompt", ""), served, limits)
    if (session is not None or state is not None) and (n > 1 or len(prompts) > 1):
        raise OptionError("a session goes on in one way: one prompt, and n = 1")
    if n * len(prompts) > limits.choices:
        raise OptionError(f"{n * len(prompts):,} completions are too many for one request: at most {limits.choices}")
    options = body.get("stream_options", {})
    if not isinstance(options, dict):
        raise OptionError("stream_options must be an object")
    logprobs = get_field(body, "logprobs", 0, 0, limits.logprobs) if "logprobs" in body else None
    found = CompletionParams(
        prompts,
        n,
        get_field(body, "max_tokens", 16, 0, limits.max_tokens),
        draw_of(body, 1.0),
        stops_of(body.get("stop", []), limits),
        logprobs,
        flag(body, "echo"),
        seed_of(body),
        flag(body, "stream"),
        flag(drop_nulls(options), "include_usage"),
        session,
        state,
    )
    if found.values > limits.values:
        raise OptionError(
            f"the answer would have {found.values:,} values, at most {limits.values:,}: lower n × max_tokens × "
            f"(1 + logprobs), which is {n * len(prompts):,} × {found.max_tokens:,} × {1 + (logprobs or 0)}"
            + (", and the prompt's tokens that are echoed" if found.echo and logprobs is not None else "")
        )
    return found


def stops_of(stop: object, limits: Limits) -> list[str]:
    stops = [stop] if isinstance(stop, str) else stop
    if not isinstance(stops, list) or not all(isinstance(each, str) for each in stops):
        raise OptionError("stop must be a string or a list of strings")
    if len(stops) > limits.stops or any(len(each) > 1000 for each in stops):
        raise OptionError(f"stop takes at most {limits.stops} strings of 1,000 characters")
    return stops


def prompts_of(prompt: object, served: ServedModel, limits: Limits) -> list[Prompt]:
    """A text, texts, a text's tokens, or those of several."""
    if isinstance(prompt, str) or _is_tokens(prompt):
        prompt = [prompt]
    if not isinstance(prompt, list) or not all(isinstance(one, str) or _is_tokens(one) for one in prompt):
        raise OptionError("prompt must be a string, a list of strings, a list of tokens or a list of those")
    if not prompt or len(prompt) > limits.choices:
        raise OptionError(f"prompt must name 1 … {limits.choices} texts, got {len(prompt)}")
    found = [_prompt(one, served) for one in prompt]
    count = sum(len(one.ids) for one in found)
    if count > limits.prompt_tokens:
        raise OptionError(f"the prompt has {count:,} tokens: at most {limits.prompt_tokens:,}")
    return found


def _is_tokens(prompt: object) -> bool:
    return isinstance(prompt, list) and bool(prompt) and all(type(k) is int for k in prompt)


def _prompt(prompt: Any, served: ServedModel) -> Prompt:
    if isinstance(prompt, str):
        return Prompt(text_ids(prompt, served), prompt)
    check_ids(prompt, served)
    begins = prompt[0] == BOS
    ids = prompt[1:] if begins else prompt
    return Prompt(ids, served.vocab.decode(ids), begins)


def text_ids(text: str, served: ServedModel) -> list[int]:
    if SURROGATE.search(text):
        raise OptionError("the text has half of a surrogate pair in it, which is no character")
    return encode_prompt(served.vocab, text)


def check_ids(ids: Sequence[int], served: ServedModel) -> None:
    K = len(served.vocab)
    if not all(0 <= k < K for k in ids):
        raise OptionError(f"tokens of {served.name} lie in 0 … {K - 1}")


def parse_inputs(asked: object, served: ServedModel, hub: Registry) -> Any:
    """Tokens, a text, or steps of numbers: a list of inputs."""
    network = served.network
    if network.numbers:
        return _parse_numbers(asked, network.width, hub.limits.steps)
    if isinstance(asked, str):
        inputs = text_ids(asked, served)
    else:
        inputs = [asked] if type(asked) is int else asked  # type: ignore[assignment]
        if not isinstance(inputs, list) or not all(type(k) is int for k in inputs):
            raise OptionError("input must be a text, a token or a list of tokens")
        check_ids(inputs, served)
    if len(inputs) > hub.limits.prompt_tokens:
        raise OptionError(f"{len(inputs):,} tokens are too many: at most {hub.limits.prompt_tokens:,}")
    return inputs


def _parse_numbers(asked: object, width: int, most: int) -> list[np.ndarray[Any, Any]]:
    wanted = f"input must be {width} numbers, or a list of such steps" if width > 1 else "input must be numbers"
    try:
        values = np.asarray(asked, dtype=np.float64)
    except (ValueError, TypeError, OverflowError):
        raise OptionError(wanted) from None
    if not _all_numbers(asked):
        raise OptionError(wanted)
    if values.ndim < 2 and width == 1:
        values = values.reshape(-1, 1)
    elif values.ndim == 1:
        values = values[None]
    if values.ndim != 2 or (len(values) and values.shape[1] != width):
        raise OptionError(wanted)
    if len(values) > most:
        raise OptionError(f"{len(values):,} steps are too many for one message: at most {most:,}")
    with np.errstate(over="ignore"):
        found = values.astype(np.float32)
    if not np.isfinite(found).all():
        raise OptionError("input must be numbers that float32 can hold")
    return list(found)


def _all_numbers(asked: object) -> bool:
    if isinstance(asked, list):
        return all(_all_numbers(each) for each in asked)
    return isinstance(asked, int | float) and not isinstance(asked, bool)
