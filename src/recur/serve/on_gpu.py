"""States of sessions on a GPU. Where layers are plain, states stay in their slots (ops.cuda.streaming.SessionSlots)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from recur.nn.streaming import get_packed_weights
from recur.ops.cuda.streaming import SessionSlots
from recur.serve.bank import Bank
from recur.serve.network import Network, Parts


def make_bank(network: Network, slots: int) -> Bank:
    """On the device of the network, in the way that fits it."""
    return OnGPU(network, slots) if OnGPU.can(network) else Bank(network, slots)


class OnGPU(Bank):
    """Plain layers on a GPU, stepped where their states are."""

    @staticmethod
    def can(network: Network) -> bool:
        layers = network.plain_layers()
        if layers is None or network.device.type != "cuda":
            return False
        like = next(layers[0].parameters()).new_zeros(1, layers[0].input_size)
        return get_packed_weights(layers[0], like, "").on_gpu is not None

    def _make(self) -> None:
        layers = self.network.plain_layers()
        assert layers is not None
        net, self._vectors, self._scores = layers
        like = next(net.parameters()).new_zeros(1, net.input_size)
        on_gpu = get_packed_weights(net, like, "").on_gpu
        assert on_gpu is not None
        self._on_gpu = SessionSlots(net.cell, on_gpu, self.slots)
        self._start = [[part[0] for part in layer] for layer in net.stream().state]

    @torch.no_grad()
    def _step(self, where: Any, x: Tensor, begins: bool = False) -> Tensor:
        index = torch.from_numpy(where).to(self.network.device)
        if begins:
            self._on_gpu.set_state(index, self._start)
        scores: Tensor = self._scores(self._on_gpu.launch(self._vectors(x), index))
        return scores

    def _gather(self, index: Tensor) -> Parts:
        forms = self.network.forms
        found = [part for layer in self._on_gpu.state(index) for part in layer]
        return [part.to(dtype) for part, (_, dtype) in zip(found, forms, strict=True)]

    def _scatter(self, index: Tensor, parts: Parts) -> None:
        each = len(self._on_gpu.stack.cell.states)
        layers = [parts[k : k + each] for k in range(0, len(parts), each)]
        self._on_gpu.set_state(index, layers)
