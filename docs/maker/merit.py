"""The figures of merit: one page of every table of bench/results and docs/results.md.

Nothing here is typed: a figure stands in a file that a benchmark wrote, or in a table of docs/results.md, and comes to
the page when the site is built. What other pages and the READMEs name of them is copied: `copied.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from docs.maker.languages import CHINESE, DOCS, ROOT, without_stamp

RESULTS = ROOT / "bench" / "results"

Row = Sequence[object]
Table = tuple[Sequence[str], Sequence[Row]]

TITLES = {
    "scan": ("A layer beside torch.nn, on the CPU", "CPU 上的一层，与 torch.nn 并排"),
    "streaming": ("One step of a stream, µs", "流式一步的用时，µs"),
    "calls": ("What a small call costs, µs", "一次小调用的开销，µs"),
    "training": ("Training and sampling, on the CPU", "CPU 上的训练与采样"),
    "counting": ("Counting n-grams and reading text", "n 元语法计数与读文本"),
    "writing": ("Encoder–decoders", "编码器–解码器"),
    "trees": ("Trees", "树"),
    "grids": ("Grids", "网格"),
    "serve": ("Serving", "在线服务"),
    "xray": ("X-ray and the studio, seconds", "X 光与工作台，秒"),
    "diagnosis": ("Does the diagnosis find what was planted?", "诊断能否查出预设的毛病？"),
    "gpu": ("A layer beside cuDNN, on a GPU", "GPU 上的一层，与 cuDNN 并排"),
    "gpu-training": ("Training a language model on a GPU", "在 GPU 上训练语言模型"),
    "flashrnn": ("A layer beside cuDNN and FlashRNN, on a GPU", "GPU 上的一层，与 cuDNN、FlashRNN 并排"),
    "scaling": ("Efficiency on many GPUs, computed", "多块 GPU 的效率，推算"),
    "sizing": ("A network sized by rule beside a sweep, perplexity", "按规则定大小与随机搜索，困惑度"),
    "export": ("What is exported", "导出"),
    "studio": ("The page in a browser", "浏览器中的网页"),
    "diagnosis-first": ("The diagnosis on the texts that were looked at first", "诊断：最初试的文本"),
}
WORDS = {
    "what": "内容", "threads": "线程", "ours": "recur", "peer": "对照", "times as fast": "倍速", "quartiles": "四分位",
    "MiB": "MiB", "MiB, peer": "MiB，对照", "measured": "测量项", "value": "值", "cell": "单元",
    "ours, ms": "recur，毫秒", "peer, ms": "对照，毫秒", "forward, µs a step": "正向，每步微秒",
    "both, µs a step": "正向与反向，每步微秒", "tokens/s, recur": "词元/秒，recur",
    "tokens/s, eager": "词元/秒，不录制图", "tokens/s, by hand": "词元/秒，手写", "way": "方式",
    "sessions": "会话", "clients": "连接", "p50_ms": "p50，毫秒", "p99_ms": "p99，毫秒", "tokens_per_second": "词元/秒",
    "fault": "预设的毛病", "text": "文本", "token": "词元", "seed": "种子",
    "expected": "应指出", "found": "指出了", "case": "情形", "hidden": "单元数", "width": "宽度", "float32": "float32",
    "bfloat16": "bfloat16", "fixed default": "固定默认", "rule": "规则", "best of the sweep": "搜索中最好的",
    "of": "次数", "rule / sweep": "规则 / 搜索", "FlashRNN": "FlashRNN", "GPUs": "GPU 块数",
}  # fmt: skip


def number(value: object) -> str:
    """Three digits that matter, as a person writes them."""
    if isinstance(value, bool) or value is None:
        return "" if value is None else str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    if isinstance(value, list):
        return "–".join(number(part) for part in value)
    return str(value)


def beside(found: dict[str, Any]) -> Table:
    """Ours and a peer's, in milliseconds, as bench.side_by_side writes them."""
    rows = []
    for r in found["results"]:
        ratio = r.get("ratio")
        times = r["times"] if ratio is None else 1 / ratio
        spread = [1 / q for q in reversed(r["quartiles"])] if r.get("quartiles") else None
        rows.append(
            [r["what"], r["threads"], r["ours_ms"], r["peer_ms"], times, spread, r.get("ours_mib"), r.get("peer_mib")]
        )
    return ["what", "threads", "ours, ms", "peer, ms", "times as fast", "quartiles", "MiB", "MiB, peer"], rows


def streaming(found: dict[str, Any]) -> Table:
    names = sorted({name for r in found["results"] for name in r["microseconds"]}, key=lambda n: (n != "recur", n))
    rows = [
        [f"LSTM, H {r['hidden']}", r["threads"], *(r["microseconds"].get(n) for n in names)] for r in found["results"]
    ]
    return ["what", "threads", *names], rows


def calls(found: dict[str, Any]) -> Table:
    names = list(found["results"][0]["microseconds"])
    return ["what", *names], [[r["what"], *(r["microseconds"][n] for n in names)] for r in found["results"]]


def gpu(found: dict[str, Any]) -> Table:
    rows = [
        [r["what"], r["peer"], r["forward"]["us_a_step"]["ours"], r["forward"]["us_a_step"]["peer"],
         r["both"]["us_a_step"]["ours"], r["both"]["us_a_step"]["peer"], r["both"]["times"]]
        for r in found["results"]
    ]  # fmt: skip
    return ["what", "peer", "forward, µs a step", "peer", "both, µs a step", "peer", "times as fast"], rows


def gpu_training(found: dict[str, Any]) -> Table:
    names = list(found["rows"][0]["tokens_per_second"])
    rows = [
        [f"{r['case']}, {r['precision']}, B {r['B']} T {r['T']}", *(r["tokens_per_second"].get(n) for n in names)]
        for r in found["rows"]
    ]
    return ["what", *(f"tokens/s, {name}" for name in names)], rows


def diagnosis(found: dict[str, Any]) -> Table:
    keys = ["fault", "text", "token", "seed", "expected", "found"]
    return keys, [[r[key] for key in keys] for r in found["rows"]]


def serve(found: dict[str, Any]) -> Table:
    keys = ["way", "sessions", "clients", "p50_ms", "p99_ms", "tokens_per_second"]
    return keys, [[r[key] for key in keys] for r in found["over_websockets"]]


def listed(found: dict[str, Any]) -> Table:
    """Whatever it holds, a line a figure."""
    rows: list[Row] = []

    def walk(name: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, part in value.items():
                walk(f"{name}, {key}" if name else str(key), part)
        elif isinstance(value, int | float | str):
            rows.append([name.replace("_", " "), value])

        elif isinstance(value, list) and value and isinstance(value[0], dict):
            for part in value:
                (key, of), *rest = part.items()
                walk(f"{name}, {key} {number(of)}", dict(rest))

    walk("", {key: value for key, value in found.items() if key != "machine"})
    return ["measured", "value"], rows


def flashrnn(found: dict[str, Any]) -> Table:
    """Forward and backward, µs a step."""
    rows = [
        [r["what"], *(r["both"]["us_a_step"].get(who) for who in ("ours", "peer", "FlashRNN"))]
        for r in found["results"]
    ]
    return ["what", "ours", "cuDNN", "FlashRNN"], rows


def scaling(found: dict[str, Any]) -> Table:
    def share(spent: dict[str, float]) -> str:
        return f"{spent['compute'] / (spent['compute'] + spent['waiting']):.0%}"

    rows = [[r["width"], r["gpus"], share(r["float32"]), share(r["bfloat16"])] for r in found["rows"]]
    return ["width", "GPUs", "float32", "bfloat16"], rows


def sizing(found: dict[str, Any]) -> Table:
    keys = ["case", "default", "rule", "best", "trials", "ratio"]
    heads = ["case", "fixed default", "rule", "best of the sweep", "of", "rule / sweep"]
    return heads, [[r[key] for key in keys] for r in found["compared"]]


TABLES: dict[str, Callable[[dict[str, Any]], Table]] = {
    "scan": beside, "trees": beside, "writing": beside, "grids": beside, "streaming": streaming, "calls": calls,
    "gpu": gpu, "gpu-training": gpu_training, "serve": serve, "diagnosis": diagnosis,
    "training": listed, "counting": listed, "xray": listed, "export": listed, "studio": listed,
    "diagnosis-first": diagnosis, "flashrnn": flashrnn, "scaling": scaling, "sizing": sizing,
}  # fmt: skip


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def provenance(machine: dict[str, Any], language: str) -> str:
    """When, on what, of which commit."""
    where = machine.get("device") or machine.get("gpu") or f"{machine['processor']}, {machine['cores']} cores"
    parts = [machine["date"], where, f"torch {machine['torch']}", f"commit {machine['commit']}"]
    return " · ".join(parts).replace(" cores", " 核" if language == "zh" else " cores")


def markdown(table: Table, language: str) -> str:
    heads, rows = table
    heads = [WORDS.get(head, head) if language == "zh" else head for head in heads]
    numeric = [any(isinstance(row[k], int | float | list) for row in rows) for k in range(len(heads))]
    lines = [
        heads,
        ["--:" if right else "---" for right in numeric],
        *[[number(value) for value in row] for row in rows],
    ]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def published(language: str) -> str:
    """The tables of docs/results.md, under their headings."""
    path = CHINESE / "results.md" if language == "zh" and (CHINESE / "results.md").exists() else DOCS / "results.md"
    parts = []
    for section in re.split(r"^## ", without_stamp(path.read_text(encoding="utf-8")), flags=re.M)[1:]:
        title, _, body = section.partition("\n")
        tables = re.findall(r"^\|.*(?:\n\|.*)+", body, flags=re.M)
        if tables:
            parts.append(f"### {title}\n\n" + "\n\n".join(tables))
    return "\n\n".join(parts)


def page(language: str) -> str:
    intro = {
        "en": "# Figures of merit\n\nEvery table that was measured, beside its peers, with date, machine and commit. "
        "This page is made from `bench/results/*.json`, which `python -m bench` writes, and from the tables of "
        "[results](results.md), whose text says how they came about; [performance](performance.md) has the others. "
        "“Times as fast” is the peer's time by ours, a median; above 1 recur is faster. A commit that ends in "
        "`-dirty` had changes that were not committed yet.",
        "zh": "# 性能与效果一览\n\n所有测量过的表格，与对照并列，附日期、机器和提交。"
        "本页在建站时由 `python -m bench` 写出的 `bench/results/*.json` 生成，"
        "并收入[结果](results.md)一页的表格，那里说明了它们的来历；其余见[性能](performance.md)。"
        "“倍速”是对照的用时除以 recur 的用时，取中位数，大于 1 表示 recur 更快。"
        "提交号以 `-dirty` 结尾，表示当时有尚未提交的改动。",
    }[language]
    heads = {"en": ("Against published figures", "Benchmarks"), "zh": ("与已发表的数字相比", "基准测试")}[language]
    parts = [intro, f"## {heads[0]}", published(language), f"## {heads[1]}"]
    order = list(TITLES)
    for name in sorted(
        (path.stem for path in RESULTS.glob("*.json")), key=lambda n: order.index(n) if n in order else len(order)
    ):
        found, titles = read(name), TITLES.get(name, (name, name))
        table = TABLES.get(name, listed)(found)
        about = provenance({**found["machine"], "gpu": found.get("gpu")}, language)
        parts += [
            f"### {titles[language == 'zh']}",
            f"`bench/results/{name}.json` · {about}",
            markdown(table, language),
        ]
    return "\n\n".join(parts) + "\n"
