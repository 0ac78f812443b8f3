"""Pages in two languages, and which of them fell behind.

The first line of a Chinese page is a stamp: the digests of both pages as they were when they last said the same. A
change of either makes the pair stale until someone has looked at both and stamped again.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CHINESE = DOCS / "zh"
NOTES = DOCS / "notes"
"""The lab notebook: dated, English only, not kept up to date."""

STAMP = re.compile(r"\A<!-- en ([0-9a-f]{12}) zh ([0-9a-f]{12}) -->\n")


class Pair(NamedTuple):
    english: Path
    chinese: Path

    @property
    def name(self) -> str:
        return self.english.relative_to(ROOT).as_posix()

    def why_stale(self) -> str | None:
        """What is the matter, in words; None where both say the same."""
        if not self.chinese.exists():
            return f"{self.name}: {self.chinese.relative_to(ROOT)} is missing"
        if not self.english.exists():
            return f"{self.chinese.relative_to(ROOT)}: {self.name} is missing"
        found = STAMP.match(self.chinese.read_text(encoding="utf-8"))
        if found is None:
            return f"{self.name}: {self.chinese.relative_to(ROOT)} has no stamp"
        changed = [
            path.relative_to(ROOT).as_posix()
            for path, stamped in zip(self, found.groups(), strict=True)
            if digest(path) != stamped
        ]
        return f"{self.name}: changed since both were stamped: {', '.join(changed)}" if changed else None

    def stamp(self) -> None:
        text = without_stamp(self.chinese.read_text(encoding="utf-8"))
        line = f"<!-- en {digest(self.english)} zh {digest(self.chinese)} -->\n"
        self.chinese.write_text(line + text, encoding="utf-8")


def pairs() -> list[Pair]:
    """Every page of the site but the lab notebook, and the README, each with its Chinese."""
    names = {path.relative_to(DOCS) for path in DOCS.rglob("*.md") if not {CHINESE, NOTES} & set(path.parents)}
    names |= {path.relative_to(CHINESE) for path in CHINESE.rglob("*.md")}
    return [Pair(ROOT / "README.md", ROOT / "README.zh-CN.md")] + [
        Pair(DOCS / name, CHINESE / name) for name in sorted(names)
    ]


def without_stamp(text: str) -> str:
    return STAMP.sub("", text)


def digest(path: Path) -> str:
    """Of a page without its stamp, so that stamping changes nothing that is stamped."""
    return hashlib.sha256(without_stamp(path.read_text(encoding="utf-8")).encode()).hexdigest()[:12]
