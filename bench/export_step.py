"""An exported language model, one token at a time: the C header, ONNX Runtime, and recur's own stream.

What is exported goes from a token to logits; the stream is the recurrent layer alone, which favours it. C is called for
50 tokens at a time, as a C program would; ONNX Runtime and the stream a token at a time, from Python.
"""

from __future__ import annotations

import ctypes
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import recur
from recur.export import export

TOKENS = 50

CALLS = """
#include "model.h"
static model_state state;
static model_work work;
void begin(void) { model_init(&state); }
void read_tokens(const int32_t *ids, int count, float *logits) {
    for (int k = 0; k < count; ++k) model_step(&state, &work, ids[k], logits);
}
"""

FLAGS = ["-std=gnu99", "-O3", "-march=native", "-shared", "-fPIC"]

Read = Callable[[], Any]
"""Reads the tokens from the start and returns the last logits, if it has any."""


def steps(hidden: int, tokens: int = 2000) -> dict[str, float]:
    """Median microseconds of processor time a token, all taking turns; each is compared with PyTorch first."""
    torch.set_num_threads(1)
    size = {"hidden_size": hidden, "embedding_size": hidden, "steps": 1, "threads": 1}
    model: Any = recur.fit("pydoc", task="language", cell="lstm", baseline=False, device="cpu", **size)
    ids = np.random.default_rng(0).integers(4, len(model.vocab), TOKENS)
    with torch.no_grad():
        wanted = model.model(torch.from_numpy(ids)[None]).logits[0, -1].numpy()
    sides: dict[str, Read] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, quantize in (("float32", False), ("8 bit", True)):
            sides[f"C {name}"] = _in_c(model, Path(folder) / name.replace(" ", ""), quantize, ids, len(wanted))
            sides[f"ONNX Runtime {name}"] = _in_onnxruntime(model, Path(folder), quantize, ids)
        for name, side in sides.items():
            off = np.abs(side() - wanted).max()
            if not off < (0.05 if "8 bit" in name else 1e-4):
                raise SystemExit(f"{name} is {off:.1e} off and is not timed")
        sides |= {"stream float32": _stream(model, ""), "stream 8 bit": _stream(model, "int8")}
        times: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(max(1, tokens // TOKENS)):
            for name, side in sides.items():
                begun = time.process_time()
                side()
                times[name].append((time.process_time() - begun) / TOKENS)
    return {name: statistics.median(seen) * 1e6 for name, seen in times.items()}


def _in_c(model: Any, folder: Path, quantize: bool, ids: Any, width: int) -> Read:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise SystemExit("the C header is measured with gcc, which is not here")
    folder.mkdir()
    export(model, "c", folder / "model.h", quantize=quantize)
    (folder / "calls.c").write_text(CALLS)
    built = [compiler, *FLAGS, str(folder / "calls.c"), "-o", str(folder / "calls.so"), "-lm"]
    subprocess.run(built, check=True)
    library = ctypes.CDLL(str(folder / "calls.so"))
    given, logits = np.ascontiguousarray(ids, np.int32), np.empty(width, np.float32)
    pointers = given.ctypes.data_as(ctypes.c_void_p), TOKENS, logits.ctypes.data_as(ctypes.c_void_p)

    def read() -> Any:
        library.begin()
        library.read_tokens(*pointers)
        return logits

    return read


def _in_onnxruntime(model: Any, folder: Path, quantize: bool, ids: Any) -> Read:
    import onnxruntime

    file = folder / f"model{int(quantize)}.onnx"
    export(model, "onnx", file, quantize=quantize)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.disable_quant_qdq", "1")  # weights are spelled out once
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    zero = np.zeros((1, model.model.recurrent.hidden_size), np.float32)
    given = [np.array([[token]], np.int64) for token in ids]

    def read() -> Any:
        h = c = zero
        for token in given:
            logits, h, c = session.run(None, {"tokens": token, "h_0": h, "c_0": c})
        return logits[0, 0]

    return read


def _stream(model: Any, matmul_dtype: str) -> Read:
    stream = model.model.recurrent.stream(matmul_dtype=matmul_dtype)
    xs = torch.randn(TOKENS, 1, model.model.recurrent.input_size)

    def read() -> None:
        with torch.no_grad():
            for x in xs:
                stream.step(x)

    return read
