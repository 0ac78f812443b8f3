"""Choice of the task from the content of the files, if --task is not given."""

from __future__ import annotations

from collections.abc import Sequence

from recur.data.text.recognition import RecognisedData, recognise
from recur.errors import OptionError

TASKS = {
    "images": "grid",
    "signals": "classify",
    "steps": "tag",
    "trees": "tree",
    "tagged": "tag",
    "series": "forecast",
    "text": "language",
}
"""Task by kind of file; kinds that are not listed are ambiguous."""

CHOICES = {
    "pairs": (
        ("seq2seq", "writes the second column from the first"),
        ("classify", "tells the first column from the second"),
    ),
    "labelled": (
        ("classify", "tells the label of a text"),
        ("conditional", "writes texts of a label"),
        ("seq2seq", "writes the second column from the first"),
    ),
    "signals": (
        ("classify", "tells the class of a sequence of numbers"),
        ("grid", "takes each for an image"),
    ),
    "steps": (
        ("tag", "tells the labels of a sequence of numbers"),
        ("classify", "takes all that is written of a sequence for its class"),
    ),
    "series": (
        ("forecast", "forecasts the columns of numbers"),
        ("language", "reads it as text"),
    ),
    "tagged": (("tag", "tags every word with its last column"), ("language", "reads it as text")),
    "trees": (("tree", "classifies every node"), ("language", "reads it as text")),
}


def choose_task(names: Sequence[str]) -> tuple[str, str]:
    """Return the task for the files and the reason, which is empty for plain text.

    Raise an OptionError that lists the possible tasks if the files are ambiguous.
    """
    if not names or "" in names:  # an empty name is refused by who reads it
        return "language", ""
    found = recognise(names)
    if found.sure and found.kind in TASKS:
        task = TASKS[found.kind]
        return task, "" if found.kind == "text" else f"{names[0]} holds {found.why}: --task {task}"
    raise OptionError(_question(names, found))


def _question(names: Sequence[str], found: RecognisedData) -> str:
    choices = CHOICES.get(found.kind, (("language", "reads it as text"),))
    listed = ", ".join(f"--task {task} {what}" for task, what in choices)
    return f"{names[0]} looks like {found.why}; say what to learn from it: {listed}"
