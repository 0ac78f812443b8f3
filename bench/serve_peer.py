"""The peer of `python -m bench serve`: the same server, whose sessions are stepped one by one in PyTorch.

python -m bench.serve_peer RUN WAY      WAY is recur, torch.nn.LSTM or torch.nn.LSTMCell
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from recur.serve.app import make_app
from recur.serve.models import ModelVersions
from recur.serve.registry import Registry, make_model_server
from recur.serve.schemas import Limits
from recur.serve.state_pool import LanguageNetwork, StatePool, StepNetwork

WAYS = ("recur", "torch.nn.LSTM", "torch.nn.LSTMCell")
LIMITS = Limits(sessions=110_000, rows=512)


class OneByOne(StatePool):
    """A dictionary of states, and a call of PyTorch for each session."""

    def __init__(self, network: StepNetwork, slots: int, cell: bool) -> None:
        super().__init__(network, slots)
        assert isinstance(network, LanguageNetwork)
        self._model, own = network.model, network.model.recurrent
        assert own.num_layers == 1
        sizes = int(own.input_size), int(own.hidden_size)
        weights = {name.removesuffix("_l0") if cell else name: value for name, value in own.state_dict().items()}
        self._lstm: Any = nn.LSTMCell(*sizes) if cell else nn.LSTM(*sizes, batch_first=True)
        self._lstm.load_state_dict(weights)
        self._cell = cell
        self._states: dict[int, Any] = {}

    @torch.no_grad()
    def step(self, slots: Sequence[int], inputs: Sequence[Any]) -> Tensor:
        rows = []
        for slot, token in zip(slots, inputs, strict=True):
            x = self._model.embedding.vectors(torch.tensor([token]))
            before = None if self.fresh[slot] else self._states.get(slot)
            if self._cell:
                state = self._states[slot] = self._lstm(x, before)
                out = state[0]
            else:
                out, self._states[slot] = self._lstm(x[None], before)
                out = out[0]
            self.fresh[slot] = False
            rows.append(self._model.logits_of(out)[0])
        return torch.stack(rows)

    def scan(self, slots: Sequence[int], inputs: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        raise NotImplementedError("it is asked for single steps")


def hub_of(run: Path, way: str, threads: int = 1) -> Registry:
    """A registry whose state pool steps in this way."""
    hub = Registry(ModelVersions([run], LIMITS, "cpu"), LIMITS, threads=threads)
    if way != "recur":
        for served in hub.models:
            served._pool = OneByOne(served.network, served.pool.slots, way == "torch.nn.LSTMCell")
    return hub


def main() -> None:
    hub = hub_of(Path(sys.argv[1]), sys.argv[2])
    server = make_model_server(make_app(hub, ()), hub, port=int(sys.argv[3]))
    server.run()


if __name__ == "__main__":
    main()
