"""What a GPU has, as far as a choice of kernels depends on it. Tests describe one without having it."""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch


class Device(NamedTuple):
    name: str
    major: int
    minor: int
    multiprocessors: int
    shared: int
    """Bytes of shared memory that a CTA may have."""

    @property
    def architecture(self) -> str:
        """As a compiler is asked for it: with the features of this very chip, where there are such."""
        return f"sm_{self.major}{self.minor}" + ("a" if self.major >= 9 else "")

    @property
    def clusters(self) -> bool:
        """Whether CTAs can share their memory."""
        return self.major >= 9

    @property
    def largest_cluster(self) -> int:
        return 16 if self.major in (9, 10) else 8 if self.clusters else 1


H200 = Device("NVIDIA H200", 9, 0, 132, 232448)
A100 = Device("NVIDIA A100-SXM4-80GB", 8, 0, 108, 166912)


@functools.cache
def device(index: int) -> Device:
    """One that torch sees."""
    found = torch.cuda.get_device_properties(index)
    shared = int(getattr(found, "shared_memory_per_block_optin", 101376))
    return Device(found.name, found.major, found.minor, found.multi_processor_count, shared)
