"""Ranks on a GPU: with one GPU there is one rank, which goes all the ways of several (NCCL, buckets, messages)."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from recur.training.distributed import SINGLE_PROCESS, connect
from recur.utils.processes import Launch
from tests.cuda.support import needs_gpu
from tests.support import TOLERANCE, close
from tests.training.two_ranks import BOOK, begin, weights

pytestmark = needs_gpu


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("compress", ["none", "bfloat16"])
def test_one_rank_by_nccl_does_what_a_process_does(
    compress: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("book.txt").write_text("the network reads a word\na state is what the network keeps\n" * 40)
    fields = {**BOOK, "device": "cuda", "precision": "float32", "graph": "off"}
    begin("alone", SINGLE_PROCESS, **fields)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    group = connect(Launch(0, 1, 0, 1, "127.0.0.1", port), "cuda", compress)
    try:
        begin("joined", group, **fields)
    finally:
        dist.destroy_process_group()
    for name, value in weights("alone").items():
        if value.is_floating_point():
            tolerance = TOLERANCE[torch.float32 if compress == "none" else torch.bfloat16]
            close(weights("joined")[name], value, name, tolerance)
