"""Figures that pages and READMEs name, copied from what was measured: typed once, by the benchmark.

<!-- merit:training.step.bare_ms:.1f -->8.5<!-- -->    a value of bench/results/training.json; three digits unless said
<!-- merit:gru -->2.5<!-- -->                          one that is worked out in `worked_out`
<!-- merit:classifying.md|names|1 -->82<!-- -->        a cell of an English page's table: of the row that begins so
<!-- merit:rows:trees -->                              the rows of a table between this line and <!-- -->; its head is
                                                       the page's own, and so is a cell that is None in `ROWS`

`python -m docs merit` puts them in, and a test compares.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from docs.maker.languages import DOCS, Pair, pairs
from docs.maker.merit import number, read

MARK = re.compile(r"(<!-- merit:([^>\n]+?) -->)(.*?)(<!-- -->)", re.S)

Cells = Sequence[Sequence[str | None]]


# Tables -----------------------------------------------------------------------------------------------------------


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
}  # fmt: skip


# Single figures ---------------------------------------------------------------------------------------------------


def worked_out() -> dict[str, str]:
    """What is more than a value of a file."""
    stream = {(r["hidden"], r["threads"]): r["microseconds"] for r in read("streaming")["results"]}[256, 1]
    layers = {"elman": "RNN", "gru": "GRU", "lstm": "LSTM"}
    size = "B 32 T 35 H 128, forward + backward"
    return {
        "pydoc": cell_of("results.md", "language | pydoc, characters", 3),
        "pydoc-ngram": cell_of("results.md", "language | pydoc, characters", 4).split()[0],
        "kneser-ney": f"{float(cell_of('results.md', 'modified Kneser–Ney', -1)):.1f}",
        **{cell: f"{times('scan', f'{cell} on native / nn.{layers[cell]}, {size}', 2):.1f}" for cell in layers},
        "stream": f"{stream['recur']:.0f}",
        "stream-torch": f"{stream['torch.nn']:.0f}",
        **of_the_scan(),
        **of_the_gpu(),
        **of_the_server(),
        **of_the_diagnoses("diagnosis"),
        **of_the_diagnoses("diagnosis-first"),
    }


def of_the_scan() -> dict[str, str]:
    found = {}
    for name, passes in (("scan", "forward + backward"), ("scan-forward", "forward")):
        for threads in (1, 2):
            of_these = [1 / r["ratio"] for r in scan(" on native / nn.", passes) if r["threads"] == threads]
            found[f"{name}-mean-{threads}"] = f"{math.exp(math.fsum(map(math.log, of_these)) / len(of_these)):.2f}"
    both = scan(" on native / nn.", "forward + backward")
    lstm = [1 / r["ratio"] for r in both if r["what"].startswith("lstm")]
    found |= {"scan-lstm-least": f"{min(lstm):.2f}", "scan-lstm-most": f"{max(lstm):.2f}"}
    found["scan-others-least"] = f"{min(1 / r['ratio'] for r in both if not r['what'].startswith('lstm')):.2f}"
    for cell in ("lstm", "gru", "elman"):
        shares = [100 * r["ours_mib"] / r["peer_mib"] for r in both if r["what"].startswith(cell)]
        found |= {f"scan-memory-{cell}-least": f"{min(shares):.0f}", f"scan-memory-{cell}-most": f"{max(shares):.0f}"}
    for cell in ("PeepholeLSTM", "LeakyGRU"):
        ratios = [r["ratio"] for r in read("scan")["results"] if r["what"].startswith(cell)]
        found |= {f"scan-{cell}-least": f"{min(ratios):.2f}", f"scan-{cell}-most": f"{max(ratios):.2f}"}
    return found


def of_the_gpu() -> dict[str, str]:
    gpu = read("gpu")
    means = gpu["means"]
    found = {"gpu": str(gpu["machine"]["device"])}
    kinds = {dtype: f"{dtype} beside cuDNN" for dtype in ("float32", "bfloat16", "float16")}
    for name, kind in (kinds | {"persistent": "float16 beside cuDNN, persistent"}).items():
        found[f"gpu-{name}"] = f"{means[kind]['both']:.1f}"
        found[f"gpu-{name}-mean"], found[f"gpu-{name}-forward"] = (f"{means[kind][p]:.2f}" for p in ("both", "forward"))
    beside = [r["both"]["times"] for r in gpu["results"] if r["peer"].startswith("cuDNN")]
    return found | {"gpu-rows": str(len(beside)), "gpu-slower": str(sum(times < 1 for times in beside))}


def of_the_server() -> dict[str, str]:
    steps = {(r["sessions"], r["way"]): r["tokens_per_second"] for r in read("serve")["in_process"]}
    return {
        f"serve-steps-{sessions}-{way}": f"{steps[sessions, 'recur'] / steps[sessions, f'torch.nn.{way}']:.1f}"
        for sessions in (1, 100, 1000)
        for way in ("LSTM", "LSTMCell")
    }


def of_the_diagnoses(name: str) -> dict[str, str]:
    rows = [r for r in read(name)["rows"] if r["expected"] in FAULTS]
    right = sum(r["found"] == r["expected"] for r in rows)
    return {f"{name}-runs": str(len(rows)), f"{name}-right": str(right), f"{name}-share": f"{right / len(rows):.0%}"}


def cell_of(file: str, row: str, column: int) -> str:
    """A cell of a table of a page: of the first row that begins so."""
    for line in (DOCS / file).read_text(encoding="utf-8").splitlines():
        if line.startswith(f"| {row} |"):
            return line.strip("| ").split(" | ")[column].strip("* ")
    raise ValueError(f"docs/{file} has no row {row}")


def scan(words: str, passes: str) -> list[dict[str, Any]]:
    return [r for r in read("scan")["results"] if words in r["what"] and r["what"].endswith(f", {passes}")]


def times(name: str, what: str, threads: int) -> float:
    """How many times as fast as its peer."""
    (found,) = [r for r in read(name)["results"] if r["what"] == what and r["threads"] == threads]
    return 1 / float(found["ratio"])


def value_of(path: str) -> str:
    """`FILE.KEY.KEY:FORMAT`, a number being a place in a list; a slash at the end: one by the value."""
    if ".md|" in path:
        page, row, column = path.split("|")
        return cell_of(page, row, int(column))
    path, _, form = path.partition(":")
    path, inverse, _ = path.partition("/")
    file, *keys = path.split(".")
    if not keys:
        raise ValueError(f"merit:{path}: neither worked out in docs/maker/copied.py nor a value of bench/results")
    value: Any = read(file)
    try:
        for key in keys:
            value = value[int(key)] if isinstance(value, list) else value[key]
    except (KeyError, IndexError) as error:
        raise ValueError(f"merit:{path}: bench/results/{file}.json has no {key}") from error
    if inverse:
        value = 1 / value
    return format(value, form) if form else number(three_digits(value))


def three_digits(value: object) -> object:
    return float(f"{value:.3g}") if isinstance(value, float) and abs(value) >= 1000 else value


def two_digits(value: float, least: float = 0.0) -> str:
    """As many as matter of a figure from a busy machine."""
    return f"{value:.0f}" if value >= 9.95 else f"{max(value, least):.1f}"


# Pages ------------------------------------------------------------------------------------------------------------


def with_figures(text: str) -> str:
    """A page with its figures as they are now."""
    known = worked_out()

    def filled(match: re.Match[str]) -> str:
        name, was = match[2], match[3]
        if name.startswith("rows:"):
            return f"{match[1]}{with_rows(was, ROWS[name.removeprefix('rows:')]())}{match[4]}"
        return f"{match[1]}{known[name] if name in known else value_of(name)}{match[4]}"

    return MARK.sub(filled, text)


def with_rows(table: str, rows: Cells) -> str:
    """A table with other rows below its head."""
    head, line, *old = table.strip().split("\n")
    labels = [cells(row) for row in old]
    if any(None in row for row in rows) and len(rows) != len(labels):
        raise ValueError(f"{len(rows)} rows were measured, and the table has labels of {len(labels)}: {head}")
    filled = [[labels[at][k] if cell is None else cell for k, cell in enumerate(row)] for at, row in enumerate(rows)]
    return "\n\n" + "\n".join([head, line, *("| " + " | ".join(row) + " |" for row in filled)]) + "\n\n"


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip().removeprefix("|").removesuffix("|").split(" | ")]


def marked() -> list[Pair]:
    """Pages that name figures."""
    return [found for found in pairs() if any(MARK.search(path.read_text(encoding="utf-8")) for path in found)]


def written() -> dict[Path, str]:
    """Those pages as they should be."""
    return {path: with_figures(path.read_text(encoding="utf-8")) for found in marked() for path in found}


def write() -> None:
    """A pair of pages that was in step stays so: both get the same figures."""
    for found in marked():
        in_step = found.why_stale() is None
        for path in found:
            path.write_text(with_figures(path.read_text(encoding="utf-8")), encoding="utf-8")
        if in_step:
            found.stamp()
