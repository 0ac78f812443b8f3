"""Results of probes: measurements with a finding, its level, and what to try."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

from recur.i18n import Language, Message, translate
from recur.runs import Run
from recur.tasks.common.options import TaskOptions
from recur.utils.types import JsonObject


class Level(IntEnum):
    """Severity of a finding.

    >>> recur.diagnostics.Level.FAULT > recur.diagnostics.Level.WARNING
    True
    """

    OK = 0
    UNKNOWN = 1
    """There is not enough data to decide."""
    WARNING = 2
    FAULT = 3


CAUSES = (
    "network", "training", "rate", "fit", "forgetting", "dead units", "window", "gradient flow", "gradient terms",
    "Jacobians", "saturation", "context", "classes", "attention", "tree depth", "residuals", "bands", "inputs",
    "length", "copying", "stationarity", "position", "spectrum", "memory path", "sentence", "states", "saliency",
    "units",
)  # fmt: skip
"""Names of the probes, causes before effects: a high learning rate saturates gates, which block gradients."""


@dataclass(frozen=True)
class Try:
    """Recommended change of the options; docs/notes/2026-11-diagnosis.md has the measurements."""

    option: str
    """Option of `recur train`, such as `--lr 0.001`."""
    means: str
    """Effect of the option."""
    see: str
    """How to check that it helped."""

    def as_dict(self, language: Language = "en") -> JsonObject:
        return {
            "option": self.option,
            "means": translate(self.means, language),
            "see": translate(self.see, language),
        }


@dataclass(frozen=True)
class Finding:
    """Conclusion of one probe: a value compared with its threshold.

    >>> from recur.diagnostics import Finding, Level
    >>> finding = Finding("gradient flow", Level.WARNING, 1e-4, 1e-2, "gradients vanish")
    >>> finding.as_dict()["verdict"]
    'gradients vanish'
    """

    probe: str
    """One of CAUSES."""
    level: Level
    value: float
    threshold: float
    verdict: str
    """The conclusion in words, with its numbers."""
    tries: tuple[Try, ...] = ()
    """Recommendations, best first; empty if nothing is wrong or another finding has the cause."""

    @property
    def advice(self) -> str:
        """The recommendations as one line."""
        return "; ".join(f"{one.option}: {one.means}" for one in self.tries)

    def as_dict(self, language: Language = "en") -> JsonObject:
        return {
            "probe": self.probe,
            "name": translate(self.probe, language),
            "level": self.level.name.lower(),
            "value": self.value,
            "threshold": self.threshold,
            "verdict": translate(self.verdict, language),
            "advice": self.advice,
            "try": [one.as_dict(language) for one in self.tries],
        }


@dataclass(frozen=True)
class Measurement:
    """Result of one probe: its finding and the numbers of its figure.

    >>> finding = recur.diagnostics.Finding("gradient flow", recur.diagnostics.Level.OK, 0.5, 1e-2, "gradients flow")
    >>> recur.diagnostics.Measurement(finding, {"ratio": 0.5}).numbers
    {'ratio': 0.5}
    """

    finding: Finding
    numbers: JsonObject = field(default_factory=dict)
    """Numbers, strings and lists that JSON can hold."""


def worst_first(findings: list[Finding]) -> list[Finding]:
    """Sort findings by level, the worst first; within a level, causes before effects.

    >>> level = recur.diagnostics.Level
    >>> found = [recur.diagnostics.Finding("fit", at, 0, 1, at.name) for at in (level.OK, level.FAULT)]
    >>> [finding.verdict for finding in recur.diagnostics.worst_first(found)]
    ['FAULT', 'OK']
    """
    return sorted(findings, key=lambda f: (-f.level, CAUSES.index(f.probe)))


def tried_folder(run: Run) -> Path:
    """Return a free folder next to the run: its name with -try, -try-2 … appended."""
    name = run.path.resolve().name
    for k in range(1, 10_000):
        folder = run.path.parent / f"{name}-try{'' if k == 1 else f'-{k}'}"
        if not folder.exists():
            return folder
    raise AssertionError("there are thousands of them")


def arguments(run: Run, option: str, folder: Path) -> list[str]:
    """Return the arguments of `recur` that train the run again with another option."""
    return ["train", "--config", str(run.config), *option.split(), "--out", str(folder)]


def command(run: Run | None, option: str) -> str:
    """Return the shell command that trains the run again with another option."""
    if run is None:
        return f"recur train {option}"
    return shlex.join(["recur", *arguments(run, option, tried_folder(run))])


SMALLEST_CLIP = 1.0


def slower(options: TaskOptions, times: float) -> Try:
    """Recommend a lower learning rate."""
    option = f"--lr {options.lr / times:.2g}"
    if not options.grad_clip:
        option += f" --grad-clip {SMALLEST_CLIP:g}"
        means = Message("a lower learning rate, and gradient clipping")
    else:
        means = Message("a lower learning rate")
    return Try(option, means, Message("the loss falls from the first evaluation on and does not rise again"))


def longer(option: str) -> Try:
    """Recommend longer training; `option` is twice the budget."""
    see = Message("the final loss is lower, and the second half of its curve is flatter")
    return Try(
        option,
        Message("twice the training time, from the start, so that the learning rate schedule spans all of it"),
        see,
    )


def more_dropout(option: str) -> Try:
    """Recommend regularisation against overfitting."""
    if option.startswith("--dropout"):
        means = Message("dropout: a random share of the outputs is set to zero in training")
    else:
        means = Message("less training time")
    return Try(option, means, Message("the final validation loss is the best one"))


def larger(hidden: int) -> Try:
    """Recommend a larger network."""
    option = f"--hidden-size {max(2 * hidden, 32)}"
    see = Message("the training loss and the validation loss fall")
    return Try(option, Message("more units"), see)


def opened(cell: str) -> Try:
    """Recommend a forget gate that is initialised open."""
    option = "--forget-bias 1" if cell == "lstm" else "--cell lstm --forget-bias 1"
    see = Message("under “forgetting”, the mean of the gate is well above 0.1")
    return Try(option, Message("a forget gate that is initialised open, at σ(1) = 0.73"), see)


def other_units() -> Try:
    """Recommend gated units against dead units."""
    see = Message("under “dead units”, the number is near zero")
    return Try("--cell gru", Message("gated units, which do not die"), see)


def wider_window(steps: int) -> Try:
    """Recommend a longer truncation window."""
    see = Message("the loss is lower, and under “context” more tokens are used")
    return Try(f"--window {steps}", Message("gradients that reach further back"), see)


def gated() -> Try:
    """Recommend a gated cell against vanishing gradients."""
    see = Message("under “gradient flow”, 1 % is left after more steps than before")
    return Try("--cell gru", Message("a gated cell, which can keep its state unchanged"), see)
