"""Every page of the site as it was written: links and anchors lead somewhere, and nothing is fetched from a network."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADS = {("img", "src"), ("script", "src"), ("link", "href"), ("iframe", "src"), ("source", "src"), ("video", "src")}


class Seen(HTMLParser):
    """Where a page leads, and where it can be led to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[tuple[str, str, str]] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for key, value in attrs:
            if value is None:
                continue
            if key == "id" or (tag == "a" and key == "name"):
                self.anchors.add(value)
            if key in ("href", "src"):
                self.links.append((tag, key, value))


def problems(site: Path) -> list[str]:
    pages = {path.resolve(): Seen(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        if path.name == "404.html":  # its links are of a server's root
            continue
        for tag, key, link in page.links:
            why = wrong(path, page, tag, key, link, pages)
            if why:
                found.append(f"{path.relative_to(site.resolve())}: {link} {why}")
    return found


def wrong(path: Path, page: Seen, tag: str, key: str, link: str, pages: dict[Path, Seen]) -> str | None:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        loaded = (tag, key) in LOADS and parts.scheme != "data"
        return "would be fetched from a network" if loaded else None
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        target = target / "index.html"
    if not target.exists():
        return "leads to no file"
    anchor = unquote(parts.fragment)
    there = page if target == path else pages.get(target)
    if anchor and there is not None and anchor not in there.anchors and not anchor.startswith("__"):
        return "leads to no anchor"
    return None
