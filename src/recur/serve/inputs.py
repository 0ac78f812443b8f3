"""What a session is given to read, as JSON has it: checked, and made inputs of its network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from recur.errors import OptionError
from recur.serve.asked import check_ids, text_ids
from recur.serve.models import Served

if TYPE_CHECKING:
    from recur.serve.hub import Hub


def inputs_of(asked: object, served: Served, hub: Hub) -> Any:
    """Tokens, a text, or steps of numbers: a list of inputs."""
    network = served.network
    if network.numbers:
        return _numbers(asked, network.width, hub.limits.steps)
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


def _numbers(asked: object, width: int, most: int) -> list[np.ndarray[Any, Any]]:
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
