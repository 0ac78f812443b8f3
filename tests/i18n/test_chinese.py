"""Every sentence that X-ray says has a Chinese one, with the same values in it."""

from __future__ import annotations

import ast
import string
from pathlib import Path

import recur
from recur.diagnostics.diagnosis import EXPLAINED
from recur.diagnostics.finding import CAUSES
from recur.diagnostics.report import LEVELS
from recur.i18n import in_language, said
from recur.i18n.chinese import TEMPLATES
from recur.tasks.common.metrics import METRICS

SOURCE = Path(recur.__file__).parent
CONDITIONS = (
    "diverging", "rate too high", "forget gate closed", "dead units", "window too short", "over-fitted",
    "gradients vanish", "too small", "under-trained", "fine", "not known",
)  # fmt: skip


def templates() -> set[str]:
    """What `said` and `say` are called with, wherever that is: it must be written there."""
    found = set()
    for file in SOURCE.rglob("*.py"):
        if file.parent.name == "wording":
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or not node.args:
                continue
            if node.func.id in ("said", "say") and isinstance(node.args[0], ast.Constant):
                found.add(node.args[0].value)
            assert node.func.id != "said" or isinstance(node.args[0], ast.Constant), f"{file}:{node.lineno}"
    return found


def fields(template: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(template) if name}


def test_every_sentence_has_a_translation() -> None:
    names = {*CONDITIONS, *CAUSES, *LEVELS.values(), *(metric.words for metric in METRICS.values())}
    assert len(templates()) > 150
    assert sorted((templates() | names) - set(TEMPLATES)) == []


def test_a_translation_has_the_same_values() -> None:
    assert [template for template, chinese in TEMPLATES.items() if fields(chinese) != fields(template)] == []


def test_every_probe_is_explained() -> None:
    assert set(EXPLAINED) == set(CAUSES)


def test_values_are_translated_too() -> None:
    inner = said("1 % is left after {steps} steps", steps=14)
    sentence = said("gradients vanish: {detail}", detail=inner)
    assert sentence == "gradients vanish: 1 % is left after 14 steps"
    assert in_language(sentence, "zh") == "梯度消失：14 步后只剩 1 %"
    assert in_language("layer 2, backward", "zh") == "第 2 层，反向"
    assert in_language("no such words", "zh") == "no such words"
    assert in_language(sentence) == sentence


def test_names_of_plain_models() -> None:
    assert in_language("4-grams by class", "zh") == "按类别的 4 元语法"
    assert in_language(
        said("the model has barely started to learn: {name} is about as good", name="always 3"), "zh"
    ) == ("模型几乎还没开始学习：总答“3”差不多一样好")
    assert in_language("the most frequent class", "zh") == "总答最常见的类别"
