"""OpenAI's own client on the server, and what it gets beside the model itself."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import recur
from tests.serve.conftest import TOKEN, Serving

openai = pytest.importorskip("openai", reason="needs OpenAI's client: pip install openai")


@pytest.fixture(scope="module")
def client(served: Serving) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{served.address}/v1", api_key=TOKEN, max_retries=0)


@pytest.fixture(scope="module")
def chars(runs: Path) -> Any:
    return recur.load(runs / "chars", device="cpu")


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["chars", "words", "waves", "names"]
    assert client.models.retrieve("words").id == "words"
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        client.models.retrieve("nobody")


def test_greedy_text_is_the_models_own(client: openai.OpenAI, chars: Any) -> None:
    found = client.completions.create(model="chars", prompt="the net", max_tokens=30, temperature=0)
    assert found.choices[0].text == chars.generate("the net", 30, top_k=1)[0]
    assert found.choices[0].finish_reason == "length"
    assert (found.usage.prompt_tokens, found.usage.completion_tokens) == (7, 30)


def test_words_have_their_spaces(client: openai.OpenAI, runs: Path) -> None:
    model = recur.load(runs / "words", device="cpu")
    expected = model.generate("the network keeps a", 12, top_k=1)[0]
    made = client.completions.create(model="words", prompt="the network keeps a", max_tokens=12, temperature=0)
    assert made.choices[0].text == expected
    pieces = client.completions.create(
        model="words", prompt="the network keeps a", max_tokens=12, temperature=0, stream=True
    )
    assert "".join(piece.choices[0].text for piece in pieces) == expected


def test_a_stream_is_the_whole_in_pieces(client: openai.OpenAI) -> None:
    ask = {"model": "chars", "prompt": "a state", "max_tokens": 40, "seed": 7, "top_p": 0.9, "temperature": 0.8}
    whole = client.completions.create(**ask)
    pieces = list(client.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
    assert "".join(piece.choices[0].text for piece in pieces if piece.choices) == whole.choices[0].text
    assert pieces[-1].usage.completion_tokens == 40
    assert [p.choices[0].finish_reason for p in pieces if p.choices].count("length") == 1
    other = client.completions.create(**{**ask, "seed": 8})
    assert other.choices[0].text != whole.choices[0].text


def test_prompts_and_choices(client: openai.OpenAI) -> None:
    many = client.completions.create(model="chars", prompt=["the ", "a "], n=3, max_tokens=5, echo=True, seed=1)
    assert [choice.index for choice in many.choices] == list(range(6))
    assert [choice.text[:2] for choice in many.choices] == ["th"] * 3 + ["a "] * 3
    assert len({choice.text for choice in many.choices[:3]}) > 1  # drawn apart from each other


def test_tokens_are_the_text(served: Serving) -> None:
    ids = served.http.post("/tokenize", json={"prompt": "the net"}).json()["tokens"]
    ask = {"model": "chars", "max_tokens": 8, "temperature": 0}
    texts = [
        served.post("/v1/completions", prompt=prompt, **ask)["choices"][0]["text"]
        for prompt in ("the net", ids, [ids], [2, *ids])
    ]
    assert len(set(texts)) == 1
    assert served.post("/detokenize", tokens=ids)["prompt"] == "the net"
    served.post("/v1/completions", 400, prompt=[10**6], model="chars")
    served.post("/v1/completions", 400, prompt=[[]], model="chars")
    assert "not in the vocabulary" in served.post("/v1/completions", 400, prompt="ж", model="chars")["error"]["message"]


def test_stops_end_before_themselves(client: openai.OpenAI, chars: Any) -> None:
    expected = chars.generate("the", 60, top_k=1)[0]
    stop = expected[7:10]
    at = expected.index(stop)
    for stops in (stop, [stop, "zzz"], ["zzz", stop]):
        made = client.completions.create(model="chars", prompt="the", max_tokens=60, temperature=0, stop=stops)
        assert (made.choices[0].text, made.choices[0].finish_reason) == (expected[:at], "stop")
    pieces = client.completions.create(
        model="chars", prompt="the", max_tokens=60, temperature=0, stop=stop, stream=True, logprobs=1
    )
    pieces = list(pieces)
    assert "".join(piece.choices[0].text for piece in pieces) == expected[:at]
    tokens = [token for piece in pieces if piece.choices[0].logprobs for token in piece.choices[0].logprobs.tokens]
    assert "".join(tokens) == expected[:at]


def test_log_probabilities_are_those_of_the_model(client: openai.OpenAI, chars: Any) -> None:
    text = "the network keeps"
    made = client.completions.create(model="chars", prompt=text, max_tokens=0, echo=True, logprobs=2)
    found = made.choices[0].logprobs
    expected = chars.token_logprobs(text)
    assert found.tokens == [token for token, _ in expected]
    assert found.token_logprobs == pytest.approx([value for _, value in expected], abs=1e-5)
    assert found.text_offset == list(range(len(text)))
    assert all(len(top) in (2, 3) and max(top.values()) <= 0 for top in found.top_logprobs)
    assert made.choices[0].text == text
    more = client.completions.create(model="chars", prompt=text, max_tokens=1, echo=True, logprobs=1, temperature=0)
    assert more.choices[0].logprobs.token_logprobs[:-1] == pytest.approx(found.token_logprobs, abs=1e-9)


def test_draws_follow_the_distribution(client: openai.OpenAI, chars: Any) -> None:
    """2,000 first tokens beside their probabilities, by χ²: a wrong temperature or a shifted table fails."""
    p = chars.probabilities("the networ")
    weights = {token: value**2 for token, value in p.items() if token not in ("<unk>", "<pad>", "<bos>")}
    total = sum(weights.values())
    counts: dict[str, int] = {}
    for seed in range(8):
        made = client.completions.create(
            model="chars", prompt="the networ", n=250, max_tokens=1, temperature=0.5, seed=seed
        )
        for choice in made.choices:
            counts[choice.text] = counts.get(choice.text, 0) + 1
    large = [token for token, weight in weights.items() if 2000 * weight / total >= 5]
    chi = sum((counts.get(t, 0) - 2000 * weights[t] / total) ** 2 / (2000 * weights[t] / total) for t in large)
    freedom = len(large)
    assert freedom > 3
    assert chi < freedom + 5 * math.sqrt(2 * freedom)  # five deviations


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ({"max_tokens": -1}, "max_tokens must be at least 0, got -1"),
        ({"max_tokens": "5"}, "max_tokens must be an integer, got string"),
        ({"temperature": -0.1}, "temperature must be at least 0, got -0.1"),
        ({"n": 0}, "n must be at least 1, got 0"),
        ({"n": 200, "prompt": ["a", "t"]}, "too many for one request"),
        ({"logprobs": 100}, "logprobs must be at most 20, got 100"),
        ({"stop": [1]}, "stop must be"),
        ({"suffix": "x"}, "suffix is not supported"),
        ({"best_of": 2}, "best_of other than n"),
        ({"prompt": {"a": 1}}, "prompt must be"),
        ({"echo": 1}, "echo must be true or false"),
        ({"seed": 2**63}, "seed must be at most 9223372036854775807"),
        ({"session": "x", "state": "y"}, "give either session or state"),
        ({"model": "waves"}, "is of the task tag"),
        ({"prompt": "\ud800"}, "surrogate"),
    ],
)
def test_what_is_wrong_is_said_in_openais_shape(served: Serving, wrong: dict[str, object], line: str) -> None:
    answer = served.http.post(
        "/v1/completions",
        content=json.dumps({"model": "chars", **wrong}),
        headers={"Content-Type": "application/json"},
    )
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert list(error) == ["message", "type", "param", "code"]
    assert line in error["message"]
    assert error["type"] == "invalid_request_error"


def test_without_its_token_nothing_is_said(served: Serving) -> None:
    stranger = openai.OpenAI(base_url=f"{served.address}/v1", api_key="wrong", max_retries=0)
    with pytest.raises(openai.AuthenticationError, match="missing or wrong token"):
        stranger.models.list()
