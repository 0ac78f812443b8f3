"""The documentation's site.

python -m docs                     build it, in both languages, into build/site; open build/site/index.html
python -m docs --language en       one language
python -m docs stale               pages that changed in one language and not in the other
python -m docs stamp PAGE…         both languages of these pages say the same; --all: of every page
python -m docs links               check build/site again
python -m docs merit               copy what was measured into the pages and READMEs that name it
python -m docs drawings            draw the pictures of memory again
python -m docs picture             train for a minute, and draw README's picture
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from docs.maker import copied, drawings, picture
from docs.maker.languages import pairs

MAKERS = {"merit": copied.write, "drawings": drawings.write, "picture": lambda: picture.draw(minutes=1.0)}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m docs", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("verb", nargs="?", default="build", choices=("build", "stale", "stamp", "links", *MAKERS))
    parser.add_argument("pages", nargs="*", help="English pages by path, such as docs/cells.md")
    parser.add_argument("--language", choices=("en", "zh"))
    parser.add_argument("--all", action="store_true")
    given = parser.parse_args()
    if given.verb == "stale":
        return report([why for pair in pairs() if (why := pair.why_stale())])
    if given.verb == "stamp":
        return stamp(given.pages, given.all)
    if given.verb in MAKERS:
        MAKERS[given.verb]()
        return 0
    from docs.maker.build import SITE, build
    from docs.maker.checking import problems

    if given.verb == "links":
        return report(problems(SITE))
    return report(build(languages=(given.language,) if given.language else ("en", "zh")))


def stamp(pages: list[str], everything: bool) -> int:
    named = {Path(page).resolve() for page in pages}
    chosen = [pair for pair in pairs() if everything or {path.resolve() for path in pair} & named]
    if not chosen:
        return report(["no such page; name one, such as docs/cells.md, or --all"])
    for pair in chosen:
        if pair.english.exists() and pair.chinese.exists():
            pair.stamp()
            print(f"stamped {pair.name}")
    return 0


def report(wrong: list[str]) -> int:
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
