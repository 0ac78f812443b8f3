"""The states of sessions, each in its slot of one table, and steps of many of them at once.

A step gathers the rows of its slots, runs the network once, and puts them back; on a GPU there may be a better way
(recur.serve.on_gpu). Memory that no session has used costs nothing: the system gives a page when it is first written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recur.errors import OptionError
from recur.serve.network import LanguageNetwork, Network, Parts

LEAST = 4
"""Rows of a step at least: fewer go through products of other kernels, whose sums end in other bits. So what a session
gets does not depend on how many others there are."""


class Bank:
    """So many slots, taken and given back."""

    def __init__(self, network: Network, slots: int) -> None:
        self.network, self.slots = network, slots
        self._free: list[int] = []
        self._unused = 0
        """From this slot on, none was ever taken."""
        self.fresh = np.ones(slots, bool)
        """Sessions that have read nothing yet."""
        self._make()

    def _make(self) -> None:
        self._pools = [_lazy((self.slots, *shape), dtype, self.network.device) for shape, dtype in self.network.forms]

    @property
    def taken(self) -> int:
        return self._unused - len(self._free)

    @property
    def bytes_each(self) -> int:
        """Of one session's state."""
        return sum(int(np.prod(shape, dtype=int)) * dtype.itemsize for shape, dtype in self.network.forms)

    def take(self) -> int | None:
        """A slot for a new session; None where all are taken."""
        if self._free:
            return self._free.pop()
        if self._unused == self.slots:
            return None
        self._unused += 1
        return self._unused - 1

    def give(self, slot: int) -> None:
        self._free.append(slot)

    # What the thread that steps does ----------------------------------------------------------------------------

    def reset(self, slot: int) -> None:
        self.fresh[slot] = True

    def step(self, slots: Sequence[int], inputs: Sequence[Any]) -> Tensor:
        """One input of each of these sessions: their scores (n, K)."""
        where, x = np.array(slots), self.network.inputs(inputs)
        fresh = self.fresh[where]
        self.fresh[where] = False
        if not fresh.any():
            return self._step(where, x)
        if fresh.all():
            return self._step(where, x, begins=True)
        first, rest = np.flatnonzero(fresh), np.flatnonzero(~fresh)
        began, went = self._step(where[first], x[first], begins=True), self._step(where[rest], x[rest])
        scores = went.new_empty(len(where), went.shape[1])
        scores[first], scores[rest] = began, went
        return scores

    def _step(self, where: Any, x: Tensor, begins: bool = False) -> Tensor:
        n = len(where)
        if n < LEAST:
            again = np.arange(LEAST) % n
            where, x = where[again], x[again]
        index = torch.from_numpy(where).to(self.network.device)
        scores, parts = self.network.step(x, None if begins else self._gather(index))
        self._scatter(index[:n], [part[:n] for part in parts])
        return scores[:n]

    def scan(self, slots: Sequence[int], inputs: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Several inputs of each: outputs (n, T, H), for the network's `scores`, and how many each has."""
        assert isinstance(self.network, LanguageNetwork)
        where = np.array(slots)
        lengths = torch.tensor([len(each) for each in inputs])
        x = torch.zeros(len(where), int(lengths.max()), dtype=torch.long)
        for row, each in zip(x, inputs, strict=True):
            row[: len(each)] = torch.tensor(each)
        x = x.to(self.network.device)
        fresh = self.fresh[where]
        self.fresh[where] = False
        outputs = None
        for rows, begins in ((np.flatnonzero(fresh), True), (np.flatnonzero(~fresh), False)):
            if not len(rows):
                continue
            index = torch.from_numpy(where[rows]).to(self.network.device)
            out, parts = self.network.scan(x[rows], lengths[rows], None if begins else self._gather(index))
            self._scatter(index, parts)
            outputs = out.new_zeros(len(where), *out.shape[1:]) if outputs is None else outputs
            outputs[torch.from_numpy(rows), : out.shape[1]] = out
        assert outputs is not None
        return outputs, lengths

    def last_scores(self, slots: Sequence[int]) -> Tensor:
        """What the last step of these sessions said, (n, K)."""
        assert isinstance(self.network, LanguageNetwork)
        return self.network.scores(self.network.last_output(self._gather(torch.tensor(slots).to(self.network.device))))

    def state(self, slot: int) -> Parts | None:
        """A copy of one session's state, on the CPU; None where it has read nothing."""
        if self.fresh[slot]:
            return None
        return [part[0].cpu().clone() for part in self._gather(torch.tensor([slot]).to(self.network.device))]

    def set_state(self, slot: int, parts: Parts | None) -> None:
        self.fresh[slot] = parts is None
        if parts is not None:
            index = torch.tensor([slot]).to(self.network.device)
            self._scatter(index, [part[None].to(self.network.device) for part in parts])

    def check(self, parts: Sequence[Tensor]) -> Parts:
        """A state that came from elsewhere, if it is one of this network."""
        if [(tuple(part.shape), part.dtype) for part in parts] != self.network.forms:
            raise OptionError("the state is of another network")
        return list(parts)

    def _gather(self, index: Tensor) -> Parts:
        return [pool.index_select(0, index) for pool in self._pools]

    def _scatter(self, index: Tensor, parts: Parts) -> None:
        with torch.no_grad():
            for pool, part in zip(self._pools, parts, strict=True):
                pool.index_copy_(0, index, part)


def _lazy(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    kind = torch.zeros((), dtype=dtype).numpy().dtype
    return torch.from_numpy(np.zeros(shape, kind))  # of calloc: pages come when they are written to
