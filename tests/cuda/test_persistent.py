"""Persistent kernels, with every exchange of h, against the loop in float64."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from recur.ops.cuda.config import CLUSTER, GRID, SINGLE_CTA, KernelConfig, ScanShape, override
from tests.cuda.support import agrees, needs_gpu, on_gpu
from tests.cuda.test_gpu import OPTIONS, options_of
from tests.support import NATIVE_CELLS, make_cell

pytestmark = needs_gpu
RECURRENT = [name for name in NATIVE_CELLS if make_cell(name).recurrent_gates]


CONFIGS = {
    "cta": (SINGLE_CTA, 0, 8, False),
    "cluster": (CLUSTER, 0, 8, False),
    "grid": (GRID, 0, 8, False),
    "partial": (CLUSTER, 1, 8, False),
    "few": (CLUSTER, 0, 8, True),
    "cta16": (SINGLE_CTA, 0, 16, False),
    "cluster16": (CLUSTER, 0, 16, False),
    "grid16": (GRID, 0, 16, False),
    "partialfew16": (CLUSTER, 1, 16, True),
}
"""How v travels, whether back it is partial sums, a CTA's warps, and whether a team has fewer rows than products."""
PLAIN, OTHERS = list(CONFIGS)[:3], list(CONFIGS)[3:]
WIDTHS = {SINGLE_CTA: 40, CLUSTER: 72, GRID: 300}
"""Units for which there are one CTA, a cluster, and a grid."""


def width(config: str) -> int:
    return WIDTHS[CONFIGS[config][0]]


class ConfigSelector:
    """Selects one kind of configuration, and records what it selected."""

    def __init__(self) -> None:
        self.exchange, self.partial, self.warps, self.few = CONFIGS["cta"]
        self.multicast = 0
        self.change: dict[str, int] = {}
        self.configs: list[KernelConfig] = []

    def take(self, which: str) -> None:
        """One of `CONFIGS`."""
        self.exchange, self.partial, self.warps, self.few = CONFIGS[which]

    def __call__(self, p: ScanShape, found: list[KernelConfig]) -> list[KernelConfig | None]:
        wanted = self.exchange, self.partial * p.backward, self.warps, self.few
        fitting = [
            config for config in found if (config.exchange, config.partial, config.warps, config.used > 0) == wanted
        ]
        fitting = [config for config in fitting if self.multicast in (0, config.multicast)]
        if self.change:
            fitting = [dataclasses.replace(config, **self.change) for config in fitting]
        self.configs += fitting[:1]
        return [*fitting[:8]]


@pytest.fixture
def taken() -> Iterator[ConfigSelector]:
    select = ConfigSelector()
    with override(select=select):
        yield select
    assert select.configs, "no such configuration was used"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("config", PLAIN)
@pytest.mark.parametrize("name", RECURRENT)
def test_every_cell(name: str, config: str, dtype: torch.dtype, taken: ConfigSelector) -> None:
    taken.take(config)
    agrees(on_gpu(name, 5, 6, 7, width(config), dtype=dtype), trace=dtype == torch.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("config", OTHERS)
@pytest.mark.parametrize("name", ["lstm", "gru", "elman", "peephole"])
def test_other_ways(name: str, config: str, dtype: torch.dtype, taken: ConfigSelector) -> None:
    taken.take(config)
    agrees(on_gpu(name, 21, 6, 7, width(config), dtype=dtype), trace=dtype == torch.float32)


@pytest.mark.parametrize("which", [which for which in OPTIONS if which != "clip"])
@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_options(name: str, config: str, which: str, taken: ConfigSelector) -> None:
    taken.take(config)
    case = on_gpu(name, 21, 9, 5, width(config), dtype=torch.float32)
    agrees(case, **options_of(case)[which])


@pytest.mark.parametrize(
    "size", [(1, 3, 2, 1), (9, 4, 3, 33), (300, 3, 4, 65), (20, 5, 8, 650), (2, 3, 4, 1150)], ids=str
)
@pytest.mark.parametrize("name", ["lstm", "elman"])
def test_odd_sizes(name: str, size: tuple[int, ...]) -> None:
    agrees(on_gpu(name, *size, dtype=torch.float32))
    agrees(on_gpu(name, *size, dtype=torch.float32), exact=False, trace=False)
    agrees(on_gpu(name, *size, dtype=torch.bfloat16), trace=False)


@pytest.mark.parametrize("kept", [{"in_registers": 1, "in_shared": 1}, {"in_registers": 0, "in_shared": 0}], ids=str)
@pytest.mark.parametrize("config", CONFIGS)
def test_weights_that_do_not_fit(config: str, kept: dict[str, int], taken: ConfigSelector) -> None:
    taken.take(config)
    taken.change = kept
    for dtype in (torch.float32, torch.bfloat16):
        agrees(on_gpu("gru", 17, 5, 8, width(config), dtype=dtype), trace=False)


@pytest.mark.parametrize("tiles", [1, 2, 4])
def test_teams_that_take_turns(tiles: int, taken: ConfigSelector) -> None:
    taken.take("grid")
    taken.change = {"teams": 2, "tiles": tiles}
    agrees(on_gpu("lstm", 100, 7, 8, 300, dtype=torch.bfloat16), trace=False)


@pytest.mark.parametrize("multicast", [1, 2, 4])
@pytest.mark.parametrize("name", ["lstm", "elman"])
def test_chunks_of_a_vector(name: str, multicast: int, taken: ConfigSelector) -> None:
    """Through L2, in more chunks than there are buffers, fetched by one CTA or by several for each other."""
    taken.take("grid")
    taken.multicast = multicast
    taken.change = {"ring": 2, "in_registers": 2, "in_shared": 0}
    for dtype in (torch.float32, torch.bfloat16):
        agrees(on_gpu(name, 40, 7, 8, 500, dtype=dtype), trace=False)


@pytest.mark.parametrize("config", CONFIGS)
def test_long_sequences_at_every_pace(config: str, taken: ConfigSelector) -> None:
    """Bit for bit the same, however long single CTAs wait."""
    taken.take(config)
    case = on_gpu("gru", 40, 600, 8, width(config), dtype=torch.float32)
    found: list[dict[str, Any]] = []
    for delays in (0, 1, 2, 3):
        with override(delays=delays):
            found.append(case.everything(lambda: case.scan(backend="cuda")))
    for other in found[1:]:
        for name, value in found[0].items():
            assert torch.equal(value, other[name]), name
