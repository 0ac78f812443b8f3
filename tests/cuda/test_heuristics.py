"""Kernel configurations that the heuristics propose, on described devices."""

from __future__ import annotations

import pytest

from recur.ops.cuda.config import CLUSTER, GRID, SINGLE_CTA, ScanShape
from recur.ops.cuda.driver import A100, H200, DeviceInfo
from recur.ops.cuda.heuristics import list_configs, order_configs

SMALL = DeviceInfo("a small one", 8, 6, 16, 101376)
DEVICES = pytest.mark.parametrize("device", [H200, A100, SMALL], ids=lambda device: device.name)
SHAPES = [(1, 1), (20, 33), (64, 256), (300, 650), (64, 1024), (20, 1500)]


def problems() -> list[ScanShape]:
    return [
        ScanShape(products=products, S=S, H=H, size=size, backward=backward, exact=exact, pressure=12)
        for S, H in SHAPES
        for products in (1, 4)
        for size, exact in ((2, False), (4, False), (4, True))
        for backward in (False, True)
    ]


@DEVICES
def test_what_is_listed_fits(device: DeviceInfo) -> None:
    for p in problems():
        for config in list_configs(p, device):
            assert config.shared_bytes(p) <= device.shared, (p, config)
            assert config.units * config.ctas >= p.H, "every unit has an owner"
            assert config.ctas <= device.multiprocessors
            assert (config.ctas == 1) == (config.exchange == SINGLE_CTA)
            if config.exchange == CLUSTER:
                assert config.ctas <= device.largest_cluster
            if config.exchange == GRID:
                assert config.teams * config.ctas <= device.multiprocessors, "all at once, or some would wait for ever"
            if config.multicast > 1:
                assert device.clusters


def test_a_gpu_without_clusters_has_none() -> None:
    assert {config.exchange for p in problems() for config in list_configs(p, H200)} == {SINGLE_CTA, CLUSTER, GRID}
    assert {config.exchange for p in problems() for config in list_configs(p, A100)} == {SINGLE_CTA, GRID}


@DEVICES
def test_one_step_a_launch_is_always_left(device: DeviceInfo) -> None:
    for p in problems():
        assert order_configs(p, device)[-1] is None
    wide = ScanShape(products=4, S=8, H=200_000, size=2, backward=False)
    assert order_configs(wide, device) == [None]


def test_the_likeliest_way_by_size() -> None:
    def first(S: int, H: int, size: int = 2) -> int | None:
        config = order_configs(ScanShape(products=4, S=S, H=H, size=size, backward=False, pressure=12), H200)[0]
        return None if config is None else config.exchange

    assert first(64, 32) == SINGLE_CTA
    assert first(64, 256) == CLUSTER
    assert first(64, 1024) == GRID
