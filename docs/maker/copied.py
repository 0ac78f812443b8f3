"""Figures that pages and READMEs name, typed once: by the benchmark, or on the one page that tells of them.

<!-- merit:training.step.bare_ms:.1f -->8.5<!-- -->    a value of bench/results/training.json; three digits unless said
<!-- merit:gru -->2.5<!-- -->                          one that is worked out in `worked_out`
<!-- merit:tagging.md|names|1 -->82<!-- -->              a cell of an English page's table: of the row that begins so
<!-- figure:awd -->59.27<!-- -->                       typed here, on an English page, and
<!-- merit:awd:.1f -->59.3<!-- -->                     its copy elsewhere, the Chinese page among them
<!-- merit:rows:trees -->                              the rows of a table between this line and <!-- -->; its head is
                                                       the page's own, and so is a cell that is None in `ROWS`

`python -m docs merit` puts them in, and a test compares.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

from docs.maker.languages import DOCS, Pair, pairs
from docs.maker.merit import number, read
from docs.maker.tables import FAULTS, ROWS, Cells, scan

FORMATTED = re.compile(r"(.*?)(?::([.\d]*[a-z%]))?")
MARK = re.compile(r"(<!-- (merit|figure):([^>\n]+?) -->)(.*?)(<!-- -->)", re.S)


# Single figures ---------------------------------------------------------------------------------------------------


def worked_out() -> dict[str, str]:
    """What is more than a value of a file."""
    stream = {(r["hidden"], r["threads"]): r["microseconds"] for r in read("streaming")["results"]}[256, 1]
    layers = {"elman": "RNN", "gru": "GRU", "lstm": "LSTM"}
    size = "B 32 T 35 H 128, forward + backward"
    return {
        **{cell: f"{times('scan', f'{cell} on native / nn.{layers[cell]}, {size}', 2):.1f}" for cell in layers},
        "stream": f"{stream['recur']:.0f}",
        "stream-torch": f"{stream['torch.nn']:.0f}",
        **of_the_scan(),
        **of_the_gpu(),
        **of_the_server(),
        **of_small_calls(),
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


def of_small_calls() -> dict[str, str]:
    """Beyond the core's arithmetic."""
    found = read("calls")["results"]
    beyond = [(" a stream" in r["what"], r["microseconds"]["ours"] - r["microseconds"]["core"]) for r in found]
    training, stream = ([spent for streamed, spent in beyond if streamed == kind] for kind in (False, True))
    return {
        "calls-least": f"{min(training):.0f}",
        "calls-most": f"{max(training):.0f}",
        "calls-stream-least": f"{min(stream):.1f}",
        "calls-stream-most": f"{max(stream):.1f}",
    }


def of_the_diagnoses(name: str) -> dict[str, str]:
    rows = [r for r in read(name)["rows"] if r["expected"] in FAULTS]
    right = sum(r["found"] == r["expected"] for r in rows)
    return {f"{name}-runs": str(len(rows)), f"{name}-right": str(right), f"{name}-share": f"{right / len(rows):.0%}"}


def typed() -> dict[str, str]:
    """What English pages type under a name."""
    found: dict[str, str] = {}
    for pair in pairs():
        for _, kind, name, value, _ in MARK.findall(pair.english.read_text(encoding="utf-8")):
            if kind != "figure":
                continue
            if name in found:
                raise ValueError(f"figure:{name} is typed twice; say merit:{name} where it is not measured")
            found[name] = value
    return found


def cell_of(file: str, row: str, column: int) -> str:
    """A cell of a table of a page: of the first row that begins so."""
    for line in MARK.sub(r"\4", (DOCS / file).read_text(encoding="utf-8")).splitlines():
        if line.startswith(f"| {row} |"):
            return cells(line)[column].strip("* ")
    raise ValueError(f"docs/{file} has no row {row}")


def times(name: str, what: str, threads: int) -> float:
    """How many times as fast as its peer."""
    (found,) = [r for r in read(name)["results"] if r["what"] == what and r["threads"] == threads]
    return 1 / float(found["ratio"])


def value_of(path: str, known: dict[str, str]) -> str:
    """A known figure, a cell of a page or `FILE.KEY.KEY`, a number being a place in a list and a slash at the end one
    by the value; behind a colon the format."""
    path, form = FORMATTED.fullmatch(path).groups("")  # type: ignore[union-attr]
    if path in known or ".md|" in path:
        page, _, place = path.partition("|")
        row, _, column = place.rpartition("|")
        text = known[path] if path in known else cell_of(page, row, int(column))
        return format(float(text.replace(",", "")), form) if form else text
    path, inverse, _ = path.partition("/")
    file, *keys = path.split(".")
    if not keys:
        raise ValueError(
            f"merit:{path}: neither worked out in docs/maker/copied.py, typed on a page nor in bench/results"
        )
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


# Pages ------------------------------------------------------------------------------------------------------------


def with_figures(text: str) -> str:
    """A page with its figures as they are now."""
    known = worked_out() | typed()

    def filled(match: re.Match[str]) -> str:
        mark, kind, name, was, end = match.groups()
        if kind == "figure":
            return match[0]
        now = with_rows(was, ROWS[name.removeprefix("rows:")]()) if name.startswith("rows:") else value_of(name, known)
        return f"{mark}{now}{end}"

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
    return [cell.strip() for cell in row.strip().removeprefix("|").removesuffix("|").split("|")]


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
