"""Builds the site: English and Chinese, then everything that was written is read again and every link followed."""

from __future__ import annotations

import shutil
from pathlib import Path

from docs.maker.checking import problems
from docs.maker.languages import CHINESE, DOCS, ROOT

SITE = ROOT / "build" / "site"
FIRST = """<!doctype html><html lang="en"><meta charset="utf-8"><title>recur</title>
<script>location.replace((/^zh/.test(navigator.language) ? "zh" : "en") + "/index.html")</script>
<p><a href="en/index.html">English</a> · <a href="zh/index.html">中文</a></html>
"""


def build(site: Path = SITE, languages: tuple[str, ...] = ("en", "zh")) -> list[str]:
    """Both languages into a folder; what is wrong with it, a line each."""
    from mkdocs.commands.build import build as mkdocs_build
    from mkdocs.config import load_config

    shutil.rmtree(site, ignore_errors=True)
    for code in languages:
        config = load_config(
            str(ROOT / "mkdocs.yml"), docs_dir=str(DOCS if code == "en" else CHINESE), site_dir=str(site / code)
        )
        config.theme["language"] = code
        config.plugins.run_event("startup", command="build", dirty=False)
        mkdocs_build(config)
        config.plugins.run_event("shutdown")
    (site / "index.html").write_text(FIRST, encoding="utf-8")
    missing = {"en", "zh"} - set(languages)
    return [line for line in problems(site) if not any(f"{code}/" in line.split()[1] for code in missing)]
