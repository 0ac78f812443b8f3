"""Strings of a run in generated source: every target, against names that attack it."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import random
import re
import signal
import subprocess
import threading
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import recur
from campaigns.export import C_CODE, ENDS, MARKER, hostile
from recur.cli.app import run
from recur.export import ExportOptions, ExportResult, c_header, html, to_portable, torch_export
from recur.export.artifacts import interruptible, keep_files, metadata
from recur.export.escaping import c_comment, c_string, fill_template, html_text, identifier, json_text, unicode_text
from recur.export.graphs import NetworkStates, PortableModel, TensorSpec
from recur.export.html import JavaScriptModel, read_source, run_in_node
from tests.export import runs
from tests.export.c_library import library, needs_gcc
from tests.export.node import needs_node


@pytest.fixture(scope="module")
def names() -> list[str]:
    rng = random.Random(0)
    return [*ENDS, *(hostile(rng) for _ in range(2000)), "\ud800", "\udcff"]


@needs_gcc
def test_comments_and_strings_of_c_hold_anything(names: list[str], tmp_path: Path) -> None:
    """Trigraphs are on in C99: ??/ is a backslash, and joins lines even inside a comment."""
    comments = "\n".join(f"/* {c_comment(name)} */ // {c_comment(name)}" for name in names)
    prints = "\n".join(f"fwrite({c_string(name)}, 1, sizeof {c_string(name)}, stdout);" for name in names)
    (tmp_path / "a.c").write_text(f"#include <stdio.h>\n{comments}\nint main(void) {{\n{prints}\nreturn 0; }}\n")
    strict = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-Wno-overlength-strings"]
    subprocess.run(["gcc", *strict, "-O0", "a.c", "-o", "a"], cwd=tmp_path, check=True)
    made = subprocess.run([tmp_path / "a"], cwd=tmp_path, check=True, capture_output=True).stdout
    assert made == b"".join(unicode_text(name).encode() + b"\0" for name in names)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "a.c"]


@needs_node
def test_json_is_an_expression_of_javascript(names: list[str]) -> None:
    assert run_in_node(f"const names = {json_text(names)};", "return names;") == names
    assert json.loads(json_text(names)) == names
    assert json_text(names).isprintable()
    assert not set(json_text(names)) & set("<>&")


def test_text_of_html_is_text(names: list[str]) -> None:
    class Text(HTMLParser):
        found = ""

        def handle_data(self, text: str) -> None:
            self.found += text

    for name in names:
        page = Text()
        page.feed(f"<p>{html_text(name)}</p>")
        page.close()
        kept = re.sub(
            "[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\uffff\ud800-\udfff]", "\ufffd", name
        )
        assert page.found == kept
        page.found.encode()


def test_a_template_is_filled_in_one_pass() -> None:
    assert fill_template("<{a}> {b}", {"a": "{b}", "b": "{a}"}) == "<{b}> {a}"
    with pytest.raises(KeyError):
        fill_template("{missing}", {})


@needs_node
def test_a_sentence_of_a_page_is_filled_in_one_pass() -> None:
    code = 'const navigator = { language: "en" };\n' + read_source("words.js")
    said = run_in_node(
        code, 'return [t("not_number", { line: "{value}", value: "$& {line}" }), factName("constructor")];'
    )
    assert said == ["Line {value}: “$& {line}” is no number.", "constructor"]


def test_names_of_values_are_identifiers() -> None:
    assert identifier("h_0") == "h_0"
    assert identifier("ħ") == "u0127"
    assert identifier("*/") == "u002au002f"
    assert identifier("0") == "v0"
    with pytest.raises(ValueError, match="identifier"):
        TensorSpec("x;", ())

    class Own(recur.Cell):
        gates = ("ħ",)
        states = ("ħ",)

        def step(self, x: Any, h: Any, s: Any) -> Any:
            return (x.ħ.tanh() + h.ħ,)

    assert [name for _, name, _ in NetworkStates(recur.Recurrent(Own(), 2, 3)).parts] == ["u0127_0"]


# Files ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def classifier() -> PortableModel:
    return to_portable(runs.numbers(Path()))


@needs_gcc
@pytest.mark.parametrize("end", ["*\\ ", "*/", "*??/\n/", "*\\\n/", "@*/", "*\\\\/"])
def test_a_label_is_no_code(
    end: str, classifier: PortableModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The self-test of an export compiles and runs the header."""
    monkeypatch.chdir(tmp_path)
    label = f"{end} {C_CODE} /*"
    attacked = dataclasses.replace(classifier, labels=(label, "b"), facts={"classes": label, label: "x"})
    assert c_header.write(attacked, tmp_path / "m.h", ExportOptions()).difference is not None
    assert not (tmp_path / MARKER).exists()
    assert MARKER in (tmp_path / "m.h").read_text(), "the comment still names the classes"


@needs_gcc
def test_a_number_that_is_no_class_has_no_name(classifier: PortableModel, tmp_path: Path) -> None:
    """As in `model_label(model_predict(…))` of an empty input, which is -1."""
    text = c_header.header(classifier, "model", 60).text
    calls = "const char *name(int32_t k);\nconst char *name(int32_t k) { return model_label(k); }\n"
    named = library(tmp_path, {"model": text}, calls, "-fsanitize=undefined", "-fsanitize-undefined-trap-on-error").name
    named.restype = ctypes.c_char_p
    found = [named(k) for k in (-(2**31), -1, 0, 1, 2, 2**31 - 1)]
    assert found == [b"", b"", *(label.encode() for label in classifier.labels), b"", b""]


@pytest.mark.parametrize("name", ["{script}", "{about}", "{weights}", "{style}", "<title><script>", "a\udcff"])
def test_a_page_is_whole_whatever_its_name_is(name: str, classifier: PortableModel) -> None:
    def scripts(name: str) -> list[str]:
        text = html.page(
            dataclasses.replace(classifier, name=f"runs/{name}"), JavaScriptModel("own()", {}, "AAAA"), True
        )
        text.encode()
        return re.findall(r"<script(?: [^>]*)?>.*?</script>", text, flags=re.DOTALL)

    found, plain = scripts(name), scripts("plain")
    assert found[1:] == plain[1:]
    assert json.loads(found[0].partition(">")[2].removesuffix("</script>"))["name"] == name


def test_metadata_can_be_written(classifier: PortableModel, names: list[str]) -> None:
    attacked = dataclasses.replace(classifier, labels=tuple(names), name="runs/a\udcff")
    said = metadata(attacked, attacked.graphs["sequence"])
    assert said["run"] == "a\ufffd"
    assert json.loads(said["labels"]) == names
    assert all(text.encode() for text in said.values())


# Interrupts -------------------------------------------------------------------------------------------------------


class Callback:
    """Something whose end presses Ctrl-C where Python drops exceptions, as torch's weak references do."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


def lost() -> None:
    Callback()


def replaced() -> None:
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        raise AssertionError("Trying to pop empty mode stack") from None


@pytest.mark.parametrize("press", [lost, replaced])
def test_an_interrupt_that_torch_loses_ends_an_export(
    press: Callable[[], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "text.txt").write_text("\n".join([runs.LINE] * 30))
    options: Any = runs.SMALL
    recur.fit(tmp_path / "text.txt", task="language", window=8, batch_size=2, out=tmp_path / "lm", **options)

    def write(portable: PortableModel, path: Path, options: ExportOptions) -> ExportResult:
        press()
        keep_files({path: b"whole"})
        return ExportResult((path,), 0, None)

    monkeypatch.setattr(torch_export, "write_programs", write)
    capsys.readouterr()
    assert run(["export", str(tmp_path / "lm"), str(tmp_path / "m.pt2")]) == 130
    assert capsys.readouterr().err == "recur: stopped\n"
    assert not [path for path in tmp_path.iterdir() if "m.pt2" in path.name]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_exports_run_in_other_threads_too(tmp_path: Path) -> None:
    def work() -> None:
        with interruptible():
            keep_files({tmp_path / "a": b"a"})

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert (tmp_path / "a").read_bytes() == b"a"
