"""A lesson that was run, as Markdown in one language."""

from __future__ import annotations

from lessons.running import Ran
from lessons.source import Lesson
from lessons.where import linked

WORDS = {
    "en": {"figure": "what the code above draws", "notebook": "This page as a notebook", "run": "run with the site in"},
    "zh": {"figure": "上面的代码画出的图", "notebook": "本页的笔记本", "run": "生成本站时运行，用时"},
}


def markdown(lesson: Lesson, ran: Ran, language: str, notebook: str) -> str:
    """The page; `notebook` is where its notebook lies, as seen from the page."""
    words, parts, drawn = WORDS[language], [], 0
    for cell, output in zip(lesson.cells, ran.outputs, strict=True):
        if cell.kind == "markdown":
            parts += [linked(cell.text)] if cell.language == language else []
            continue
        parts.append(f"```{cell.kind}\n{cell.shown}\n```")
        if output.text:
            parts.append(f"```text\n{output.text}\n```")
        for _ in output.figures:
            drawn += 1
            parts.append(f"![{words['figure']}]({figure_name(lesson, drawn)})")
    parts.append(f"[{words['notebook']}]({notebook}) · {words['run']} {ran.seconds:.0f} s")
    return "\n\n".join(parts) + "\n"


def figure_name(lesson: Lesson, number: int) -> str:
    return f"figures/{lesson.name.rpartition('/')[2]}-{number}.svg"
