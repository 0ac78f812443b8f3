"""Chinese: the catalogue, and words that are made of others, such as names of layers."""

from __future__ import annotations

import functools
import re

from recur.i18n.chinese_equations import EQUATIONS, STEP
from recur.i18n.chinese_errors import ERRORS
from recur.i18n.chinese_explanations import EXPLANATIONS
from recur.i18n.chinese_labels import LABELS
from recur.i18n.chinese_labs import LAB_LABELS, LAB_PARAGRAPHS
from recur.i18n.chinese_sentences import SENTENCES
from recur.i18n.chinese_training import TRAINING

TEMPLATES = {**LAB_LABELS, **SENTENCES, **EXPLANATIONS, **LABELS, **EQUATIONS, **STEP}
"""By the English template."""

NAMES = (
    (r"^(\d+)-grams by class$", r"按类别的 \1 元语法"),
    (r"^(\d+)-grams by label$", r"按标签的 \1 元语法"),
    (r"^(\d+)-grams$", r"\1 元语法"),
    (r"^always (.+)$", r"总答“\1”"),
    (r"^naive Bayes(.*), α = (.+)$", r"朴素贝叶斯\1（α = \2）"),
    (r"^TF-IDF logistic regression(.*), C = (.+)$", r"TF-IDF 逻辑回归\1（C = \2）"),
    (r"^linear autoregression on (.+)$", r"\1 阶线性自回归"),
)
"""Of plain models."""

PARTS = {"valid": "验证集", "train": "训练集", "test": "测试集"}


def plain(text: str) -> str:
    """Words that are no template: `valid perplexity`, `layer 1, backward, c`, `6-gram`."""
    part, _, rest = text.partition(" ")
    if part in PARTS and rest in TEMPLATES:
        return PARTS[part] + TEMPLATES[rest]
    text = re.sub(r"^layer (\d+)", r"第 \1 层", text)
    if text.startswith("第 "):
        return text.replace(", backward", "，反向").replace(", ", " ")
    text = re.sub(r"^(\d+)-gram(, from the end)?$", lambda m: f"{m[1]} 元语法" + "（从后往前）" * bool(m[2]), text)
    for name, chinese in NAMES:
        text = re.sub(name, chinese, text)
    text = re.sub(r"^the loss is (.+)$", r"损失为 \1", text)
    text = re.sub(r"^the gradient's norm is (.+)$", r"梯度范数为 \1", text)
    return fitted(text)


def fitted(text: str) -> str:
    """A line that was not made of a template but fits one: an error, or the paragraph of a lab; else as it is."""
    for pattern, template in _patterns():
        found = pattern.fullmatch(text)
        if found is not None:
            return template.format(
                **{name: TEMPLATES.get(part, plain(part)) for name, part in found.groupdict().items()}
            )
    return text


@functools.cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    """What each template fits: anything for its values. Those with more words of their own come first."""
    found = []
    for template, said in sorted(
        (ERRORS | LAB_PARAGRAPHS | TRAINING | STEP).items(), key=lambda pair: -len(re.sub(r"{\w+}", "", pair[0]))
    ):
        parts = re.split(r"{(\w+)}", template)
        written = "".join(re.escape(part) if k % 2 == 0 else f"(?P<{part}>.+?)" for k, part in enumerate(parts))
        found.append((re.compile(written, re.DOTALL), said))
    return found
