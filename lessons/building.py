"""All lessons, run once and written in both languages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from lessons.notebook import notebook
from lessons.page import figure_name, markdown
from lessons.running import Ran, run
from lessons.source import Lesson

HERE = Path(__file__).parent
LANGUAGES = ("en", "zh")
FOLDERS = ("read_along", "tutorials", "misconceptions")


def lessons(only: Iterable[str] = ()) -> list[Lesson]:
    """In the order of their file names; or those whose names hold one of the words."""
    paths = [path for folder in FOLDERS for path in sorted((HERE / folder).glob("*.py")) if path.stem != "__init__"]
    found = [Lesson.read(path, name_of(path)) for path in paths]
    words = list(only)
    return [lesson for lesson in found if not words or any(word in lesson.name for word in words)]


def name_of(path: Path) -> str:
    """`lessons/read_along/n1_graphs.py` is the page `read-along/1-graphs`."""
    return f"{path.parent.name}/{path.stem.lstrip('n')}".replace("_", "-")


def build(
    target: Path,
    only: Iterable[str] = (),
    *,
    quick: bool = False,
    languages: Iterable[str] = LANGUAGES,
    say: Callable[[str], None] = print,
) -> dict[str, Ran]:
    """Run the lessons and write target/LANGUAGE/NAME.md, figures beside them, and notebooks; what ran, by name."""
    found = {}
    for lesson in lessons(only):
        ran = found[lesson.name] = run(lesson, quick=quick)
        say(f"{lesson.name}  {ran.seconds:.1f} s")
        for language in languages:
            write(target / language, lesson, ran, language)
    return found


def write(target: Path, lesson: Lesson, ran: Ran, language: str) -> None:
    page = target / f"{lesson.name}.md"
    (page.parent / "figures").mkdir(parents=True, exist_ok=True)
    (page.parent / "notebooks").mkdir(exist_ok=True)
    figures = [figure for output in ran.outputs for figure in output.figures]
    for number, figure in enumerate(figures, 1):
        (page.parent / figure_name(lesson, number)).write_bytes(figure)
    for name, content in ran.files.items():
        (page.parent / name).write_bytes(content)
    as_notebook = f"notebooks/{page.stem}.ipynb"
    (page.parent / as_notebook).write_text(notebook(lesson, ran, language), encoding="utf-8")
    page.write_text(markdown(lesson, ran, language, as_notebook), encoding="utf-8")
