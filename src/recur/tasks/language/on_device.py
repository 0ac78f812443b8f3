"""The training text on the device itself: a batch is where its rows begin, and is cut there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from recur.data.text import Batch, Stream
from recur.data.text.stream import ProcessShard

SHARE = 8
"""A text that takes more than one part in so many of a GPU's memory stays outside."""


class Text:
    """The ids of a text on a device. Equal to itself only, so that steps that read another one are of another form."""

    def __init__(self, ids: Tensor) -> None:
        self.ids = ids


class Window(NamedTuple):
    """A batch of rows of the text."""

    text: Text
    at: Tensor
    """(B,): where each row begins."""
    steps: int
    fresh: bool
    """The rows do not continue those of the batch before."""

    def cut(self) -> tuple[Tensor, Tensor]:
        """x and y, (B, T) each."""
        device = self.text.ids.device
        index = self.at.to(device, non_blocking=True)[:, None] + torch.arange(self.steps + 1, device=device)
        rows = self.text.ids[index].long()
        return rows[:, :-1], rows[:, 1:]


class Windows:
    """The batches of a stream, as windows of a text that lies on the device."""

    def __init__(self, stream: Stream, device: torch.device) -> None:
        self.stream = stream
        self.text = Text(torch.from_numpy(np.array(stream.ids, np.int32)).to(device))

    def batches(self, epoch: int = 0, skip: int = 0) -> Iterator[Window]:
        for starts, steps, fresh in self.stream.places(epoch, skip):
            yield Window(self.text, torch.from_numpy(starts.astype(np.int64)), steps, fresh)

    def shared(self, share: ProcessShard) -> Stream:
        """Of several processes each has a device of its own, and reads its lanes from the text where it lies."""
        return self.stream.shared(share)

    def __len__(self) -> int:
        return len(self.stream)


def has_room(stream: Stream, device: torch.device) -> bool:
    return 4 * len(stream.ids) * SHARE < torch.cuda.get_device_properties(device).total_memory


def cut(batch: Batch | Window, device: torch.device) -> tuple[Tensor, Tensor, Tensor, bool]:
    """A batch's x, y, where its rows begin, and whether they begin anew."""
    if isinstance(batch, Window):
        return *batch.cut(), batch.at.to(device), batch.fresh
    x, y, at = (torch.from_numpy(part).to(device, non_blocking=True) for part in (batch.x, batch.y, batch.at))
    return x, y, at, bool(batch.fresh.all())
