"""What mkdocs asks while it builds a language: blocks executed, links to sources, equations as MathML, the switch."""

from __future__ import annotations

import html
import posixpath
import re
import shutil
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

from docs.maker import api, chinese, merit, notebooks
from docs.maker.blocks import Block, blocks_of
from docs.maker.executing import Result, executed
from docs.maker.languages import without_stamp
from docs.maker.sources import Sources

EQUATION = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.S)
SIGNS = "，。；：、）！？,.;:)!?"
TOGETHER = re.compile(
    rf'((?:<math xmlns="[^"]*" display="inline">(?:(?!</math>).)*</math>|<code class="short">[^<]*</code>)[{SIGNS}]+)',
    re.S,
)
"""An equation or a name, and the sign behind it, which would else begin a line."""
BROKEN = re.compile(r"(?<=[\u3000-\u9fff\uff00-\uffef])\n(?=[\u3000-\u9fff\uff00-\uffef])|(?<=[，。；：、（])\n(?=<)")
"""A line of Chinese that goes on in the next one: a browser would put a space there."""
NAMED = re.compile(r"<mo>([A-Za-z]{2,})</mo>")
FUNCTION = re.compile(r"([A-Za-z]{2}</m[io]>)(?=<m(?:i|n|sub|sup|subsup|over|frac)\b)")
"""A function whose argument has no brackets: a book leaves a little room between them, and none before a bracket."""
SHORT = re.compile(r"<code>([^<\n]{1,24})</code>")
"""A name or an option, which is not broken at its hyphens."""
SECTIONS = {
    "Tutorials": "教程", "Read along": "伴读", "How-to": "操作指南", "Reference": "参考", "Explanation": "原理",
}  # fmt: skip

_sources = Sources()
_made: list[tuple[Path, str]] = []
_notebooks: list[tuple[Path, str]] = []


def on_config(config: Any) -> Any:
    global _sources
    _sources = Sources()
    _made.clear()
    _notebooks.clear()
    return config


def on_nav(nav: Any, config: Any, files: Any) -> Any:
    if language(config) == "zh":
        for item in nav.items:
            if item.is_section:
                item.title = SECTIONS.get(item.title, item.title)
    return nav


def on_files(files: Any, config: Any) -> Any:
    """The reference is made of docstrings, and the page of figures of what was measured. A page that is not yet
    Chinese stands in English; pictures and styles serve both languages."""
    code = language(config)
    if len(config.nav) > 1:  # a whole site
        made = {api.page_name(module): api.page(module, code) for module in api.MODULES}
        for name, text in (made | {"figures.md": merit.page(code)}).items():
            files.append(File.generated(config, name, content=text))
    if code == "zh":
        pages = Path(config.extra["pages"])
        for path in sorted(pages.rglob("*")):
            name = path.relative_to(pages).as_posix()
            wanted = (name.endswith(".md") and not name.startswith("zh/")) or name.startswith("assets/")
            if wanted and path.is_file() and files.get_file_from_path(name) is None:
                files.append(File(name, str(pages), config.site_dir, config.use_directory_urls))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    name, place = page.file.src_uri, page.file.dest_uri
    if page.file.generated_by:
        return markdown
    folder = Path(page.file.abs_src_path).parent
    try:
        text = _sources.linked(without_stamp(markdown), place, folder)
        if name.startswith("tutorials/") and not name.endswith("index.md"):
            text = with_notebook(text, Path(page.file.abs_src_path), place, language(config))
        return with_results(text, name, place, language(config))
    except (ValueError, RuntimeError, SyntaxError) as error:
        raise PluginError(f"{name}: {error}") from error


def on_page_content(content: str, page: Any, config: Any, files: Any) -> str:
    parts = re.split(r"(<pre.*?</pre>)", content, flags=re.S)
    joined = "".join(part if part.startswith("<pre") else BROKEN.sub("", part) for part in parts)
    joined = SHORT.sub(r'<code class="short">\1</code>', joined)
    return TOGETHER.sub(r'<span class="together">\1</span>', EQUATION.sub(mathml, joined))


def on_page_context(context: Any, page: Any, config: Any, nav: Any) -> Any:
    """The switch leads to the same page of the other language."""
    names = {"en": "English", "zh": "中文"}
    config.extra["alternate"] = [
        {"name": name, "lang": code, "link": f"../{code}/{page.file.dest_uri}"} for code, name in names.items()
    ]
    return context


def on_post_build(config: Any) -> None:
    site = Path(config.site_dir)
    for path, place in _made:
        (site / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, site / place)
    (site / "404.html").unlink(missing_ok=True)  # for servers, from the root of a site; this one opens from a folder
    for page, place in _notebooks:
        notebooks.write(page, site / place)
    _sources.write(site)


def language(config: Any) -> str:
    return str(config.extra.get("code", "en"))  # as docs.maker.build says; plain mkdocs builds the English pages


def mathml(match: re.Match[str]) -> str:
    """Equations side by side (\\quad or \\qquad between them) are several: what has no room in a line stands below."""
    source = html.unescape(match[3])
    if match[2] != "[":
        return written(source, "inline")
    parts = [source] if "\\begin" in source else re.split(r"\\q?quad", source)
    return f'<div class="equation">{"".join(written(part, "block") for part in parts)}</div>'


def written(source: str, display: str) -> str:
    made = NAMED.sub(r'<mo lspace="0.17em" rspace="0">\1</mo>', str(convert(source, display=display)))
    return FUNCTION.sub(r'\1<mspace width="0.17em"></mspace>', made)


def with_notebook(text: str, page: Path, place: str, code: str) -> str:
    """A tutorial says below its title where its notebook is."""
    target = f"{place.removesuffix('.html')}.ipynb"
    _notebooks.append((page, target))
    said = {"en": "This page as a notebook", "zh": "本页的笔记本"}[code]
    title, _, rest = text.partition("\n")
    return f'{title}\n\n<a class="made" href="{posixpath.basename(target)}" download>{said}</a>\n{rest}'


# Executed blocks --------------------------------------------------------------------------------------------------


def with_results(text: str, name: str, place: str, code: str = "en") -> str:
    """A page with what its blocks gave below them, on a Chinese page in Chinese where recur can say it."""
    blocks = blocks_of(text)
    running = [block for block in blocks if block.run and not block.skip]
    results: dict[int, Result] = {}
    folder = Path()
    if running:
        found, folder = executed(name.removesuffix(".md"), running)
        results = {block.span[0]: result for block, result in zip(running, found, strict=True)}
    for block in reversed(blocks):
        start, end = block.span
        shown = [] if block.hide else [f"```{block.language}\n{block.source}```"]
        if start in results:
            result = results[start] if code == "en" else chinese.result(results[start], folder)
            shown += below(block, result, folder, place)
        lines = "\n\n".join(shown).splitlines()
        text = text[:start] + "\n".join(block.indent + line if line else "" for line in lines) + text[end:]
    return text


def below(block: Block, result: Result, folder: Path, place: str) -> list[str]:
    table = sum("  " in line.strip() for line in result["text"].splitlines()) > 2  # it scrolls, where words wrap
    kind = ".text .printed" if table else ".text .printed .wrapped"
    shown = [f"```{{{kind}}}\n{result['text']}\n```"] if result["text"] else []
    for file in result["files"]:
        target = f"{place.removesuffix('.html')}-{file}"
        _made.append((folder / file, target))
        link = posixpath.basename(target)
        if file.endswith(".html"):
            shown.append(f'<a class="made" href="{link}">{file.partition("-")[2]}</a>')
        else:
            alt = html.escape(block.options.get("alt", "what the block above draws"))
            shown.append(f'<figure markdown="0"><img src="{link}" alt="{alt}"></figure>')
    return shown
