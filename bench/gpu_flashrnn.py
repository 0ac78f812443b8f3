"""FlashRNN as a side of the benchmark on a GPU: its kernels with one head, our product with U before them.

It compiles a kernel for every cell, dtype, H and B with nvcc and ninja, which takes a minute, after a solver has looked
for sizes that fit, which may take another. So kernels are compiled first, several at a time:

    python -m bench.gpu_flashrnn --compile-only lstm,bfloat16,64,256,512
    python -m bench.gpu_flashrnn lstm,bfloat16,64,256,512        beside ours and cuDNN, in one process

LSTM and Elman networks have kernels that keep W on the chip (`cuda_fused`); a GRU takes one step a launch (`cuda`).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from bench.gpu_sides import Data, Side
from bench.side_by_side import Tensors


def flashrnn(data: Data) -> Side | None:
    """None where it is not installed."""
    try:
        from flashrnn.flashrnn import FlashRNNConfig  # type: ignore[import-not-found]
        from flashrnn.flashrnn import flashrnn as carry
    except ImportError:
        return None
    _at_home_with_cuda_13()
    T, B, H = data.x.shape
    name, dtype = data.name, str(data.x.dtype).removeprefix("torch.")
    config: Any = FlashRNNConfig(
        head_dim=H, num_heads=1, batch_size=B, function=name, dtype=dtype, input_shape="TBGHD", output_shape="STBHD"
    )

    def run(backward: bool) -> Tensors:
        w = data.weights
        with torch.set_grad_enabled(backward):
            share = nn.functional.linear(data.x, w["weight_ih"]).view(T, B, -1, 1, H)
            W, b = w["weight_hh"].view(-1, 1, H, H), w["bias_ih"] + w["bias_hh"]
            if name == "gru":  # the reset's own product and its bias come first, the input's bias last
                W = W[[2, 0, 1]]
                b = torch.cat([w["bias_hh"][2 * H :], b[: 2 * H], w["bias_ih"][2 * H :]])
            states, _ = carry(share, W.contiguous(), b.view(-1, 1, H), config=config)
            return data.finish(states[0].reshape(T, B, H), data.arriving, w, backward)

    return run


def _at_home_with_cuda_13() -> None:
    """It asks an extension of its own what GPU this is, whose source reads fields that CUDA 13 has no more: torch is
    asked in its place. And it waits up to ten seconds before a kernel is compiled or found, which nobody needs here."""
    whole: Any = sys.modules["flashrnn.flashrnn.flashrnn"]
    loader: Any = sys.modules["flashrnn.flashrnn.cuda_init"]
    found: Any = torch.cuda.get_device_properties(torch.cuda.current_device())
    about = {
        "maxThreadsPerBlock": 1024,
        "regsPerMultiprocessor": found.regs_per_multiprocessor,
        "multiProcessorCount": found.multi_processor_count,
        "sharedMemPerBlockOptin": found.shared_memory_per_block_optin,
    }
    whole.get_gpu_info = lambda device_id: about
    loader.time = SimpleNamespace(sleep=lambda seconds: None)


def compiled(cell: str, dtype: str, B: int, H: int) -> str:
    """Why a row's kernel cannot be used; empty where it can."""
    try:
        side = flashrnn(Data(cell, B, 2, H, getattr(torch, dtype)))
        if side is None:
            return "flashrnn is not installed"
        side(True)
        torch.cuda.synchronize()
    except Exception as error:  # nvcc's, ninja's, the solver's or the GPU's own
        lines = [line for line in str(error).splitlines() if "error" in line.lower()] or [str(error)]
        return f"{type(error).__name__}: {' | '.join(lines[:4])[:600]}"
    return ""


def main() -> int:
    from bench.gpu import contests, header, line
    from bench.gpu_timing import compare

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("row", nargs="+", help="cell,dtype,B,T,H")
    parser.add_argument("--compile-only", action="store_true")
    parser.add_argument("--seconds", type=float, default=4.0, help="a row")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    failed, rows = 0, []
    if not options.compile_only:
        print(header())
    for text in options.row:
        cell, dtype, *numbers = text.split(",")
        B, T, H = map(int, numbers)
        begin = time.perf_counter()
        if options.compile_only:
            why = compiled(cell, dtype, B, H)
            failed += bool(why)
            print(f"{text} {time.perf_counter() - begin:.0f} s {why or 'compiled'}", flush=True)
            continue
        what = f"{cell} {dtype}, "
        (contest,) = (found for found in contests([(B, T, H)], "cuda") if found.what.startswith(what))
        rows.append(compare(contest, 1000, options.seconds))
        why = rows[-1].get("FlashRNN left out", "")
        failed += bool(why)
        print(line(rows[-1]) + (f"  FlashRNN left out: {why}" if why else ""), flush=True)
        if options.out:
            options.out.write_text(json.dumps(rows, indent=1))
    return failed


if __name__ == "__main__":
    sys.exit(main())
