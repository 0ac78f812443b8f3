"""Updater of the message catalogues: collects msgids from the source, and generates what the studio's page reads.

    python -m tools.messages            update every recur.po, and the page's chinese.js
    python -m tools.messages --check    exit 1 if a file is not up to date or a msgid has no translation

A catalogue has these entries:

    (no context)   `Message("…")` and `say("…")` of the Python source; labels, which are plain strings of the source
    option         help texts of options, by name, or TASK.NAME where a task describes an option differently
    task           descriptions of tasks, by name
    page           words of the studio's page, by the name given to `t("…")`
    page metric    names of metrics in the page
"""

from __future__ import annotations

import ast
import io
import json
import sys
from collections.abc import Iterable
from pathlib import Path

from babel.messages import pofile
from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_dir

from recur.i18n.catalogue import catalogue_file, read_po
from recur.options import documentation, group_of, hints
from recur.studio.jobs import REFUSED
from recur.tasks import options_class, task_names

SOURCE = Path(__file__).parents[1] / "src" / "recur"
PAGE = SOURCE / "studio" / "page"
SCRIPT = PAGE / "chinese.js"
KEYWORDS: dict[str, tuple[int, ...] | None] = {"Message": None, "say": None}
FOREIGN = ("Method Not Allowed", "Not Found")
"""Labels that a library passes on, which no file of the source has."""
DATED = (
    "POT-Creation-Date",
    "PO-Revision-Date",
    "Generated-By",
    "Last-Translator",
    "Language-Team",
    "Report-Msgid-Bugs",
)
"""Header lines that are left out: they would change with every run."""


def collect(known: Catalog) -> Catalog:
    """Return a template of the msgids that the source has; labels and page words are kept if the source names them."""
    template = Catalog()
    for path, _, msgid, comments, context in extract_from_dir(
        SOURCE, [("i18n/**.py", "ignore"), ("**.py", "python")], keywords=KEYWORDS
    ):
        if isinstance(msgid, str) and msgid:
            template.add(msgid, locations=[(f"src/recur/{path}", 1)], auto_comments=comments, context=context)
    strings = python_strings()
    page = "\n".join(path.read_text(encoding="utf-8") for path in sorted(PAGE.glob("*.js")) if path != SCRIPT)
    for entry in known:
        name = str(entry.id)
        if not entry.string:
            continue
        of_page = (entry.context or "").startswith("page")
        if ((of_page or not entry.context) and (name in strings or name in FOREIGN)) or (of_page and name in page):
            template.add(name, context=entry.context)
    for context, names in (("task", task_names()), ("option", option_names(known))):
        for name in names:
            template.add(name, context=context)
    return template


def python_strings() -> set[str]:
    """Return every string constant of the package."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in SOURCE.rglob("*.py"))
    nodes = (node for tree in trees for node in ast.walk(tree))
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def option_names(known: Catalog) -> Iterable[str]:
    """Return the names of all options with a help text; with their task where the catalogue has such an entry."""
    special = {str(entry.id) for entry in known if entry.context == "option" and "." in str(entry.id)}
    for task in task_names():
        cls = options_class(task)
        texts = documentation(cls)
        for name in hints(cls):
            if f"{task}.{name}" in special:
                yield f"{task}.{name}"
            elif texts.get(name) and name not in REFUSED and group_of(cls, name) != "Carry over":
                yield name


def updated(language: str) -> str:
    """Return the catalogue of a language with exactly the msgids of the source, sorted."""
    with catalogue_file(language).open("rb") as file:
        known = pofile.read_po(file, locale=language)
    template = collect(known)
    known.obsolete.clear()
    known.update(template, no_fuzzy_matching=True, update_creation_date=False)
    known.obsolete.clear()  # the history of the repository keeps them
    written = io.BytesIO()
    pofile.write_po(written, known, width=120, sort_output=True, include_lineno=False)
    lines = written.getvalue().decode().splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith(tuple(f'"{name}' for name in DATED)))


def page_script(catalogue: str) -> str:
    """Return the JavaScript module with the page's words of a catalogue."""
    entries = read_po(catalogue)
    tables = {
        name: {msgid: text for (found, msgid), text in sorted(entries.items()) if found == context}
        for name, context in (("messages", "page"), ("metrics", "page metric"))
    }
    head = "// Generated from the catalogue recur.po by `python -m tools.messages`; edit that file.\n"
    exports = (
        f"\nexport const {name} = {json.dumps(table, ensure_ascii=False, indent=2)};\n"
        for name, table in tables.items()
    )
    return head + "".join(exports)


def untranslated(catalogue: str) -> list[str]:
    """Return the msgids without a translation."""
    found = pofile.read_po(io.StringIO(catalogue))
    return sorted(str(entry.id) for entry in found if entry.id and (not entry.string or entry.fuzzy))


def main(arguments: list[str]) -> int:
    """Write or check the files; return the exit status."""
    catalogue = updated("zh")
    files = {catalogue_file("zh"): catalogue, SCRIPT: page_script(catalogue)}
    missing = untranslated(catalogue)
    for msgid in missing:
        print(f"no translation: {msgid}")
    if "--check" in arguments:
        stale = [path for path, text in files.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
        for path in stale:
            print(f"not up to date: {path.name}; run python -m tools.messages")
        return bool(stale or missing)
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
