"""Limits of the server, models of its requests, and the OpenAPI document that is derived from both.

Each rule about a request is written once, in its model: pydantic checks requests by it and describes it as JSON Schema.
Bounds that the command line can change are names of fields of `Limits` (AtMost), which are looked up at each request.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    ConfigDict,
    FailFast,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue, models_json_schema
from pydantic_core import CoreSchema, core_schema

from recur.errors import OptionError
from recur.serve.http import SURROGATE, NullableRequestModel
from recur.utils.types import JsonObject

MAX_INPUTS = 1024
"""Inputs of one request for predictions."""
MAX_STATE_CHARS = 1 << 24
"""Characters of a state that a client holds."""
UNSUPPORTED: JsonObject = {"suffix": None, "frequency_penalty": 0, "presence_penalty": 0, "logit_bias": {}}
"""OpenAI's options that recur does not have, with the values that change nothing."""


@dataclass(frozen=True)
class Limits:
    """Most that clients may request; a request beyond a limit is refused with one line."""

    body: int = 1 << 20
    """Bytes of a request, and of a message on a WebSocket."""
    requests: int = 1024
    """Requests at once; the next one is refused with 503."""
    rate: float = 0.0
    """Requests per second and token, averaged over ten seconds; 0 for no limit."""
    seconds: float = 600.0
    """Seconds for one request."""
    max_tokens: int = 4096
    """Tokens generated for one prompt."""
    prompt_tokens: int = 1 << 18
    """Tokens read by one request."""
    choices: int = 256
    """Prompts times n of one request."""
    rows: int = 4096
    """Prompts in progress at once, in addition to sessions."""
    sessions: int = 10_000
    """Sessions in memory."""
    stored: int = 1_000_000
    """Sessions on disk."""
    idle: float = 1800.0
    """Seconds without use after which a session leaves memory: to disk, or for good."""
    keep: float = 86_400.0
    """Seconds after which a session on disk is deleted, and a state token expires."""
    steps: int = 4096
    """Sessions stepped by one message, and inputs of one of them."""
    unread: int = 64
    """Chunks that a client may leave unread before its stream is paused."""
    stops: int = 16
    """Stop strings; OpenAI allows 4, and lm-eval sends more."""
    logprobs: int = 20
    """Likeliest tokens reported for each token."""
    values: int = 1 << 21
    """Values of one response: tokens with their log probabilities, or outputs of steps with their probabilities."""
    values_at_once: int = 1 << 24
    """Values of all responses that are held in memory until they are complete; about 30 bytes each."""
    grace: float = 30.0
    """Seconds that running requests have to finish once the server stops."""

    @property
    def new_sessions(self) -> int:
        """Sessions that one request creates."""
        return min(1000, self.sessions)


@dataclass(frozen=True)
class AtMost:
    """Upper bound of a number, or of the length of a list, that a field of Limits sets."""

    limit: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_after_validator_function(self._check, handler(source))

    def _check(self, value: Any, info: Any) -> Any:
        most = getattr(info.context, self.limit)
        if isinstance(value, list) and len(value) > most:
            raise OptionError(f"{len(value):,} {info.field_name} are too many for one message: at most {most:,}")
        if not isinstance(value, list) and value > most:
            raise OptionError(f"{info.field_name} must be at most {most}, got {str(value)[:40]}")
        return value

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        described = handler(schema)
        described["maxItems" if described.get("type") == "array" else "maximum"] = self.limit
        return described


# Fields ---------------------------------------------------------------------------------------------------------------


def _check_prompt(prompt: Any, info: ValidationInfo) -> list[str | list[int]]:
    """Return the prompts as a list; each of them is a text or the tokens of a text.

    A union type would collect an error per token and alternative; a prompt may have 2^18 tokens.
    """
    prompts = [prompt] if isinstance(prompt, str) or _is_tokens(prompt) else prompt
    if not isinstance(prompts, list) or not all(isinstance(one, str) or _is_tokens(one) for one in prompts):
        raise OptionError("prompt must be a string, a list of strings, a list of tokens or a list of those")
    most = getattr(info.context, "choices", 0)
    if not prompts or len(prompts) > most:
        raise OptionError(f"prompt must hold 1 to {most} texts, got {len(prompts)}")
    if any(isinstance(one, str) and SURROGATE.search(one) for one in prompts):
        raise OptionError("prompt has half of a surrogate pair in it, which is no character")
    return prompts


def _is_tokens(prompt: object) -> bool:
    return isinstance(prompt, list) and bool(prompt) and all(type(k) is int for k in prompt)


def _check_stop(stop: Any, info: ValidationInfo) -> list[str]:
    stops = [stop] if isinstance(stop, str) else stop
    if not isinstance(stops, list) or not all(isinstance(each, str) for each in stops):
        raise OptionError("stop must be a string or a list of strings")
    most = getattr(info.context, "stops", 0)
    if len(stops) > most or any(len(each) > 1000 for each in stops):
        raise OptionError(f"stop takes at most {most} strings of 1,000 characters")
    return stops


def _array(items: JsonObject, **more: Any) -> JsonObject:
    return {"type": "array", "items": items, **more}


_STRING, _TOKEN, _NUMBER = {"type": "string"}, {"type": "integer", "minimum": 0}, {"type": "number"}
_STOP = {"type": "string", "maxLength": 1000}
_TEXTS, _TOKENS = _array(_STRING, minItems=1, maxItems="choices"), _array(_TOKEN, minItems=1)
_TOKEN_LISTS = _array(_TOKENS, minItems=1, maxItems="choices")

Name = Annotated[str, Field(max_length=100)]
State = Annotated[str, Field(max_length=MAX_STATE_CHARS)]
Seed = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Prompts = Annotated[
    Any, AfterValidator(_check_prompt), WithJsonSchema({"anyOf": [_STRING, _TEXTS, _TOKENS, _TOKEN_LISTS]})
]
Stops = Annotated[Any, AfterValidator(_check_stop), WithJsonSchema({"anyOf": [_STOP, _array(_STOP, maxItems="stops")]})]
Input = Annotated[
    Any,
    WithJsonSchema(
        {
            "anyOf": [_STRING, _NUMBER, _array(_NUMBER), _array(_array(_NUMBER))],
            "description": "a text, a token or tokens; numbers of one step, or steps of numbers",
        }
    ),
]
"""Input of a session; its model decides which of these it reads (models.parse_inputs)."""


# Requests -------------------------------------------------------------------------------------------------------------


class SamplingRequest(NullableRequestModel):
    """Sampling options of completions and steps; temperature 0 takes the likeliest token."""

    temperature: Annotated[float, Field(ge=0, le=100)] = 0.0
    top_k: Annotated[int, Field(ge=0, le=10**9)] = 0
    top_p: Fraction = 1.0
    min_p: Fraction = 0.0
    seed: Seed | None = None


class StreamOptions(NullableRequestModel):
    """Options of a stream."""

    include_usage: bool = False


class CompletionRequest(SamplingRequest):
    """Body of /v1/completions: OpenAI's fields, and `session`, `state`, `top_k`, `min_p`."""

    prompt: Prompts = Field("", validate_default=True)
    model: Name | None = None
    max_tokens: Annotated[int, Field(ge=0), AtMost("max_tokens")] = 16
    temperature: Annotated[float, Field(ge=0, le=100)] = 1.0
    n: Annotated[int, Field(ge=1), AtMost("choices")] = 1
    best_of: Annotated[int, Field(ge=1), AtMost("choices")] | None = None
    stop: Stops = Field([], validate_default=True)
    logprobs: Annotated[int, Field(ge=0), AtMost("logprobs")] | None = None
    echo: bool = False
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    session: Name | None = Field(None, description="id of a session; the prompt continues what the session has read")
    state: State | None = Field(None, description="state that the client holds; the response has the next state")

    @model_validator(mode="before")
    @classmethod
    def _refuse_unsupported(cls, body: Any) -> Any:
        for name, unused in UNSUPPORTED.items() if isinstance(body, dict) else ():
            if body.get(name) is not None and body[name] != unused:
                raise OptionError(f"{name} is not supported")
        return body

    @model_validator(mode="after")
    def _check_counts(self) -> CompletionRequest:
        if self.best_of is not None and self.best_of != self.n:
            raise OptionError("best_of other than n is not supported")
        if self.session is not None and self.state is not None:
            raise OptionError("give either session or state, not both")
        if self.resumes and (self.n > 1 or len(self.prompt) > 1):
            raise OptionError("a session or state takes one prompt and n = 1")
        return self

    @property
    def scores_prompt(self) -> bool:
        """Whether the response has log probabilities of the prompt's tokens."""
        return self.echo and self.logprobs is not None

    @property
    def resumes(self) -> bool:
        """Whether the request continues a session or a state."""
        return self.session is not None or self.state is not None


class PredictOptions(NullableRequestModel):
    """Options of predictors that a client may set; none of them names a file."""

    model_config = ConfigDict(extra="forbid")

    length: Annotated[int, Field(ge=0, le=4096)] | None = None
    samples: Annotated[int, Field(ge=1, le=64)] | None = None
    width: Annotated[int, Field(ge=0, le=64)] | None = None
    beam: Annotated[int, Field(ge=1, le=64)] | None = None
    nbest: Annotated[int, Field(ge=1, le=64)] | None = None
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] | None = None
    temperature: Annotated[float, Field(ge=0.01, le=100)] | None = None
    top_k: Annotated[int, Field(ge=0, le=10**9)] | None = None
    top_p: Annotated[float, Field(ge=1e-9, le=1)] | None = None
    min_p: Fraction | None = None
    stop: Annotated[str, Field(max_length=1000)] | None = None
    marginals: bool | None = None
    on_bad_rows: Literal["error", "skip", "warn"] | None = None
    """An input that cannot be read, such as an empty text: refuse the request, leave the input out, or (by default)
    answer it with `error` and without an output."""
    anomalies: bool | None = None


class PredictRequest(NullableRequestModel):
    """Body of /v1/predict: one input, or a list of inputs."""

    model: Name | None = None
    input: Annotated[Any, WithJsonSchema({"description": "a text, a table, or an array of numbers"})] = None
    inputs: Annotated[list[Any], Field(max_length=MAX_INPUTS)] | None = None
    options: PredictOptions = PredictOptions()

    @model_validator(mode="after")
    def _check_one(self) -> PredictRequest:
        if (self.input is None) == (self.inputs is None):
            raise OptionError("give input, one text, table or array of numbers; or inputs, a list of them")
        return self


class SessionRequest(NullableRequestModel):
    """Body of POST /v1/sessions: one session, or `n` of them, that read `input`; or one that starts from a state."""

    model: Name | None = None
    input: Input = None
    state: State | None = None
    n: Annotated[int, Field(ge=1), AtMost("new_sessions")] | None = None

    @model_validator(mode="after")
    def _check_state(self) -> SessionRequest:
        if self.state is not None and (self.n or 1) > 1:
            raise OptionError("a state starts one session: n = 1")
        return self


class StepRequest(SamplingRequest):
    """Step of one session, by its id, or of a state."""

    input: Input
    every: bool = Field(True, description="report the output after every input, not only after the last")
    probabilities: bool = Field(False, description="report the probabilities of all outputs")
    model: Name | None = None
    session: Name | None = None
    state: State | None = None

    @model_validator(mode="before")
    @classmethod
    def _require_input(cls, body: Any) -> Any:
        if isinstance(body, dict) and body.get("input") is None:
            raise OptionError("input is missing: a token, a text, or numbers")
        return body


class StepListRequest(NullableRequestModel):
    """Body of /v1/step: a list of steps, each checked by itself so that an error is reported in its place."""

    steps: Annotated[list[dict[str, Any]], FailFast(), AtMost("steps")] = Field(
        description="items are StepRequest objects with `session` or `state`; errors are reported per item"
    )


class StepColumnsRequest(SamplingRequest):
    """Body of /v1/step in columns: one input for each of many sessions."""

    model: Name | None = None
    sessions: Annotated[list[Any], AtMost("steps")] = Field(description="ids; errors are reported per session")
    inputs: Annotated[list[Any], AtMost("steps")] = Field(description="one for each session")

    @field_validator("inputs")
    @classmethod
    def _check_length(cls, inputs: list[Any], info: ValidationInfo) -> list[Any]:
        if len(inputs) != len(info.data.get("sessions", inputs)):
            raise OptionError("sessions and inputs must be two lists of one length: ids, and an input each")
        return inputs


class TokenizeRequest(NullableRequestModel):
    """Body of /tokenize."""

    prompt: str = ""
    model: Name | None = None


class DetokenizeRequest(NullableRequestModel):
    """Body of /detokenize."""

    tokens: Annotated[list[Annotated[int, Field(ge=0)]], FailFast()] = []
    model: Name | None = None


REQUESTS: tuple[type[NullableRequestModel], ...] = (
    CompletionRequest,
    PredictRequest,
    SessionRequest,
    StepRequest,
    StepListRequest,
    StepColumnsRequest,
    TokenizeRequest,
    DetokenizeRequest,
)


# The OpenAPI document -------------------------------------------------------------------------------------------------

ERRORS = (400, 401, 403, 404, 405, 408, 409, 413, 429, 431, 503)
"""Status codes of errors that every route may return, in OpenAI's form."""


def openapi_document(limits: Limits) -> JsonObject:
    """Return the OpenAPI document of a server with these limits."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "recur serve",
            "version": "1",
            "description": "Recurrent networks for many sessions at once. Completions follow OpenAI's API. WebSockets "
            "at /v1/step and /v1/sessions/{session}/step take and return the same messages.",
        },
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": _request_schemas(limits) | _response_schemas(),
        },
        "security": [{"token": []}],
        "paths": _paths(),
    }


def _request_schemas(limits: Limits) -> JsonObject:
    template = "#/components/schemas/{model}"
    _, described = models_json_schema([(model, "validation") for model in REQUESTS], ref_template=template)

    def fill(schema: JsonObject) -> JsonObject:
        """Replace names of limits, which AtMost wrote in place of numbers, by their values."""
        names = {key: schema[key] for key in ("maximum", "maxItems") if isinstance(schema.get(key), str)}
        return schema | {key: getattr(limits, name) for key, name in names.items()}

    found: JsonObject = json.loads(json.dumps(described["$defs"]), object_hook=fill)
    return found


def _object(properties: JsonObject, *required: str) -> JsonObject:
    return {"type": "object", "properties": properties, **({"required": list(required)} if required else {})}


def _ref(name: str) -> JsonObject:
    return {"$ref": f"#/components/schemas/{name}"}


def _response_schemas() -> JsonObject:
    objects = _array({"type": "object"})
    known = {"id": _STRING, "object": _STRING, "model": _STRING}
    nullable = {"type": ["string", "null"]}
    error = _object(
        {"message": _STRING, "type": _STRING, "param": nullable, "code": nullable}, "message", "type", "param", "code"
    )
    return {
        "Error": _object({"error": error}, "error"),
        "Model": _object(known | {"task": _STRING}, "id", "object", "task"),
        "Completion": _object(known | {"choices": objects, "usage": {"type": "object"}}, "id", "choices", "usage"),
        "Predictions": _object({"data": objects, "model": _STRING}, "data", "model"),
        "Session": _object(known | {"steps": {"type": "integer"}}, "id", "object", "model", "steps"),
        "StepResult": _object({"session": nullable, "outputs": objects}, "outputs"),
    }


def _route(
    summary: str, answer: JsonObject, body: JsonObject | None = None, *, status: int = 200, named: str = "", **more: Any
) -> JsonObject:
    """Return an operation. Every route can return each of the errors, in OpenAI's form."""
    found: JsonObject = {"summary": summary, "operationId": summary.lower().replace(" ", "-").replace("'", "")}
    if body is not None:
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    if named:
        where = {"name": named, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        found["parameters"] = [where]
    content = more.pop("content", {"application/json": {"schema": answer}})
    responses: JsonObject = {str(status): {"description": summary, "content": content}}
    for code in ERRORS:
        content = {"application/json": {"schema": _ref("Error")}}
        responses[str(code)] = {"description": HTTPStatus(code).phrase, "content": content}
    return found | {"responses": responses} | more


def _paths() -> JsonObject:
    models = _object({"object": {"const": "list"}, "data": _array(_ref("Model"))}, "object", "data")
    sessions = _object({"object": {"const": "list"}, "data": _array(_ref("Session"))}, "object", "data")
    health = _object({"status": {"enum": ["ok", "stopping"]}}, "status")
    text = {"text/plain": {"schema": _STRING}}
    completion = {"application/json": {"schema": _ref("Completion")}, "text/event-stream": {"schema": _STRING}}
    begun = {"anyOf": [_ref("Session"), sessions]}
    steps = {"anyOf": [_ref("StepListRequest"), _ref("StepColumnsRequest")]}
    anything = {"type": "object"}
    found: JsonObject = {
        "/health": {"get": _route("Server health", health, security=[])},
        "/metrics": {"get": _route("Prometheus metrics", {}, content=text)},
        "/openapi.json": {"get": _route("OpenAPI document", anything)},
        "/v1/models": {"get": _route("List models", models)},
        "/v1/models/{model}": {"get": _route("Retrieve a model", _ref("Model"), named="model")},
        "/v1/completions": {"post": _route("Complete a text", {}, _ref("CompletionRequest"), content=completion)},
        "/v1/predict": {"post": _route("Predict", _ref("Predictions"), _ref("PredictRequest"))},
        "/v1/sessions": {"post": _route("Create a session", begun, _ref("SessionRequest"), status=201)},
        "/v1/sessions/{session}": {
            "get": _route("Retrieve a session", _ref("Session"), named="session"),
            "delete": _route("Delete a session", anything, named="session"),
        },
        "/v1/sessions/{session}/state": {"get": _route("Retrieve a session's state", _ref("Session"), named="session")},
        "/v1/sessions/{session}/step": {
            "post": _route("Step a session", _ref("StepResult"), _ref("StepRequest"), named="session")
        },
        "/v1/step": {"post": _route("Step many sessions", anything, steps)},
        "/tokenizer_info": {"get": _route("Tokenizer information", anything)},
        "/tokenize": {"post": _route("Tokenize a text", anything, _ref("TokenizeRequest"))},
        "/detokenize": {"post": _route("Detokenize tokens", anything, _ref("DetokenizeRequest"))},
    }
    stopping = {"description": "the server is stopping", "content": {"application/json": {"schema": health}}}
    found["/health"]["get"]["responses"]["503"] = stopping
    return found
