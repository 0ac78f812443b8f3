"""`--to html page.html`: a model in one file that opens offline, with a page of its task.

Nothing is loaded and nothing is sent: the policy in the page allows its own style and script, by their hashes, and no
request at all. Weights are 8 bits unless `quantize` is false. Where node is here, the page's code is run in it and
compared with PyTorch before the file is kept.
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

from recur.export import Options, Written
from recur.export.compare import check
from recur.export.graphs import Portable
from recur.export.html_example import example
from recur.export.javascript_check import difference, node
from recur.export.javascript_model import JavaScript, javascript, source
from recur.files import write_atomically

TAKES = {"quantize"}

PAGE = ("words.js", "dom.js", "chart.js", "view_language.js", "view_text.js", "view_numbers.js", "app.js")
"""Behind the model's own code."""


ELSEWHERE = {"run", "task", "known", "past", "moves", "features", "numbers", "words"}
"""Facts that the page shows in another way, or that tell its reader nothing."""

SMALL = 2_000_000
"""Bytes from which on it is said what they are."""


def write(portable: Portable, path: Path, options: Options) -> Written:
    quantize = options.quantize is not False
    made = javascript(portable, quantize)
    made.about["example"] = example(portable)
    content = page(portable, made, quantize).encode()
    found = None if node() is None else check(difference(portable, made, quantize), "the page")
    write_atomically(path, content)
    holds = f"{portable.task}, {'8-bit' if quantize else 'float32'} weights, a page that works offline"
    notes = portable.notes
    if made.about["example"]:
        rows = str(made.about["example"]).count("\n") + 1
        notes = (*notes, f"the page opens with an example of {rows} rows, taken from what the run learned from")
    if len(content) > SMALL and "ngrams" in portable.vocabs:
        notes = (
            *notes,
            "most of it is the plain models of n-grams that the network is mixed with; --no-plain leaves them away",
        )
    return Written((path,), len(content), found, holds, f"open {path} in a browser", notes)


def page(portable: Portable, made: JavaScript, quantize: bool) -> str:
    name = Path(portable.name).name or portable.name
    script = "\n".join(['"use strict";', "(() => {", made.code, *map(source, PAGE), "})();"])
    style = source("style.css")
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}' 'wasm-unsafe-eval'; style-src '{_hash(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    about = made.about | {
        "name": name,
        "facts": _facts(portable),
        "notes": list(portable.notes),
        "weights": "int8" if quantize else "float32",
    }
    parts = {"policy": policy, "title": f"{_text(name)} · {portable.task}", "style": style, "script": script}
    parts["weights"] = made.weights
    whole = len(_filled(parts | {"about": _json(about | {"bytes": ""})}).encode()) - len('""')
    about["bytes"] = whole + len(str(whole + len(str(whole))))  # its own digits count too
    return _filled(parts | {"about": _json(about)})


def _filled(parts: dict[str, str]) -> str:
    """The page, whose gaps are `{name}`, each once."""
    found = source("page.html")
    for name, text in parts.items():
        before, _, behind = found.partition("{" + name + "}")
        found = before + text + behind
    return found


def _facts(portable: Portable) -> list[tuple[str, str]]:
    """What stands below the name."""
    return [(name, value) for name, value in portable.facts.items() if name not in ELSEWHERE]


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _text(name: str) -> str:
    return name.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")


def _json(content: object) -> str:
    """In a script element, which nothing inside may end."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
