"""What a client may ask for at most. Every one of them is refused in one line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from recur.serve.predict import (MAX_INPUTS, OPTIONS)
from recur.utils.types import JsonObject

@dataclass(frozen=True)
class Limits:
    body: int = 1 << 20
    """Bytes of a request, and of a message on a WebSocket."""
    requests: int = 1024
    """Requests at once; one more is told to try again."""
    rate: float = 0.0
    """Requests a second of one token, over any ten seconds; 0 for no limit."""
    seconds: float = 600.0
    """For one request."""
    max_tokens: int = 4096
    """Written behind one prompt."""
    prompt_tokens: int = 1 << 18
    """Read by one request."""
    choices: int = 256
    """Prompts times n of one request."""
    rows: int = 4096
    """Prompts that are under way at once, beside the sessions'."""
    sessions: int = 10_000
    """In memory."""
    stored: int = 1_000_000
    """On disk."""
    idle: float = 1800.0
    """Seconds after which a session that nobody uses leaves memory: to disk, or for good."""
    keep: float = 86_400.0
    """Seconds after which one on disk is gone, and a token of one says nothing."""
    steps: int = 4096
    """Sessions stepped by one message, and inputs of one of them."""
    unread: int = 64
    """Pieces that a client may leave unread before its stream is passed over."""
    stops: int = 16
    """Strings at which to stop; 4 of OpenAI's, and lm-eval gives more."""
    logprobs: int = 20
    values: int = 1 << 21
    """Values of one answer: tokens with their log probabilities, or outputs of steps with their probabilities."""
    values_at_once: int = 1 << 24
    """Values of all answers that are held in memory until they are whole; about 30 bytes each."""
    grace: float = 30.0
    """Seconds that running requests have once the server is to stop."""


NAMES = {int: "integer", float: "number", str: "string", bool: "boolean"}
ERRORS = {
    400: "what is asked for cannot be",
    401: "the token is missing or wrong",
    403: "a page of another site asks",
    404: "there is no such thing",
    405: "the route has no such method",
    408: "the request was not whole in time",
    409: "the session is in use",
    413: "the body is too large",
    429: "too many requests",
    431: "the headers are too large",
    503: "too much is under way, or the server is about to stop",
}


def nullable(kind: str, **more: Any) -> JsonObject:
    return {"type": [kind, "null"], **more}


def an_object(properties: JsonObject, required: tuple[str, ...] = (), **more: Any) -> JsonObject:
    return {"type": "object", "properties": properties, **({"required": list(required)} if required else {}), **more}


def a_list(items: JsonObject, **more: Any) -> JsonObject:
    return {"type": "array", "items": items, **more}


def document(limits: Limits) -> JsonObject:
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "recur serve",
            "version": "1",
            "description": "Recurrent networks for many sessions at once. Texts by OpenAI's conventions. WebSockets at "
            "/v1/step and /v1/sessions/{session}/step take and answer the same messages.",
        },
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": schemas(limits),
        },
        "security": [{"token": []}],
        "paths": paths(),
    }


def ref(name: str) -> JsonObject:
    return {"$ref": f"#/components/schemas/{name}"}


def route(
    about: str, answer: JsonObject, body: JsonObject | None = None, *, status: int = 200, named: str = "", **more: Any
) -> JsonObject:
    """An operation. Errors are OpenAI's, and all may happen anywhere."""
    found: JsonObject = {"summary": about, "operationId": about.lower().replace(" ", "-").replace("'", "")}
    if body is not None:
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    if named:
        where = {"name": named, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        found["parameters"] = [where]
    content = more.pop("content", {"application/json": {"schema": answer}})
    responses: JsonObject = {str(status): {"description": about, "content": content}}
    for code, text in ERRORS.items():
        responses[str(code)] = {"description": text, "content": {"application/json": {"schema": ref("Error")}}}
    return found | {"responses": responses} | more


def paths() -> JsonObject:
    listed = an_object({"object": {"const": "list"}, "data": a_list(ref("Model"))}, ("object", "data"))
    some = an_object({"object": {"const": "list"}, "data": a_list(ref("Session"))}, ("object", "data"))
    health = an_object({"status": {"enum": ["ok", "stopping"]}}, ("status",))
    text = {"text/plain": {"schema": {"type": "string"}}}
    both = {
        "application/json": {"schema": ref("Completion")},
        "text/event-stream": {"schema": {"type": "string"}},
    }
    found: JsonObject = {
        "/health": {"get": route("Whether it is there", health, security=[])},
        "/metrics": {"get": route("Prometheus's text", {}, content=text)},
        "/openapi.json": {"get": route("This document", {"type": "object"})},
        "/v1/models": {"get": route("The models", listed)},
        "/v1/models/{model}": {"get": route("A model", ref("Model"), named="model")},
        "/v1/completions": {"post": route("Complete a text", {}, ref("CompletionRequest"), content=both)},
        "/v1/predict": {"post": route("Predict", ref("Predictions"), ref("PredictRequest"))},
        "/v1/sessions": {
            "post": route("Begin a session", {"anyOf": [ref("Session"), some]}, ref("SessionRequest"), status=201)
        },
        "/v1/sessions/{session}": {
            "get": route("A session", ref("Session"), named="session"),
            "delete": route("End a session", {"type": "object"}, named="session"),
        },
        "/v1/sessions/{session}/state": {"get": route("A session's state", ref("Session"), named="session")},
        "/v1/sessions/{session}/step": {
            "post": route("Step a session", ref("Stepped"), ref("StepRequest"), named="session")
        },
        "/v1/step": {"post": route("Step many sessions", {"type": "object"}, ref("StepsRequest"))},
        "/tokenizer_info": {"get": route("The tokenizer", {"type": "object"})},
        "/tokenize": {"post": route("Tokens of a text", {"type": "object"}, ref("TokenizeRequest"))},
        "/detokenize": {"post": route("The text of tokens", {"type": "object"}, ref("DetokenizeRequest"))},
    }
    stopping = {"description": "it is about to stop", "content": {"application/json": {"schema": health}}}
    found["/health"]["get"]["responses"]["503"] = stopping
    return found


def drawing(temperature: float) -> JsonObject:
    return {
        "temperature": nullable("number", minimum=0, maximum=100, default=temperature),
        "top_p": nullable("number", minimum=0, maximum=1, default=1),
        "top_k": nullable("integer", minimum=0, maximum=10**9, default=0),
        "min_p": nullable("number", minimum=0, maximum=1, default=0),
        "seed": nullable("integer", minimum=-(2**63), maximum=2**63 - 1),
    }


def schemas(limits: Limits) -> JsonObject:
    word = nullable("string", maxLength=100)
    token = {"type": "integer", "minimum": 0}
    state = nullable("string", maxLength=1 << 24)
    prompt = {
        "anyOf": [
            {"type": "string"},
            a_list({"type": "string"}, minItems=1, maxItems=limits.choices),
            a_list(token, minItems=1),
            a_list(a_list(token, minItems=1), minItems=1, maxItems=limits.choices),
            {"type": "null"},
        ]
    }
    stops = a_list({"type": "string", "maxLength": 1000}, maxItems=limits.stops)
    numbers = {"type": "number"}
    read = {
        "anyOf": [{"type": "string"}, numbers, a_list(numbers), a_list(a_list(numbers))],
        "description": "a text, a token or tokens; numbers of one step, or steps of numbers",
    }
    step = {"input": read, "every": nullable("boolean"), "probabilities": nullable("boolean")} | drawing(0)
    each = {
        "type": "object",
        "description": "as StepRequest, with the session's id in `session`, or a `state`; what is wrong with one is "
        "said in its place",
    }
    columns = {
        "sessions": a_list({"type": "string"}, maxItems=limits.steps, description="ids"),
        "inputs": a_list(read, maxItems=limits.steps, description="one for each session"),
    } | drawing(0)
    known = {"id": {"type": "string"}, "object": {"type": "string"}, "model": {"type": "string"}}
    completion = {
        "prompt": prompt,
        "model": word,
        "max_tokens": nullable("integer", minimum=0, maximum=limits.max_tokens, default=16),
        "n": nullable("integer", minimum=1, maximum=limits.choices, default=1),
        "stop": {"anyOf": [{"type": "string", "maxLength": 1000}, stops, {"type": "null"}]},
        "logprobs": nullable("integer", minimum=0, maximum=limits.logprobs),
        "echo": nullable("boolean"),
        "stream": nullable("boolean"),
        "stream_options": nullable("object", properties={"include_usage": nullable("boolean")}),
        "session": {**word, "description": "a session's id: the prompt goes on from what it has read"},
        "state": {**state, "description": "the same of a state in the client's hands; a newer one comes back"},
    }
    options = {name: nullable(NAMES[kind], **_bounds(low, high)) for name, (kind, low, high) in OPTIONS.items()}
    error = an_object(
        {
            "message": {"type": "string"},
            "type": {"type": "string"},
            "param": nullable("string"),
            "code": nullable("string"),
        },
        ("message", "type", "param", "code"),
    )
    return {
        "Error": an_object({"error": error}, ("error",)),
        "Model": an_object(known | {"task": {"type": "string"}}, ("id", "object", "task")),
        "CompletionRequest": an_object(completion | drawing(1)),
        "Completion": an_object(
            known | {"choices": a_list({"type": "object"}), "usage": {"type": "object"}}, ("id", "choices", "usage")
        ),
        "PredictRequest": an_object(
            {
                "model": word,
                "input": {"description": "a text, a table, or an array of numbers"},
                "inputs": {"type": ["array", "null"], "maxItems": MAX_INPUTS},
                "options": nullable("object", properties=options, additionalProperties=False),
            }
        ),
        "Predictions": an_object({"data": a_list({"type": "object"}), "model": {"type": "string"}}, ("data", "model")),
        "SessionRequest": an_object(
            {
                "model": word,
                "input": read,
                "state": state,
                "n": nullable("integer", minimum=1, maximum=min(1000, limits.sessions)),
            }
        ),
        "Session": an_object(known | {"steps": {"type": "integer"}}, ("id", "object", "model", "steps")),
        "StepRequest": an_object(step, ("input",)),
        "StepsRequest": {
            "anyOf": [
                an_object({"steps": a_list(each, maxItems=limits.steps)}, ("steps",)),
                an_object(columns, ("sessions", "inputs")),
            ]
        },
        "Stepped": an_object({"session": word, "outputs": a_list({"type": "object"})}, ("outputs",)),
        "TokenizeRequest": an_object({"prompt": nullable("string"), "model": word}),
        "DetokenizeRequest": an_object({"tokens": {"type": ["array", "null"], "items": token}, "model": word}),
    }


def _bounds(low: float, high: float) -> JsonObject:
    return {"minimum": low, "maximum": high} if high else {}
