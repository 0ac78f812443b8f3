"""Shell lines of a document as tests run them: `recur` in this process, with a small budget and network."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

from recur.cli.app import run

SERVERS = ("serve", "studio")  # do not end; tested by themselves
ONCE = ("doctor", "export", "lab", "stats", "xray")  # leave nothing that another line needs: the same line runs once


def commands(source: str) -> list[str]:
    """The lines of a block without comments; one that ends in a backslash goes on."""
    lines = [line for line in source.replace("\\\n", " ").splitlines() if not line.lstrip().startswith("#")]
    return [line for line in (line.partition("  #")[0].strip() for line in lines) if line]


def shortened(words: list[str]) -> list[str]:
    """The same command with a smaller budget and network, where it trains."""
    if words[0] == "sweep":
        trials = words.index("--trials") if "--trials" in words else len(words)
        short = [*words[1:trials], *words[trials + 2 :], "--trials", "2"]
        return ["sweep", *without(short, "--minutes"), *([] if "--resume" in words else ["--steps", "2"])]
    if words[0] not in ("train", "resume") or "--help" in words:
        return words
    words = without(without(words, "--minutes"), "--epochs")
    if "--folds" in words:
        words = [*without(words, "--folds"), "--folds", "2"]
    if "--steps" not in words:
        words = [*words, "--steps", "2"]
    return [*words, *(["--threads", "1"] if words[0] == "train" else []), *small(words)]


def small(words: list[str]) -> list[str]:
    """A network of 8 units, where it does not begin with the weights of another."""
    given = words[0] == "resume" or {"--hidden-size", "--from"} & set(words)
    return [] if given else ["--hidden-size", "8"]


def without(words: list[str], flag: str) -> list[str]:
    if flag in words:
        place = words.index(flag)
        words = words[:place] + words[place + 2 :]
    return words


_seen: set[str] = set()


def run_line(line: str) -> str | None:
    """Run one command; the verb where it was recur's."""
    words = shlex.split(line, comments=True)
    if Path(words[0]).name == "recur":
        if words[1] in SERVERS:
            return None
        if words[1] in ONCE:
            if (same := shlex.join(words[1:])) in _seen:
                return words[1]
            _seen.add(same)
        if words[1] == "train" and "--help" not in words:
            words += [] if "--out" in words else ["--out", "runs/unnamed"]
            shutil.rmtree(words[words.index("--out") + 1], ignore_errors=True)
        assert run(shortened(words[1:])) == 0, line
        return words[1]
    subprocess.run(["bash", "-euo", "pipefail", "-c", line], check=True, stdout=subprocess.DEVNULL)
    return None
