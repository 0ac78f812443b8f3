"""Rows of tables that pages have from bench/results, as text; None is a cell of the page's own, such as its label."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from docs.maker.merit import number, read

Cells = Sequence[Sequence[str | None]]


def native() -> Cells:
    """`python -m bench`, forward and backward: a size and a cell on one thread and on two."""
    found = scan(" on native / nn.", "forward + backward")
    rows: list[Sequence[str | None]] = []
    for one, two in zip(found[::2], found[1::2], strict=True):
        cell, _, rest = one["what"].partition(" on native")
        _, B, _, T, _, H = rest.split(", ")[1].split()
        spent = [[f"{r['ours_ms']:.2f}", f"{1 / r['ratio']:.2f}", f"{r['matmul_share']:.0%}"] for r in (one, two)]
        rows.append([f"{B}, {T}, {H}", cell, *spent[0], *spent[1], f"{one['ours_mib']:.1f}", f"{one['peer_mib']:.1f}"])
    return rows


def streaming() -> Cells:
    rows: list[Sequence[str | None]] = []
    for r in sorted(read("streaming")["results"], key=lambda r: (r["hidden"], r["threads"])):
        took = r["microseconds"]
        times = took["torch.nn"] / took["recur"]
        other = f"{took['onnxruntime']:.0f}"
        spent = [f"{took[name]:,.0f}" for name in ("recur", "torch.nn")]
        rows.append([f"H {r['hidden']}", str(r["threads"]), *spent, f"{times:.2g}", other])
    return rows


def trees() -> Cells:
    found = read("trees")["results"]
    rows: list[Sequence[str | None]] = []
    for one, two in zip(found[::2], found[1::2], strict=True):
        spent = [[f"{r['ours_ms']:.1f}", f"{r['peer_ms']:.0f}", f"{1 / r['ratio']:.1f}"] for r in (one, two)]
        rows.append([None, *spent[0], *spent[1], f"{one['ours_mib']:,.0f}", f"{one['peer_mib']:,.0f}"])
    return rows


def grids() -> Cells:
    """Times the double loop, milliseconds and share of a product's rate, a column a width."""
    table: dict[tuple[str, str, int, int], dict[int, str]] = {}
    for r in read("grids")["results"]:
        kind, side, corners, B, H = re.findall(r"grid (\w+) .*, (\d+) × .*corners (\d), B (\d+) H (\d+)", r["what"])[0]
        shown = f"**{two_digits(r['times'])}** · {two_digits(r['ours_ms'], 0.1)} · {r['matmul_share']:.0%}"
        place = table.setdefault((kind, side, int(corners), int(B)), {})
        place[int(H)] = shown.replace("%", " %")
    order = sorted(table, key=lambda key: (key[0] != "net", -int(key[1]), *key[2:]))
    return [
        [f"{kind}, {side} × {side}", str(corners), str(B), *(table[kind, side, corners, B].get(H, "") for H in WIDTHS)]
        for kind, side, corners, B in order
    ]


WIDTHS = (16, 32, 64, 128)


def serving() -> Cells:
    """Tokens a second, how long they took, and how many times as fast by the clock and by the server's CPU time."""
    table: dict[tuple[int, int], dict[str, Any]] = {}
    for r in read("serve")["over_websockets"]:
        table.setdefault((r["sessions"], r["clients"]), {})[r["way"]] = r
    rows: list[Sequence[str | None]] = []
    for (sessions, clients), ways in table.items():
        ours = ways["recur"]
        beside = [
            f"{ours['tokens_per_second'] / peer['tokens_per_second']:.1f}, "
            f"{peer['server_cpu_us'] / ours['server_cpu_us']:.1f}"
            for peer in (ways["torch.nn.LSTM"], ways["torch.nn.LSTMCell"])
        ]
        took = [f"{ours[key]:.0f}" if ours[key] >= 100 else f"{ours[key]:.1f}" for key in ("p50_ms", "p99_ms")]
        cpu = f"{ours['server_cpu_us']:.0f}"
        rows.append([f"{sessions:,}, {clients}", f"{ours['tokens_per_second']:,.0f}", *took, cpu, *beside])
    return rows


def cudnn() -> Cells:
    """Ours / cuDNN's, microseconds a step forward and backward; a star where cuDNN keeps W on the chip."""
    table: dict[str, dict[str, str]] = {}
    for r in read("gpu")["results"]:
        if not r["peer"].startswith("cuDNN"):
            continue
        cell, dtype = r["what"].partition(",")[0].split()
        took = r["both"]["us_a_step"]
        star = "\\*" if r["peer"].endswith("persistent") else ""
        shown = f"{number(took['ours'])} / {number(took['peer'])}{star}"
        table.setdefault(f"{r['B']}, {r['T']}, {r['H']}", {})[f"{cell} {dtype}"] = shown
    columns = [f"{cell} {dtype}" for dtype in ("float32", "bfloat16", "float16") for cell in ("elman", "gru", "lstm")]
    return [[size, *(row[column] for column in columns)] for size, row in table.items()]


def exported() -> Cells:
    rows: list[Sequence[str | None]] = []
    for r in read("export")["steps"]:
        took = r["microseconds"]
        rows += [
            [None, *(f"{took[f'{way} {kind}']:.0f}" for way in ("C", "ONNX Runtime", "stream"))]
            for kind in ("float32", "8 bit")
        ]
    return rows


def sized() -> Cells:
    """A fixed default, the rule with its seeds, the best of the sweep and of how many, and the two last divided."""
    order = ["Multi30k German", "Multi30k English", "subjectivity", "pydoc"]
    rows: list[Sequence[str | None]] = []
    for r in sorted(read("sizing")["compared"], key=lambda r: order.index(r["case"].partition(",")[0])):
        digits = 3 if r["rule"] < 10 else 1
        rule, default, best = (f"{r[key]:.{digits}f}" for key in ("rule", "default", "best"))
        shown = f"**{rule}**" if r["rule"] < min(r["default"], r["best"]) else rule
        spread = f"({min(r['seeds']):.{digits}f} … {max(r['seeds']):.{digits}f})"
        rows.append([None, default, f"{shown} {spread}", best, str(r["trials"]), f"{r['ratio']:.2f}"])
    return rows


def graphs() -> Cells:
    """Tokens a second, to thousands."""
    rows: list[Sequence[str | None]] = []
    for r in read("gpu-training")["rows"]:
        recorded, *others = (f"{round(r['tokens_per_second'][way], -3):,.0f}" for way in ("recur", "eager", "by hand"))
        rows.append([None, f"{r['B']} × {r['T']}", f"**{recorded}**", *others])
    return rows


def parts() -> Cells:
    """Of a step of the largest."""
    found = read("gpu-training")["rows"][-1]["parts"]
    order = ("recurrence", "output and loss", "embedding", "clip, optimiser", "weight dropout")
    return [
        [None, f"{p['us']:,.0f}", f"{100 * p['share']:.0f} %", f"{p['floor_us']:,.0f}"]
        for p in (found[name] for name in order)
    ]


def scaled() -> Cells:
    """Efficiency, compute / (compute + waiting), by width and GPUs."""
    table: dict[int, list[str]] = {}
    for r in read("scaling")["rows"]:
        kinds = ["float32", "bfloat16"] if r["gpus"] == 1024 else ["float32"]
        shares = [r[kind]["compute"] / (r[kind]["compute"] + r[kind]["waiting"]) for kind in kinds]
        table.setdefault(r["width"], []).extend(f"{share:.0%}".replace("%", " %") for share in shares)
    return [[None, *shares, None] for shares in table.values()]


FAULTS = (
    "fine", "rate too high", "diverging", "dead units", "forget gate closed", "window too short", "too small",
    "over-fitted", "under-trained",
)  # fmt: skip


def diagnosed() -> Cells:
    """How often each condition was named where each was planted."""
    found = Counter((r["expected"], r["found"]) for r in read("diagnosis")["rows"])
    return [[None, *(str(found[planted, named] or "") for named in FAULTS)] for planted in FAULTS]


ROWS: dict[str, Callable[[], Cells]] = {
    "native": native, "streaming": streaming, "trees": trees, "grids": grids, "serving": serving, "cudnn": cudnn,
    "export": exported, "sizing": sized, "graphs": graphs, "parts": parts, "diagnosis": diagnosed,
    "scaling": scaled,
}  # fmt: skip


def scan(words: str, passes: str) -> list[dict[str, Any]]:
    return [r for r in read("scan")["results"] if words in r["what"] and r["what"].endswith(f", {passes}")]


def two_digits(value: float, least: float = 0.0) -> str:
    """As many as matter of a figure from a busy machine."""
    return f"{value:.0f}" if value >= 9.95 else f"{max(value, least):.1f}"
