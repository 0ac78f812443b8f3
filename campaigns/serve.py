"""Hostile requests and slow sockets on `recur serve`: no 500, no traceback, no hang, no neighbour that waits."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

from campaigns.campaign import Attempt
from campaigns.http import SLOW, Target, attack, server_of
from campaigns.requests import NAMES, Hostile, Views, hostile

TRIES = 20_000

DRAWN = ("temperature", "top_p", "top_k", "min_p", "seed")
VIEWS: Views = {
    "completions": (
        "model",
        "prompt",
        "max_tokens",
        "n",
        "stop",
        "logprobs",
        "echo",
        "stream",
        "session",
        "state",
        *DRAWN,
    ),
    "predict": ("model", "input", "inputs", "options"),
    "sessions": ("model", "input", "state", "n"),
    "step": ("input", "every", "probabilities", "steps", "session", "state", *DRAWN),
    "tokenize": ("model", "prompt"),
    "detokenize": ("model", "tokens"),
    "nothing": ("text",),
}
PATHS = [
    "/v1/completions", "/v1/completions", "/v1/completions", "/v1/predict", "/v1/sessions", "/v1/step", "/tokenize",
    "/detokenize", "/v1/models", "/metrics", "/health", "/openapi.json", "/tokenizer_info", "/v1/nothing", "/", "",
    "/v1/completions/", "//v1/models", "/v1/../metrics", "/v1/models/tiny",
]  # fmt: skip


class Served(Target):
    """A server of the run tiny."""

    asks = (b"GET /v1/models", b"POST /v1/completions")

    def hostile(self, dice: random.Random) -> Hostile:
        return hostile(dice, self.token, target, VIEWS)


def target(dice: random.Random) -> str:
    if dice.random() < 0.7:
        return dice.choice(PATHS)
    name = dice.choice([*NAMES, "0" * 24, "f" * 24])
    return dice.choice([f"/v1/sessions/{name}", f"/v1/sessions/{name}/step", f"/v1/sessions/{name}/state",
                        f"/v1/models/{name}", f"/tokenizer_info?model={name}"])  # fmt: skip


def attempts(seed: int, numbers: Iterable[int]) -> Iterator[Attempt]:
    with server_of("serve", "tiny", Served) as served:
        yield from attack(served, seed, numbers, SLOW)
