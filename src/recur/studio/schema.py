"""What the page may set: the options of every task, from their dataclasses, but those that name files or run code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

from recur.cells import cell_names
from recur.errors import OptionError, unknown
from recur.i18n import Language, Message, catalogue, translate
from recur.options import documentation, field_of, flag_of, group_of, hints, spelled, value_of
from recur.tasks import make_options, options_class, task_names
from recur.tasks.defaults import GROUPS, shown_default
from recur.tasks.registry import ORIGINS, PATHS
from recur.utils.types import JsonObject

REFUSED = (*PATHS, *ORIGINS, "compress")
"""Options that name files, and one for several processes."""
NAMES = ("target", "covariates", "past_covariates", "static", "date", "id", "untouched")
"""Options that are any text: columns of a table and names of options, looked up and never opened."""
MAIN = ("cell", "hidden", "layers", "minutes", "steps", "rate")
"""What is asked first; all else is behind "more options"."""
KINDS = {int: "int", float: "float", bool: "bool", str: "text"}


def tasks(language: Language = "en") -> list[JsonObject]:
    """Every task with its options, in the order in which a person would read them."""
    return [
        {
            "name": task,
            "about": translate(task, language, "task")
            if language != "en"
            else " ".join((options_class(task).__doc__ or "").split("\n")[0].split()),
            "text": "texts" in options_class(task).names(),
            "options": _options(task, language),
        }
        for task in task_names()
    ]


def _options(task: str, language: Language) -> list[JsonObject]:
    cls = options_class(task)
    texts = documentation(cls)
    found = []
    for name, hint in hints(cls).items():
        group = group_of(cls, name)
        if name in REFUSED or group == "Carry over":  # which is all about those
            continue
        option: JsonObject = {
            "name": spelled(name),
            "flag": flag_of(name),
            "group": "" if group == task else group,
            "main": name in MAIN,
            "default": shown_default(cls, name),
            "help": " ".join(texts[name].split()),
        }
        if language != "en":
            known = catalogue(language)
            option["help"] = known.get(("option", f"{task}.{name}")) or known.get(("option", name)) or option["help"]
        found.append(option | _kind(name, value_of(hint)))
    order = ("", *GROUPS)
    return sorted(found, key=lambda option: order.index(option["group"]) if option["group"] in order else 0)


def _kind(name: str, kind: Any) -> JsonObject:
    if name == "cell":
        return {"kind": "choice", "choices": list(cell_names()), "help": ""}
    if get_origin(kind) is Literal:
        return {"kind": "choice", "choices": list(get_args(kind))}
    if get_origin(kind) is tuple:
        return {"kind": "list", "of": KINDS[get_args(kind)[0]]}
    return {"kind": KINDS[kind]}


def checked_options(task: str, given: Mapping[str, object]) -> dict[str, object]:
    """The fields of a task's options that a request sets, checked as any others are; none of them names a file, runs
    code or leads elsewhere."""
    fields = {field_of(name): value for name, value in given.items()}
    for name in fields:
        if name in REFUSED:
            raise OptionError(
                Message("{option} is not for the page: it names files; use the command line", option=flag_of(name))
            )
    cell = fields.get("cell")
    if cell is not None and cell not in cell_names():
        raise OptionError(unknown("cell", cell, cell_names()))
    make_options(task, fields)
    return fields
