"""What to try, and where. Each was measured to help in the situation that triggers it: `python -m bench advice`, and a
table of it in docs/xray.md. What did not help is not advised."""

from __future__ import annotations

from recur.diagnostics.finding import Try
from recur.i18n import said
from recur.tasks.options import TaskOptions

SMALLEST_CLIP = 1.0


def slower(options: TaskOptions, times: float) -> Try:
    """Where training diverges, or a step is too coarse."""
    option = f"--rate {options.rate / times:.2g}"
    if not options.clip:
        option += f" --clip {SMALLEST_CLIP:g}"
        means = said("smaller steps, and none longer than the clip allows")
    else:
        means = said("smaller steps")
    return Try(option, means, said("the loss falls from the first measurement on and does not rise again"))


def longer(option: str) -> Try:
    """Where figures were still getting better when the run ended; `option` is twice its budget."""
    see = said("the loss ends lower, and its second half is flatter")
    return Try(option, said("twice the time, from the start: the rate falls over all of it"), see)


def more_dropout(option: str) -> Try:
    """Where a network learns by heart."""
    if option.startswith("--dropout"):
        means = said("dropout: a share of the outputs is left away at random in training")
    else:
        means = said("less time")
    return Try(option, means, said("the loss on what it has not seen ends at its best"))


def larger(hidden: int) -> Try:
    """Where a network has learned what it can at its size."""
    option = f"--hidden {max(2 * hidden, 32)}"
    see = said("the loss falls on what it learned from and on what it has not seen")
    return Try(option, said("more units"), see)


def opened(cell: str) -> Try:
    """Where a forget gate is shut."""
    option = "--forget-bias 1" if cell == "lstm" else "--cell lstm --forget-bias 1"
    see = said("under “forgetting”, the gate's mean lies well above 0.1")
    return Try(option, said("a forget gate that starts open, at σ(1) = 0.73"), see)


def other_units() -> Try:
    """Where units are dead."""
    see = said("under “dead units”, hardly any is left")
    return Try("--cell gru", said("units with gates, which do not die"), see)


def wider_window(steps: int) -> Try:
    """Where the context beyond the window lowers the loss."""
    see = said("the loss falls, and under “context” more tokens are used")
    return Try(f"--window {steps}", said("gradients that reach further back"), see)


def gated() -> Try:
    """Where gradients vanish in a cell without gates."""
    see = said("under “gradient flow”, 1 % is left after more steps than before")
    return Try("--cell gru", said("a cell whose gates can carry its state on unchanged"), see)
