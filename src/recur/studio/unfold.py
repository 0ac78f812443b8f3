"""The parts of the unrolled network and their shapes."""

from __future__ import annotations

import inspect
from typing import Any

from recur.errors import OptionError
from recur.i18n import Message
from recur.studio.loaded import LoadedModel
from recur.utils.types import JsonObject

LETTERS = {"weight_ih": "U", "weight_hh": "W"}
"""Of the recurrent weights, as the docs write them; the output matrix is V."""


def unfold(model: LoadedModel, _: JsonObject) -> JsonObject:
    """The parts of the unrolled network and their shapes."""
    network = model.language.model
    net: Any = network.recurrent
    if network.options.recurrence == "output":
        raise OptionError(Message("--recurrence output has no hidden state that goes from step to step"))
    return {
        "cell": type(net.cell).__name__,
        "equations": (inspect.getdoc(type(net.cell)) or "").split("\n\n")[0],
        "states": list(net.cell.states),
        "gates": list(net.cell.gates),
        "layers": net.layers,
        "H": net.hidden_size,
        "K": network.K,
        "D": network.embedding.width,
        "weights": [
            {"name": name, "letter": _letter(name, network.output is None), "shape": list(p.shape)}
            for name, p in network.named_parameters()
        ],
        "size": network.size,
    }


def _letter(name: str, tied: bool) -> str:
    """U, W or V for the matrices that have one."""
    if name == ("embedding.weight" if tied else "output"):
        return "V"
    return next((letter for kind, letter in LETTERS.items() if name.startswith(f"recurrent.{kind}")), "")
