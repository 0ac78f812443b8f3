"""Requests without sessions: /v1/predict of any task, and the tokenizer.

Inputs of predictions are in the request. The name of a file is refused: clients must not read files of the server.
/tokenize, /detokenize and /tokenizer_info are those that lm-eval's remote tokenizer and vLLM's clients use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from anyio import to_thread

from recur.data.text import BOS
from recur.errors import OptionError, RecurError
from recur.serve.http.requests import validate
from recur.serve.http.responses import BusyError
from recur.serve.models import ModelVersions, ServedModel
from recur.serve.requests import check_ids
from recur.serve.schemas import DetokenizeRequest, Limits, PredictRequest, TokenizeRequest
from recur.tasks.common.predictor import NamedLines, read_tables
from recur.utils.types import JsonObject

if TYPE_CHECKING:
    from recur.serve.registry import Registry


def language_model(models: ModelVersions, name: str | None) -> ServedModel:
    """Return the language model of a name; the first language model if no name is given."""
    first = next((each for each in models if each.writes), models.get(None))
    served = first if name is None else models.get(name)
    served.language  # noqa: B018  raises if the model generates no text
    return served


def tokenizer_info(models: ModelVersions, name: str | None) -> JsonObject:
    """Describe the tokenizer: `eos_token` ends a line, `bos_token` begins a text."""
    served = language_model(models, name)
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


def tokenize(models: ModelVersions, body: JsonObject, limits: Limits) -> JsonObject:
    """Return the token ids of a text; a token that is not in the vocabulary is <unk>, 0."""
    request = validate(TokenizeRequest, body, limits)
    served = language_model(models, request.model)
    begins = request.prompt == served.vocab.tokens[BOS]
    tokens = [BOS] if begins else [int(k) for k in served.vocab.encode(request.prompt)]
    return {"tokens": tokens, "count": len(tokens), "max_model_len": limits.prompt_tokens}


def detokenize(models: ModelVersions, body: JsonObject) -> JsonObject:
    """Return the text of token ids."""
    request = validate(DetokenizeRequest, body)
    served = language_model(models, request.model)
    check_ids(request.tokens, served)
    return {"prompt": served.vocab.decode(request.tokens)}


async def predict(registry: Registry, body: JsonObject) -> tuple[ServedModel, list[JsonObject]]:
    """Return the model of a request and its predictions."""
    request = validate(PredictRequest, body, registry.limits)
    served = registry.models.get(request.model)
    options = request.options.model_dump(exclude_none=True)
    inputs = parse_predict_inputs(request, served)
    count = len(inputs) if isinstance(inputs, list) else 1
    values = count * options.get("samples", 1) * max(options.get("length", 1), options.get("nbest", 1))
    if values > registry.limits.values:
        raise OptionError(
            f"the response would have {values:,} values, at most {registry.limits.values:,}: "
            "lower inputs × samples × length"
        )
    if registry.predicting.statistics().tasks_waiting >= registry.limits.requests // 4:
        raise BusyError("too many predictions are waiting; try again in a moment")

    def work() -> list[JsonObject]:
        try:
            return [to_json(found) for found in served.predictor.predictions(inputs, **options)]
        except (TypeError, ValueError) as error:  # an option or an input that this task does not have
            if isinstance(error, RecurError):
                raise
            raise OptionError(f"{served.name} cannot read this: {error}") from None

    return served, await to_thread.run_sync(work, limiter=registry.predicting)


def parse_predict_inputs(request: PredictRequest, served: ServedModel) -> Any:
    """Return the inputs as `Predictor.predictions` takes them: lines, arrays, or the lines of one table."""
    predictor = served.predictor
    if not predictor.takes_lines:
        return table_lines(request.input)
    inputs = [request.input] if request.inputs is None else request.inputs
    if predictor.takes_files:  # images, or sequences of numbers
        return [_array(one) for one in inputs]
    for one in inputs:
        words = predictor.takes_words and isinstance(one, list) and all(isinstance(word, str) for word in one)
        if not isinstance(one, str) and not words:
            raise OptionError("an input must be a text")
    return inputs


def table_lines(value: Any) -> NamedLines:
    """Return a table as lines of CSV, given as CSV text, as columns by name, or as a list of rows."""
    if isinstance(value, str):
        return NamedLines([f"{line}\n" for line in value.splitlines()], "the table")
    if isinstance(value, dict | list) and value and not _names_file(value):
        tables, kind = read_tables(value)
        if kind != "several" and len(tables) == 1:
            return tables[0]
    raise OptionError("input must be a table: lines of CSV in one text, an object of columns, or a list of rows")


def _names_file(value: Any) -> bool:
    """Return True for a list of texts, which `table_of` would read as names of files."""
    return isinstance(value, list) and any(not isinstance(row, dict | int | float) for row in value)


def _array(one: Any) -> np.ndarray[Any, Any]:
    try:
        found = np.asarray(one, dtype=np.float32)
    except (ValueError, TypeError, OverflowError):
        found = np.zeros(0, np.float32)
    if not found.size or not np.isfinite(found).all():
        raise OptionError("an input must be numbers: a sequence or an image as lists of lists")
    return found


def to_json(found: Any) -> Any:
    """Return predictions as JSON values, without NumPy types."""
    if isinstance(found, dict):
        return {str(name): to_json(value) for name, value in found.items()}
    if isinstance(found, list | tuple):
        return [to_json(value) for value in found]
    return found.item() if isinstance(found, np.generic) else found.tolist() if isinstance(found, np.ndarray) else found
