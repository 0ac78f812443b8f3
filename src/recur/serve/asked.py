"""What a request for completions asks for, checked: OpenAI's names, and `session`, `state`, `top_k`, `min_p`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from recur.decode import encode_prompt
from recur.errors import OptionError
from recur.serve.limits import Limits
from recur.serve.models import Served
from recur.serve.rows import Draw
from recur.text import BOS
from recur.typedefs import JsonObject
from recur.web.fields import SURROGATE, field

NOT_OURS: JsonObject = {"suffix": None, "frequency_penalty": 0, "presence_penalty": 0, "logit_bias": {}}
"""Of OpenAI's options: those that recur does not have, with the values that ask for nothing."""


@dataclass(frozen=True)
class Prompt:
    ids: list[int]
    text: str
    begins: bool = False
    """Whether the client wrote the beginning of a text out (<bos>), which is read in any case."""


@dataclass(frozen=True)
class Asked:
    """A request for completions."""

    prompts: list[Prompt]
    n: int
    max_tokens: int
    draw: Draw
    stops: list[str]
    logprobs: int | None
    echo: bool
    seed: int | None
    stream: bool
    usage: bool
    """Whether a stream ends with how many tokens it took."""
    session: str | None
    state: str | None


def given(body: JsonObject) -> JsonObject:
    """What a body says; of OpenAI's, null is nothing."""
    return {name: value for name, value in body.items() if value is not None}


def flag(body: JsonObject, name: str) -> bool:
    value = body.get(name, False)
    if not isinstance(value, bool):
        raise OptionError(f"{name} must be true or false, got {type(value).__name__}")
    return value


def word(body: JsonObject, name: str, longest: int = 100) -> str | None:
    """A name or an id; None where there is none."""
    if name not in body:
        return None
    value = field(body, name, "")
    if len(value) > longest:
        raise OptionError(f"{name} is too long: at most {longest:,} characters")
    return value


def draw_of(body: JsonObject, temperature: float) -> Draw:
    return Draw(
        field(body, "temperature", temperature, 0, 100),
        field(body, "top_k", 0, 0, 10**9),
        max(field(body, "top_p", 1.0, 0, 1), 1e-9),  # 0 is the likeliest alone
        field(body, "min_p", 0.0, 0, 1),
    )


def seed_of(body: JsonObject) -> int | None:
    return field(body, "seed", 0, -(2**63), 2**63) if "seed" in body else None


def asked(body: JsonObject, served: Served, limits: Limits) -> Asked:
    """What a body asks of a language model; OpenAI's defaults."""
    for name, nothing in NOT_OURS.items():
        if name in body and body[name] != nothing:
            raise OptionError(f"{name} is not supported")
    session, state = word(body, "session"), word(body, "state", 1 << 24)
    if session is not None and state is not None:
        raise OptionError("session and state are two ways to say what to go on from; give one")
    n = field(body, "n", 1, 1, limits.choices)
    if field(body, "best_of", n, 1, limits.choices) != n:
        raise OptionError("best_of other than n is not supported")
    prompts = prompts_of(body.get("prompt", ""), served, limits)
    going_on = session is not None or state is not None
    if going_on and (n > 1 or len(prompts) > 1):
        raise OptionError("a session goes on in one way: one prompt, and n = 1")
    if n * len(prompts) > limits.choices:
        raise OptionError(f"{n * len(prompts):,} completions are too many for one request: at most {limits.choices}")
    options = body.get("stream_options", {})
    if not isinstance(options, dict):
        raise OptionError("stream_options must be an object")
    logprobs = field(body, "logprobs", 0, 0, limits.logprobs) if "logprobs" in body else None
    return Asked(
        prompts,
        n,
        field(body, "max_tokens", 16, 0, limits.max_tokens),
        draw_of(body, 1.0),
        stops_of(body.get("stop", []), limits),
        logprobs,
        flag(body, "echo"),
        seed_of(body),
        flag(body, "stream"),
        flag(given(options), "include_usage"),
        session,
        state,
    )


def stops_of(stop: object, limits: Limits) -> list[str]:
    stops = [stop] if isinstance(stop, str) else stop
    if not isinstance(stops, list) or not all(isinstance(each, str) for each in stops):
        raise OptionError("stop must be a string or a list of strings")
    if len(stops) > limits.stops or any(len(each) > 1000 for each in stops):
        raise OptionError(f"stop takes at most {limits.stops} strings of 1,000 characters")
    return stops


def prompts_of(prompt: object, served: Served, limits: Limits) -> list[Prompt]:
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


def _prompt(prompt: Any, served: Served) -> Prompt:
    if isinstance(prompt, str):
        return Prompt(text_ids(prompt, served), prompt)
    check_ids(prompt, served)
    begins = prompt[0] == BOS
    ids = prompt[1:] if begins else prompt
    return Prompt(ids, served.vocab.decode(ids), begins)


def text_ids(text: str, served: Served) -> list[int]:
    if SURROGATE.search(text):
        raise OptionError("the text has half of a surrogate pair in it, which is no character")
    return encode_prompt(served.vocab, text)


def check_ids(ids: Sequence[int], served: Served) -> None:
    K = len(served.vocab)
    if not all(0 <= k < K for k in ids):
        raise OptionError(f"tokens of {served.name} lie in 0 … {K - 1}")
