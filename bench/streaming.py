"""One token at a time, batch 1: recur, torch.nn.LSTM called a step at a time, and ONNX Runtime on the same cell.

In float32, and with weights of fewer bits: bfloat16 and int8 beside ONNX Runtime's dynamic quantisation.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from recur.nn import Recurrent

Step = Callable[[Tensor], Any]


def streaming(hidden: int, threads: int, tokens: int = 400) -> dict[str, float]:
    """Median microseconds a token, all taking turns of 50 tokens each."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    peer = nn.LSTM(hidden, hidden).eval()
    ours = Recurrent("lstm", hidden, hidden)
    ours.load_state_dict(peer.state_dict())
    steps = {"recur": _ours(ours), "torch.nn": _torch(peer), "onnxruntime": _onnx(peer, hidden, threads)}
    steps |= {f"recur {dtype}": ours.stream(matmul_dtype=dtype).step for dtype in ("bfloat16", "int8")}
    steps["onnxruntime int8"] = _onnx(peer, hidden, threads, quantised=True)
    xs = torch.randn(50, 1, hidden)
    _refuse_unequal(steps, xs)
    times: dict[str, list[float]] = {name: [] for name, step in steps.items() if step is not None}
    for _ in range(max(1, tokens // len(xs))):
        for name, seen in times.items():
            step = steps[name]
            assert step is not None
            for x in xs:
                begun = time.perf_counter()
                step(x)
                seen.append(time.perf_counter() - begun)
    return {name: statistics.median(seen) * 1e6 for name, seen in times.items()}


def _ours(net: Recurrent) -> Step:
    return net.stream().step


def _torch(lstm: nn.LSTM) -> Step:
    state: Any = None

    @torch.no_grad()
    def step(x: Tensor) -> Tensor:
        nonlocal state
        out, state = lstm(x[None], state)
        return out[0]  # type: ignore[no-any-return]

    return step


def _onnx(lstm: nn.LSTM, H: int, threads: int, quantised: bool = False) -> Step | None:
    """ONNX's own LSTM operator, whose gates are in the order i, o, f, c; None where ONNX Runtime is not installed.

    `quantised`: as its own tool makes it, weights of 8 bits with a scale for each column.
    """
    try:
        import onnx
        import onnxruntime
    except ImportError:
        return None

    weights = lstm.state_dict()

    def gates(name: str) -> Any:
        i, f, g, o = weights[f"{name}_l0"].chunk(4)
        return torch.cat([i, o, f, g])[None].numpy()

    both = np.concatenate([gates("bias_ih"), gates("bias_hh")], axis=1)
    constants = {"W": gates("weight_ih"), "R": gates("weight_hh"), "B": both}
    node = onnx.helper.make_node("LSTM", ["X", "W", "R", "B", "", "h", "c"], ["", "h1", "c1"], hidden_size=H)
    graph = onnx.helper.make_graph(
        [node],
        "step",
        [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 1, H]) for name in ("X", "h", "c")],
        [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 1, H]) for name in ("h1", "c1")],
        [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    content = model.SerializeToString()
    if quantised:
        from onnxruntime.quantization import QuantType, quantize_dynamic

        with tempfile.TemporaryDirectory() as folder:
            given, made = Path(folder) / "float32.onnx", Path(folder) / "int8.onnx"
            given.write_bytes(content)
            quantize_dynamic(given, made, op_types_to_quantize=["LSTM"], per_channel=True, weight_type=QuantType.QInt8)
            content = made.read_bytes()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    state = {"h": np.zeros((1, 1, H), np.float32), "c": np.zeros((1, 1, H), np.float32)}

    def step(x: Tensor) -> Tensor:
        state["h"], state["c"] = session.run(None, {"X": x.numpy()[None], **state})
        return torch.from_numpy(state["h"][0])

    return step


def _refuse_unequal(steps: dict[str, Step | None], xs: Tensor) -> None:
    expected = None
    for name, step in steps.items():
        if step is not None:
            for x in xs:
                out = step(x)
            expected = out.clone() if expected is None else expected
            if not torch.allclose(out, expected, atol=1e-4 if " " not in name else 2e-2):
                raise SystemExit(f"streaming: {name} gives other numbers; what is wrong is not timed")
