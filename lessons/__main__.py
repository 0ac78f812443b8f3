"""python -m lessons [--quick] FOLDER [WORD …]: pages, figures and notebooks of all lessons, or of those with a word in their names."""

from __future__ import annotations

import sys
from pathlib import Path

from lessons.building import build


def main(arguments: list[str]) -> int:
    words = [word for word in arguments if word != "--quick"]
    if not words or words[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    build(Path(words[0]), words[1:], quick="--quick" in arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
