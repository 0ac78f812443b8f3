"""Request bodies: JSON of limited size, request models, and work that ends when its client disconnects."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, TypeVar

from anyio import create_task_group
from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, ValidationError, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive

from recur.errors import OptionError
from recur.serve.http.responses import TooLargeError
from recur.utils.types import JsonObject

LARGEST = 1e300
SURROGATE = re.compile("[\ud800-\udfff]")
EXPECTED = {
    "int_type": "an integer",
    "float_type": "a number",
    "string_type": "a string",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
}
"""Text for each of pydantic's type errors."""
JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", list: "list", dict: "object"}

Value = TypeVar("Value", int, float, str)
Result = TypeVar("Result")
Model = TypeVar("Model", bound="RequestModel")


async def read_json(request: Request, most: int) -> JsonObject:
    """Return the body of a request; refuse a body of more than `most` bytes or one that is no JSON object."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise OptionError("Content-Type must be application/json")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise TooLargeError(f"request body too large: at most {most:,} bytes")
    content = parse_json(body or b"{}")
    if not isinstance(content, dict):
        raise OptionError("the request body must be a JSON object in UTF-8")
    return content


def parse_json(content: bytes) -> object:
    """Parse JSON in UTF-8; return None for anything else."""
    try:
        return json.loads(content.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None


def _refuse_constant(name: str) -> NoReturn:
    """Refuse NaN and Infinity, which Python's parser reads although JSON has no such numbers."""
    raise ValueError(name)


class RequestModel(BaseModel):
    """Base of request bodies: strict types, unknown fields are ignored, and null means that a field is not given."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, body: Any) -> Any:
        return {name: value for name, value in body.items() if value is not None} if isinstance(body, dict) else body

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Describe optional fields as nullable, as `_drop_nulls` accepts them."""
        described = handler.resolve_ref_schema(handler(schema))
        required = described.get("required", [])
        for name, field in described["properties"].items():
            field.pop("title", None)
            if name not in required and "type" in field:
                field["type"] = [field["type"], "null"]
            elif name not in required and "anyOf" in field and {"type": "null"} not in field["anyOf"]:
                field["anyOf"].append({"type": "null"})
        return described


def validate(model: type[Model], body: object, limits: object = None) -> Model:
    """Return a request model made from a JSON value; raise OptionError with the first error, in one line.

    limits: object whose attributes are the bounds of fields that a server configures.
    """
    try:
        return model.model_validate(body, context=limits)
    except ValidationError as error:
        raise OptionError(_describe_error(error, model)) from None


def _describe_error(error: ValidationError, model: type[RequestModel]) -> str:
    first = error.errors(include_url=False)[0]
    kind, context, value = first["type"], first.get("ctx", {}), first["input"]
    name = ".".join(str(part) for part in first["loc"] if isinstance(part, str)) or "the request"
    if kind == "value_error":  # raised by a validator of ours, whose text is whole
        return str(context["error"])
    if kind == "extra_forbidden":
        owner, _, unknown = name.rpartition(".")
        fields = model.model_fields[owner].annotation if owner else model
        known = fields.model_fields if isinstance(fields, type) and issubclass(fields, BaseModel) else {}
        return f"unknown option {unknown[:100]!r}; there are {', '.join(known)}"
    if kind in EXPECTED:
        return f"{name} must be {EXPECTED[kind]}, got {JSON_TYPES.get(type(value), 'null')}"
    texts = {
        "missing": "is missing",
        "greater_than_equal": f"must be at least {_bound(context.get('ge'))}, got {str(value)[:40]}",
        "less_than_equal": f"must be at most {_bound(context.get('le'))}, got {str(value)[:40]}",
        "string_too_long": f"is too long: at most {context.get('max_length', 0):,} characters",
        "too_long": f"has too many items: at most {context.get('max_length', 0):,}",
        "string_unicode": "has half of a surrogate pair in it, which is no character",
    }
    return f"{name} {texts.get(kind, first['msg'])}"


def _bound(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)  # 2^63 must keep its digits


def get_field(request: JsonObject, name: str, default: Value, low: float = 0, high: float = 1e9) -> Value:
    """Return a field of the type of its default and within its bounds; the default if the field is missing."""
    kind = type(default)
    value = request.get(name, default)
    if type(value) is not kind and not (kind is float and type(value) is int):
        raise OptionError(f"{name} must be {kind.__name__}, got {type(value).__name__}")
    if isinstance(value, str):
        if not value.isascii() and SURROGATE.search(value):
            raise OptionError(f"{name} has half of a surrogate pair in it, which is no character")
    elif not low <= value <= high:  # compared before the conversion: a large int does not fit into a float
        raise OptionError(f"{name} must lie in {low:g} … {high:g}, got {str(value)[:40]}")
    checked: Value = kind(value)
    return checked


def finite_or_none(value: object) -> float | None:
    """Return a number that JSON can hold; None for anything else, such as infinity."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -LARGEST < value < LARGEST:
        return None
    return float(value)


async def run_while_connected(receive: Receive, work: Callable[[], Awaitable[Result]]) -> Result:
    """Return the result of `work`; cancel it and raise ClientDisconnect when the client disconnects first."""
    results: list[Result] = []
    failed: Exception | None = None
    async with create_task_group() as group:

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            group.cancel_scope.cancel()

        group.start_soon(watch)
        try:
            results.append(await work())
        except Exception as error:  # kept outside of the task group, which would wrap it in an ExceptionGroup
            failed = error
        group.cancel_scope.cancel()
    if failed is not None:
        raise failed
    if not results:
        raise ClientDisconnect
    return results[0]
