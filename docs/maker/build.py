"""Builds the site: English and Chinese, then everything that was written is read again and every link followed."""

from __future__ import annotations

import logging
import shutil
import sys
from pathlib import Path
from typing import Any

from docs.maker.checking import problems
from docs.maker.languages import DOCS, ROOT

SITE = ROOT / "build" / "site"
FIRST = """<!doctype html><html lang="en"><meta charset="utf-8"><title>recur</title>
<script>location.replace((/^zh/.test(navigator.language) ? "zh" : "en") + "/index.html")</script>
<p><a href="en/index.html">English</a> · <a href="zh/index.html">中文</a></html>
"""


def build(
    site: Path = SITE, languages: tuple[str, ...] = ("en", "zh"), pages: Path = DOCS, only: list[str] | None = None
) -> list[str]:
    """Both languages into a folder; what is wrong with it, a line each. `only` is for tests: these pages alone."""
    import jieba
    from mkdocs.commands.build import build as mkdocs_build
    from mkdocs.config import load_config

    heard = logging.StreamHandler(sys.stderr)
    heard.setLevel(logging.WARNING)
    logging.getLogger("mkdocs").addHandler(heard)
    jieba.setLogLevel(logging.WARNING)  # it tells how it loads its words
    shutil.rmtree(site, ignore_errors=True)
    changed: dict[str, Any] = {} if only is None else {"nav": only, "plugins": []}
    for code in languages:
        config = load_config(
            str(ROOT / "mkdocs.yml"),
            docs_dir=str(pages if code == "en" else pages / "zh"),
            site_dir=str(site / code),
            **changed,
        )
        config.extra["pages"], config.extra["code"] = str(pages), code
        config.theme["language"] = code
        config.plugins.run_event("startup", command="build", dirty=False)
        mkdocs_build(config)
        config.plugins.run_event("shutdown")
    (site / "index.html").write_text(FIRST, encoding="utf-8")
    missing = {"en", "zh"} - set(languages)
    return [line for line in problems(site) if not any(f"{code}/" in line.split()[1] for code in missing)]
