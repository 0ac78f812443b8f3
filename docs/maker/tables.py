"""Rows of the performance and results tables, read from bench/results.

Every table has the columns what, recur, peer, ratio, machine, date, command. None stands for a cell that the page
writes itself, such as a label that differs between the languages.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from docs.maker.merit import number, read

Row = Sequence[str | None]
Rows = list[Row]


def claim(name: str, command: str, rows: Iterable[Row]) -> Rows:
    """Append machine, date and command to rows of what, recur, peer, ratio."""
    machine = read(name)["machine"]
    device = machine.get("device") or read(name).get("gpu")
    where = str(device).removeprefix("NVIDIA ") if device else f"{machine['processor']}, {machine['cores']}"
    return [[*row, where, machine["date"], f"`{command}`"] for row in rows]


def ms(value: float) -> str:
    return f"{value:.3g} ms" if value < 1000 else f"{value:,.0f} ms"


def scan(words: str, passes: str, threads: int) -> list[dict[str, Any]]:
    found = read("scan")["results"]
    return [r for r in found if words in r["what"] and r["what"].endswith(f", {passes}") and r["threads"] == threads]


def geometric_mean(values: Iterable[float]) -> float:
    logs = [math.log(value) for value in values]
    return math.exp(math.fsum(logs) / len(logs))


def layers() -> Rows:
    """One layer, forward and backward, two threads."""
    rows: Rows = []
    for r in scan(" on native / nn.", "forward + backward", 2):
        cell, _, rest = r["what"].partition(" on native / nn.")
        size = rest.split(", ")[1]
        rows.append([f"`{cell}` {size}", ms(r["ours_ms"]), ms(r["peer_ms"]), f"{1 / r['ratio']:.2f}"])
    return claim("scan", 'bench --match "on native"', rows)


def layer_means() -> Rows:
    """Geometric means over all sizes: both passes and forward alone, with one thread and with two."""
    rows: Rows = []
    for passes in ("forward + backward", "forward"):
        for threads in (1, 2):
            mean = geometric_mean(1 / r["ratio"] for r in scan(" on native / nn.", passes, threads))
            rows.append([None, "", "`torch.nn`", f"{mean:.2f}"])
    return claim("scan", 'bench --match "on native"', rows)


def layer_memory() -> Rows:
    """Peak memory of the largest layer of each cell, one thread."""
    rows: Rows = []
    for cell in ("elman", "gru", "lstm"):
        r = max(
            (r for r in scan(" on native / nn.", "forward + backward", 1) if r["what"].startswith(cell)),
            key=lambda r: r["peer_mib"],
        )
        size = r["what"].split(", ")[1]
        ratio = r["peer_mib"] / r["ours_mib"]
        rows.append([f"`{cell}` {size}", f"{r['ours_mib']:.1f} MiB", f"{r['peer_mib']:.1f} MiB", f"{ratio:.2f}"])
    return claim("scan", 'bench --match "on native"', rows)


def custom_cells() -> Rows:
    """Cells that a user could have written, compared with the built-in cell of the same size."""
    rows: Rows = []
    for name, cell in (("PeepholeLSTM", "lstm"), ("LeakyGRU", "gru")):
        found = [r for r in read("scan")["results"] if r["what"].startswith(name)]
        slowest = max(found, key=lambda r: r["ratio"])
        rows.append([f"`{name}`", ms(slowest["ours_ms"]), f"{ms(slowest['peer_ms'])} `{cell}`",
                     f"{1 / slowest['ratio']:.2f}"])  # fmt: skip
    return claim("scan", 'bench --match "on native"', rows)


def streaming() -> Rows:
    rows: Rows = []
    for r in sorted(read("streaming")["results"], key=lambda r: (r["hidden"], r["threads"])):
        took = r["microseconds"]
        for peer in ("torch.nn", "onnxruntime"):
            times = took[peer] / took["recur"]
            what = f"H {r['hidden']}, {r['threads']}"
            rows.append([what, f"{took['recur']:.0f} µs", f"{took[peer]:,.0f} µs `{peer}`", f"{times:.1f}"])
    return claim("streaming", "bench streaming", rows)


def calls() -> Rows:
    """Overhead of a small call: time beyond the arithmetic of the core."""
    rows: Rows = []
    for r in read("calls")["results"]:
        took = r["microseconds"]
        if "H 8" in r["what"] and "T 4" in r["what"]:
            what = r["what"].replace("forward and back", "").strip(" ,")
            rows.append([f"`{what}`", f"{took['ours']:.0f} µs", f"{took['torch.nn']:.0f} µs `torch.nn`",
                         f"{took['torch.nn'] / took['ours']:.1f}"])  # fmt: skip
    return claim("calls", "bench calls", rows)


def cudnn() -> Rows:
    """Geometric means over all sizes, compared with cuDNN."""
    means = read("gpu")["means"]
    kinds = {"float32": "float32 beside cuDNN", "bfloat16": "bfloat16 beside cuDNN", "float16": "float16 beside cuDNN",
             "persistent": "float16 beside cuDNN, persistent"}  # fmt: skip
    rows = [[None, "", "cuDNN 9.19", f"{means[kind][passes]:.2f}"] for kind in kinds.values()
            for passes in ("both", "forward")]  # fmt: skip
    return claim("gpu", "bench gpu", rows)


def cudnn_sizes() -> Rows:
    """Microseconds per step, forward and backward, bfloat16, for every size."""
    rows: Rows = []
    for r in read("gpu")["results"]:
        if r["peer"].startswith("cuDNN") and " bfloat16" in r["what"]:
            took = r["both"]["us_a_step"]
            cell, _, size = r["what"].partition(" bfloat16, ")
            rows.append([f"`{cell}` {size}", f"{number(took['ours'])} µs", f"{number(took['peer'])} µs",
                         f"{r['both']['times']:.1f}"])  # fmt: skip
    return claim("gpu", "bench gpu", rows)


def flashrnn() -> Rows:
    rows: Rows = []
    for r in read("flashrnn")["results"]:
        took = r["both"]["us_a_step"]
        if took.get("FlashRNN"):
            cell, _, size = r["what"].partition(" bfloat16, ")
            rows.append([f"`{cell}` {size}", f"{number(took['ours'])} µs", f"{number(took['FlashRNN'])} µs",
                         f"{took['FlashRNN'] / took['ours']:.1f}"])  # fmt: skip
    return claim("flashrnn", "bench.gpu_flashrnn", rows)


def gpu_training() -> Rows:
    """Tokens per second with CUDA graphs, compared with a loop around cuDNN written by hand."""
    rows: Rows = []
    for r in read("gpu-training")["rows"]:
        took = r["tokens_per_second"]
        rows.append([None, f"{round(took['recur'], -3):,.0f} /s", f"{round(took['by hand'], -3):,.0f} /s",
                     f"{took['recur'] / took['by hand']:.1f}"])  # fmt: skip
    return claim("gpu-training", "bench gpu-training", rows)


def trees() -> Rows:
    rows: Rows = []
    for r in read("trees")["results"]:
        if r["threads"] == 2:
            cell, size = r["what"].split(" ")[0], r["what"].rpartition(", ")[2]
            rows.append([f"`{cell}` {size}", ms(r["ours_ms"]), ms(r["peer_ms"]), f"{1 / r['ratio']:.1f}"])
    return claim("trees", "bench trees", rows)


def grids() -> Rows:
    """Images of 28 × 28 points from one corner, batches of 16."""
    rows: Rows = []
    found = [r for r in read("grids")["results"] if "28 × 28, corners 1, B 16 " in r["what"]]
    for r in sorted(found, key=lambda r: ("net" not in r["what"], int(r["what"].split()[-1]))):
        kind, hidden = re.findall(r"grid (\w+) .* H (\d+)", r["what"])[0]
        rows.append([f"`{kind}` H {hidden}", ms(r["ours_ms"]), ms(r["peer_ms"]), f"{r['times']:.1f}"])
    return claim("grids", "bench grids", rows)


def training() -> Rows:
    """The trainer, its backends and sampling."""
    found = read("training")
    rows: Rows = [[None, ms(found["step"]["trainer_ms"]), ms(found["step"]["bare_ms"]),
                   f"{1 / found['step']['ratio']:.2f}"]]  # fmt: skip
    for cell in ("gru", "lstm"):
        took = found["backends"][cell]
        rows.append([None, f"{took['native']:,.0f} /s", f"{took['torch']:,.0f} /s", f"{took['ratio']:.2f}"])
    took = found["sampling"]
    rows.append([None, f"{took['ours_per_s']:,.0f} /s", f"{took['by_hand_per_s']:,.0f} /s", f"{took['ratio']:.2f}"])
    return claim("training", "bench training", rows)


def writing() -> Rows:
    """Encoder–decoders, two threads: a training step, greedy and beam decoding, output recurrence."""
    rows: Rows = [
        [None, ms(r["ours_ms"]), ms(r["peer_ms"]), f"{1 / r['ratio']:.1f}"]
        for r in read("writing")["results"]
        if r["threads"] == 2
    ]
    return claim("writing", "bench writing", rows)


def counting() -> Rows:
    found = read("counting")
    took, encoded, large = found["kneser_ney"], found["encoding_mb_s"], found["streaming"][0]
    rows: Rows = [
        [None, f"{took['seconds']['ours']:.2f} s", f"{took['seconds']['dictionaries']:.1f} s", f"{took['ratio']:.1f}"],
        *([None, f"{encoded[kind]:.0f} MB/s", "", ""] for kind in ("char", "word", "word with punctuation")),
        [None, f"{large['encode_s']:.0f} s, {large['peak_mib']:.0f} MiB", "", ""],
    ]
    return claim("counting", "bench counting", rows)


def serving() -> Rows:
    """Tokens per second over one WebSocket or four."""
    table: dict[tuple[int, int], dict[str, Any]] = {}
    for r in read("serve")["over_websockets"]:
        table.setdefault((r["sessions"], r["clients"]), {})[r["way"]] = r
    rows: Rows = []
    for (sessions, clients), found in table.items():
        ours = found["recur"]["tokens_per_second"]
        peer = max(found["torch.nn.LSTM"]["tokens_per_second"], found["torch.nn.LSTMCell"]["tokens_per_second"])
        rows.append([f"{sessions:,} / {clients}", f"{ours:,.0f} /s", f"{peer:,.0f} /s", f"{ours / peer:.1f}"])
    return claim("serve", "bench serve", rows)


def exported() -> Rows:
    rows: Rows = []
    for r in read("export")["steps"]:
        took = r["microseconds"]
        for kind in ("float32", "8 bit"):
            ours, peer = took[f"C {kind}"], took[f"ONNX Runtime {kind}"]
            shown = kind.replace("8 bit", "int8")
            rows.append([f"H {r['hidden']}, {shown}", f"{ours:.0f} µs", f"{peer:.0f} µs", f"{peer / ours:.1f}"])
    return claim("export", "bench export", rows)


def sizing() -> Rows:
    """Validation perplexity of automatic sizing, compared with the best of a random search."""
    order = ["Multi30k German", "Multi30k English", "subjectivity", "pydoc"]
    rows: Rows = []
    for r in sorted(read("sizing")["compared"], key=lambda r: order.index(r["case"].partition(",")[0])):
        digits = 3 if r["rule"] < 10 else 1
        rows.append([None, f"{r['rule']:.{digits}f}", f"{r['best']:.{digits}f}", f"{r['best'] / r['rule']:.2f}"])
    return [[*row[:6], "`bench sizing`"] for row in claim("sizing", "", rows)]


FAULTS = (
    "fine", "rate too high", "diverging", "dead units", "forget gate closed", "window too short", "too small",
    "over-fitted", "under-trained",
)  # fmt: skip


def diagnosis() -> Rows:
    """How often the first condition that X-ray names is the fault that was planted."""
    rows: Rows = []
    for name in ("diagnosis", "diagnosis-first"):
        found = [r for r in read(name)["rows"] if r["expected"] in FAULTS]
        right = sum(r["found"] == r["expected"] for r in found)
        date = read(name)["machine"]["date"]
        share = f"{right / len(found):.0%}"
        rows.append([None, f"{right} / {len(found)}", "", share, None, date, "`bench diagnosis`"])
    held = read("overfitting")["held-out"]
    wrong = held["rule"]["wrong"] + held["rule"]["missed"]
    date = read("overfitting")["machine"]["date"]
    rows.append([None, f"{held['runs'] - wrong} / {held['runs']}", "", f"{1 - wrong / held['runs']:.0%}", None, date,
                 "`bench overfitting`"])  # fmt: skip
    return rows


def scaling() -> Rows:
    """Computed efficiency with 8, 64 and 1,024 GPUs, by the width of the network."""
    table: dict[int, dict[int, str]] = {}
    for r in read("scaling")["rows"]:
        spent = r["float32"]
        share = spent["compute"] / (spent["compute"] + spent["waiting"])
        table.setdefault(r["width"], {})[r["gpus"]] = f"{share:.0%}".replace("%", " %")
    return [[f"{width:,}", *(row[gpus] for gpus in (8, 16, 64, 1024))] for width, row in table.items()]


def studio() -> Rows:
    """In the browser: the first view of 1,001 runs, a key press, a live training point."""
    found = read("studio")
    seen = found["in_the_browser"]
    rows: Rows = [
        [None, f"{seen['first_view_s']:.2f} s", "", ""],
        [None, f"{seen['all_listed_s']:.1f} s", "", ""],
        [None, f"{seen['keys'][2]['bars_ms']:.0f} ms", "", ""],
        [None, f"{found['live_points']['median_s']:.2f} s", "", ""],
    ]
    return claim("studio", "bench studio", rows)


ROWS: dict[str, Callable[[], Rows]] = {
    "layers": layers, "layer-means": layer_means, "layer-memory": layer_memory, "custom-cells": custom_cells,
    "streaming": streaming, "calls": calls, "cudnn": cudnn, "cudnn-sizes": cudnn_sizes, "flashrnn": flashrnn,
    "gpu-training": gpu_training, "trees": trees, "grids": grids, "training": training, "writing": writing,
    "counting": counting, "serving": serving, "export": exported, "sizing": sizing, "diagnosis": diagnosis,
    "scaling": scaling, "studio": studio,
}  # fmt: skip
