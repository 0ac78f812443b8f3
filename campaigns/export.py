"""Runs with hostile names, exported: no name may become code, and every name must arrive as data.

Every label, token, tag and column of a small run of each task, and the name of its folder, is replaced by text that
ends comments, strings, elements and lines, fills placeholders, and carries code for C, the preprocessor, JavaScript and
HTML that creates a file. The run is then exported: C must compile, agree with Python and return its labels; a page must
hold no script but its own and show its name; ONNX must load and carry the names. The file must never appear.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

from campaigns.campaign import Attempt, dice
from campaigns.damage import forge
from campaigns.small import Undisturbed, forked, set_up
from recur.data.text import SPECIALS
from recur.export import BUILDERS, export, to_portable
from recur.export.escaping import unicode_text
from recur.export.html import find_node
from recur.tasks import open_predictor

TRIES = 270
MARKER = "PWNED"

C_CODE = 'extern int system(const char *); __attribute__((constructor)) static void f(void) { system("touch PWNED"); }'
CODE = (
    C_CODE,
    f'require("fs").writeFileSync("{MARKER}", "")',
    f'<img src=x onerror="{MARKER}()">',
    f"<script>{MARKER}()</script>",
    f"#error {MARKER}",
    f'#include "{MARKER}"',
    f'_Pragma("GCC error \\"{MARKER}\\"")',
)
ENDS = (
    "*/", "*\\", "*\\/", "*\\\n/", "*??/\n/", "*??/", "* /", "/*", "//", "// \\\n", "\n", "\r\n", "\r", "\v", "\f",
    "\0", "\\", "\\\\", "\\n", "\\u002a/", "\\x2a/", '"', "'", "`", '");', '\\");', "${", "}", ";", "%s", "%(v)s", "%%",
    "@", "@@", "??<", "??>", "??(", "$&", "$'", "</script>", "</SCRIPT ", "<script>", "<!--", "<!--<script>", "-->",
    "]]>", "</title>", "</style>", "{script}", "{about}", "{weights}", "{title}", "{policy}", "{count}", "&lt;",
    "&#60;", "\u2028", "\u2029", "\x85", "\x1b[31m", "\u202e", "\u200f", "\u2066", "\ufeff", "\uffff", "__proto__",
    "constructor", "=", ",", "é", "e\u0301", "漢", "🦄", "İ", "\U000e0001",
)  # fmt: skip
"""Pieces that end, begin or change something in one of the languages; a name is several of them around code."""

WHOLE = ("__proto__", "constructor", "{script}", "{about}", "*/", "*\\", "</script>", "toString", "$&", "a" * 3000)
"""Names as they are."""

PREFIXES = ("covariate ", "static ")
"""Columns of a forecaster whose beginning says what they are; others that begin with `calendar` are no names at all."""


def attempts(seed: int, numbers: Iterable[int]) -> Iterator[Attempt]:
    home = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="recur-export-") as folder:
        set_up(Path(folder))
        try:
            runs = _Runs()
            for number in numbers:
                yield _attempt(number, runs, dice(seed, number))
        finally:
            os.chdir(home)


class _Runs:
    """A finished run of each task. What exports import and cache is there before a process is forked."""

    def __init__(self) -> None:
        self._undisturbed = Undisturbed()
        self._known: set[str] = set()

    def path(self, task: str) -> Path:
        path = Path(self._undisturbed.path(task))
        if task not in self._known:
            self._undisturbed.result(task)
            if task == "forecast":  # whose columns are compared with those of the table, where it is there
                Path("series.csv").unlink()
            to_portable(open_predictor([path], "cpu", trust=True))
            self._known.add(task)
        return path


def _attempt(number: int, runs: _Runs, rng: random.Random) -> Attempt:
    tasks, targets = sorted(BUILDERS), sorted(TARGETS)
    task, target = tasks[number % len(tasks)], targets[number // len(tasks) % len(targets)]
    whole = runs.path(task)
    copy = Path("runs") / _folder_name(rng)
    shutil.copytree(whole, copy)
    try:
        names = _rename(copy, rng)
        given = _Given(copy, names)
        ended = forked(lambda: _export(given, target), seconds=120)
        failure = ended.fault or ended.out.strip() or (f"it returned {ended.code}: {ended.err}" if ended.code else None)
        if Path(MARKER).exists():
            failure = "code of a name was run"
    finally:
        shutil.rmtree("runs")
        Path(MARKER).unlink(missing_ok=True)
    return Attempt(number, f"{task} to {target}, as {copy.name!a}", failure)


# Hostile runs ----------------------------------------------------------------------------------------------------


def hostile(rng: random.Random) -> str:
    """Return a name that attacks some language."""
    if rng.random() < 0.1:
        return rng.choice(WHOLE)
    pieces = [rng.choice(ENDS) for _ in range(rng.randrange(1, 5))]
    if rng.random() < 0.7:
        pieces.insert(rng.randrange(1, len(pieces) + 1), rng.choice(CODE))
    return rng.choice(("", "", " ", "\n")).join(pieces)


def _folder_name(rng: random.Random) -> str:
    """Return a name that a file system takes: without / and NUL, of 200 bytes, and sometimes not in UTF-8."""
    text = re.sub("[/\0]", "", hostile(rng))[:48].strip(".") or "{script}"
    return text + ("\udcff" if rng.random() < 0.2 else "")


def _rename(run: Path, rng: random.Random) -> dict[str, list[str]]:
    """Replace every token of every vocabulary of a run, and the target of a table; return the tokens by vocabulary."""
    found: dict[str, list[str]] = {}
    for name in json.loads((run / "manifest.json").read_bytes())["vocabularies"]:
        path = run / f"{name}.json"
        content = json.loads(path.read_bytes())
        taken = dict.fromkeys(SPECIALS)
        for token in content["tokens"][len(SPECIALS) :]:
            taken[_other(token, name, rng, taken)] = None
        found[name] = content["tokens"] = list(taken)
        path.write_text(json.dumps(content))
    config = run / "config.toml"
    text = config.read_text()
    config.write_text(re.sub(r'^target = "[^"]*"$', lambda _: f"target = {_toml(hostile(rng))}", text, flags=re.M))
    assert forge(run, [str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()])
    return found


def _other(token: str, vocabulary: str, rng: random.Random, taken: dict[str, None]) -> str:
    """Return a hostile token that is not taken yet. Columns that a forecaster computes itself keep their names."""
    prefix = next((prefix for prefix in PREFIXES if token.startswith(prefix)), "")
    if vocabulary in ("known", "past") and not prefix:
        return token
    made = prefix + hostile(rng)
    while made in taken:
        made += rng.choice(ENDS)
    return made


def _toml(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


# Targets ---------------------------------------------------------------------------------------------------------


class _Given(NamedTuple):
    run: Path
    tokens: dict[str, list[str]]
    """By vocabulary."""

    @property
    def labels(self) -> list[str]:
        return self.tokens.get("labels", [])[len(SPECIALS) :]

    def printed(self, function: str) -> list[str]:
        """Return what a function of a header gives for 0, 1, …."""
        return self.labels if function == "model_label(" else self.tokens.get("target") or self.tokens["vocab"]


def _export(given: _Given, target: str) -> int:
    """Export a run in this process, and print what is wrong with the files."""
    ending, check = TARGETS[target]
    predictor = open_predictor([given.run], "cpu", trust=True)
    written = export(predictor, target, f"model.{ending}")
    problems = [check(path, given) for path in written.paths]
    for path in written.paths:
        path.unlink()
    print(next(filter(None, problems), ""))
    return 0


CALLER = """\
#include "model.h"
#include <stdio.h>
int main(void) {
#ifdef %(names)s
    for (int32_t k = -1; k <= %(names)s; ++k) {
        %(call)s
        putchar(0);
    }
#endif
    return 0;
}
"""
"""Prints every label or token, and that of a number before the first and of one behind the last."""

PRINTED = {
    "model_label(": ("MODEL_CLASSES", "fputs(model_label(k), stdout);"),
    "model_token(": (
        "MODEL_VOCABULARY",
        "int32_t n; const char *const t = model_token(k, &n); fwrite(t, 1, (size_t)n, stdout);",
    ),
}


def _check_c(path: Path, given: _Given) -> str | None:
    """The self-test of the header has run. Without its comments no marker is left; labels and tokens come back."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    strict = [compiler, "-std=c99", "-Wall", "-Wextra", "-Wno-unused-function", "-Werror", "-pedantic"]
    seen = subprocess.run([compiler, "-std=c99", "-E", "-P", "-x", "c", path], capture_output=True, check=True)
    if MARKER.encode() in seen.stdout:
        return "a name stands outside of the comments"
    header = path.read_text()
    for function, (names, call) in PRINTED.items():
        if function not in header:
            continue
        Path("caller.c").write_text(CALLER % {"names": names, "call": call})
        built = subprocess.run([*strict, "caller.c", "-o", "caller", "-lm"], capture_output=True, text=True)
        if built.returncode:
            return f"a program with the header does not compile: {built.stderr[:500]}"
        made = subprocess.run(["./caller"], capture_output=True, check=True).stdout
        wanted = [name.encode() for name in given.printed(function)]
        if function == "model_label(":
            wanted = [name.split(b"\0")[0] for name in wanted]  # a string of C ends there
        if wanted and made != b"\0".join([b"", *wanted, b"", b""]):
            return f"{function}k) gives {made[:300]!r}"
    return None


class _Page(HTMLParser):
    """The elements of a page, and what stands in its scripts and its title."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.inside: dict[str, str] = {}
        self._open = ""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        kept = dict(attributes)
        self.elements.append(tag)
        self._open = f"{tag}#{kept.get('id', '')}"
        if tag == "meta" and "content" in kept:
            self.inside[f"meta#{kept.get('http-equiv', kept.get('name'))}"] = str(kept["content"])

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, text: str) -> None:
        self.inside[self._open] = self.inside.get(self._open, "") + text


ELEMENTS = [
    "html", "head", *["meta"] * 5, "title", "link", "style", "body", "a", "header", "main", "footer", "noscript", "p",
    *["script"] * 3,
]  # fmt: skip
"""All that a page consists of before its script runs."""

SHOWN = """
const texts = new Map(Object.entries(%s));
class Element {
  constructor(tag) { Object.assign(this, { tag, children: [], style: { setProperty() {} }, value: "" }); }
  append(...more) { this.children.push(...more); }
  replaceChildren(...more) { this.children = more; }
  setAttribute() {} addEventListener() {} focus() {}
  querySelector() { return new Element("any"); }
  querySelectorAll() { return []; }
  get textContent() { return this.children.map((child) => child.textContent ?? String(child)).join(""); }
  set textContent(text) { this.children = [text]; }
}
const known = new Map(["header", "main", "footer", ".skip"].map((name) => [name, new Element(name)]));
globalThis.document = {
  documentElement: { clientWidth: 800 },
  getElementById: (id) => ({ textContent: texts.get(id) }),
  querySelector: (name) => known.get(name),
  createElement: (tag) => new Element(tag), createElementNS: (_, tag) => new Element(tag),
};
Object.defineProperty(globalThis, "navigator", { value: { language: %s } });
globalThis.addEventListener = () => {};
require(%s);
const find = (node, tag) => (node.tag === tag ? [node] : (node.children ?? []).flatMap((child) => find(child, tag)));
console.log(JSON.stringify([find(known.get("header"), "h1")[0].textContent, known.get("main").textContent.length]));
process.exit(0);
"""
"""The page in node, with a document that holds no more than the page asks of it."""


def _check_page(path: Path, given: _Given) -> str | None:
    """The page has its own elements, its own script by its hash, its data, and it shows its name."""
    text = path.read_text()
    page = _Page()
    page.feed(text)
    page.close()
    if page.elements != ELEMENTS:
        return f"its elements are {page.elements}"
    script, about = page.inside["script#"], page.inside["script#about"]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    if f"script-src 'sha256-{digest}'" not in page.inside["meta#Content-Security-Policy"] or MARKER in script:
        return "its script is not its own"
    if set(about) & set("<>&") or not about.isprintable():
        return "its data holds a sign that is not escaped"
    found = json.loads(about)
    if found["name"] != given.run.name or (given.labels and found["labels"] and found["labels"] != given.labels):
        return f"its data has other names: {found['name']!r}, {found['labels']!r}"
    return _shown(page, given) if find_node() is not None else None


def _shown(page: _Page, given: _Given) -> str | None:
    Path("page.js").write_text(page.inside["script#"])
    texts = json.dumps({name: page.inside[f"script#{name}"] for name in ("about", "weights")})
    for language in ("en", "zh"):
        Path("shown.js").write_text(SHOWN % (texts, json.dumps(language), json.dumps(os.path.abspath("page.js"))))
        ran = subprocess.run([str(find_node()), "shown.js"], capture_output=True, text=True, errors="replace")
        if ran.returncode:
            return f"node does not run the page: {ran.stderr[-600:]}"
        name, size = json.loads(ran.stdout)
        if unicode_text(name) != unicode_text(given.run.name) or not size:
            return f"the page shows {name!r} and {size} characters"
    return None


def _check_onnx(path: Path, given: _Given) -> str | None:
    """The model loads, and its metadata has the names."""
    import onnx
    import onnxruntime

    onnx.checker.check_model(onnx.load(path), full_check=True)
    said = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).get_modelmeta().custom_metadata_map
    if said["run"] != unicode_text(given.run.name):
        return f"its metadata has the run {said['run']!r}"
    if given.labels and "labels" in said and json.loads(said["labels"]) != given.labels:
        return f"its metadata has the labels {said['labels']}"
    for name, tokens in given.tokens.items():
        key = "vocabulary" if name == "vocab" else f"vocabulary.{name}"
        if key in said and json.loads(said[key])["tokens"] != tokens:
            return f"its metadata has other tokens in {key}"
    return None


TARGETS: dict[str, tuple[str, Callable[[Path, _Given], str | None]]] = {
    "c": ("h", _check_c),
    "html": ("html", _check_page),
    "onnx": ("onnx", _check_onnx),
}
