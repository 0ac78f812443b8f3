"""Sentences that were not `said`, in another language: by the template that they fit."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from recur.wording import Language

VALUES = {"one": "1", "several": "多"}
"""Numbers that are written as words."""
HOLE = re.compile(r"\\\{(\w+)\\\}")


def fitted(sentence: str, language: Language) -> str:
    """A sentence in another language; as it is where no template fits."""
    if language == "en":
        return sentence
    from recur.wording.chinese_training import SENTENCES

    if sentence in SENTENCES:
        return SENTENCES[sentence]
    for pattern, template in _patterns():
        if found := pattern.fullmatch(sentence):
            return template.format_map({name: VALUES.get(value, value) for name, value in found.groupdict().items()})
    return sentence


@functools.cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    from recur.wording.chinese_training import SENTENCES

    return [(pattern_of(english), chinese) for english, chinese in SENTENCES.items() if "{" in english]


def pattern_of(template: str) -> re.Pattern[str]:
    """A template with a hole for each value; the first holes are filled by as little as may be."""
    return re.compile(HOLE.sub(r"(?P<\1>.+?)", re.escape(template)), re.DOTALL)


def help_of(task: str, option: str, words: Mapping[str, str]) -> str:
    """The help of a task's option, in a catalogue by name."""
    return words.get(f"{task}.{option}") or words[option]
