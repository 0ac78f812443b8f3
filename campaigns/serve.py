"""Hostile requests and slow sockets on `recur serve`: no 500, no traceback, no hang, no neighbour that waits."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections.abc import Iterable, Iterator

from campaigns.campaign import Attempt
from campaigns.http import HANG, SLOW, TEXT, Target, attack, server_of
from campaigns.requests import NAMES, Hostile, Views, hostile

TRIES = 20_000
CROSSED = 10
"""One attempt of so many uses a session with another model."""
EXPENSIVE = 200
"""One attempt of so many asks for as large an answer as is accepted."""
HEALTHY = 1.0
"""Seconds in which /health is answered, whatever else was accepted."""
OTHERS = {
    "same": TEXT.translate(str.maketrans("netwo", "NETWO")),
    "more": TEXT + "0123456789 ABC?!\n" * 9,
}
"""Texts of other models: with as many tokens as tiny, and with more."""
SHARED = "a risk"
"""Text whose letters all of these models have read."""
LARGEST: list[dict[str, object]] = [
    {"n": 256, "max_tokens": 4096},
    {"n": 24, "max_tokens": 4096, "logprobs": 20},
    {"n": 24, "max_tokens": 4096, "logprobs": 20, "stream": True},
    {"n": 8, "prompt": "the word " * 1300, "echo": True, "logprobs": 20, "max_tokens": 0},
]
"""Completions that are hardly accepted."""

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
    """A server of the run tiny and, where they are served, of OTHERS."""

    uploads = False

    asks = (b"GET /v1/models", b"POST /v1/completions")

    def hostile(self, dice: random.Random) -> Hostile:
        return hostile(dice, self.token, target, VIEWS)

    def special(self, dice: random.Random, number: int) -> Attempt | None:
        if self.process is not None and number % CROSSED == 1:  # else it serves one model
            return Attempt(number, "a session with another model", crossed(self, dice))
        if self.process is not None and number % EXPENSIVE == 2:
            return Attempt(number, "an expensive request", expensive(self, dice))
        return super().special(dice, number)


def target(dice: random.Random) -> str:
    if dice.random() < 0.7:
        return dice.choice(PATHS)
    name = dice.choice([*NAMES, "0" * 24, "f" * 24])
    return dice.choice([f"/v1/sessions/{name}", f"/v1/sessions/{name}/step", f"/v1/sessions/{name}/state",
                        f"/v1/models/{name}", f"/tokenizer_info?model={name}"])  # fmt: skip


def ask(target: Target, method: str, path: str, body: object = None) -> tuple[int, bytes]:
    line = http.client.HTTPConnection("127.0.0.1", target.port, timeout=20 * HANG)
    headers = {"Authorization": f"Bearer {target.token}", "Content-Type": "application/json"}
    try:
        line.request(method, path, None if body is None else json.dumps(body), headers)
        answer = line.getresponse()
        return answer.status, answer.read()
    finally:
        line.close()


def crossed(target: Target, dice: random.Random) -> str | None:
    """Use a session or a state of one model with another: refused in one line, and nothing of it is read."""
    names = ["tiny", *OTHERS]
    own, other = dice.sample(names, 2)
    status, content = ask(target, "POST", "/v1/sessions", {"model": own, "input": SHARED})
    if status != 201:
        return f"a session is not begun: {content[:80]!r}"
    session = json.loads(content)["id"]
    where = f"/v1/sessions/{session}"
    carried = {"session": session}
    if dice.random() < 0.5:
        carried = {"state": json.loads(ask(target, "GET", f"{where}/state")[1])["state"]}
    tokens = [dice.randrange(60) for _ in range(dice.choice([1, 2, 40]))]
    body = {"model": other, "prompt": dice.choice([tokens, "the word"]), "max_tokens": 5, **carried}
    status, content = ask(target, "POST", "/v1/completions", body)
    if status != 400 or b"belongs to the model" not in content:
        return f"a session of {own} with {other}: {status} {content[:80]!r}"
    steps = json.loads(ask(target, "GET", where)[1])["steps"]
    status, content = ask(target, "POST", "/v1/completions", {"prompt": "a", "max_tokens": 2, "session": session})
    ask(target, "DELETE", where)
    if status != 200 or json.loads(content)["model"] != own:
        return f"a session of {own} by itself: {status} {content[:80]!r}"
    return None if steps == len(SHARED) else f"{steps} inputs were read by a session that was refused"


def expensive(target: Target, dice: random.Random) -> str | None:
    """Ask for a large answer: /health is answered beside it, and the answer is whole."""
    found: list[tuple[int, bytes]] = []
    body: dict[str, object] = {"model": "tiny", **dice.choice(LARGEST)}
    asking = threading.Thread(target=lambda: found.append(ask(target, "POST", "/v1/completions", body)))
    asking.start()
    longest = 0.0
    while asking.is_alive():
        begun = time.monotonic()
        status, _ = ask(target, "GET", "/health")
        longest = max(longest, time.monotonic() - begun)
        if status != 200:
            return f"/health is answered by {status}"
        time.sleep(0.02)
    if not found:
        return "no answer came"
    status, content = found[0]
    if status == 200 and "stream" not in body:
        json.loads(content)
    elif status == 200 and not content.endswith(b"data: [DONE]\n\n"):
        return "a stream has no end"
    elif status not in (200, 503):
        return f"{status}: {content[:80]!r}"
    return None if longest <= HEALTHY else f"/health waited {longest:.1f} s beside {str(body)[:60]}"


def attempts(seed: int, numbers: Iterable[int]) -> Iterator[Attempt]:
    with server_of("serve", "tiny", Served, **OTHERS) as served:
        yield from attack(served, seed, numbers, SLOW)
