"""recur card: model card of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from recur.cli.options import Opening, Output
from recur.cli.screen import Screen

verb = App(
    help_epilogue="""Examples:
  recur card runs/book                        Markdown, on the screen
  recur card runs/book --out runs/book/README.md
  recur card runs/book --json"""
)


@verb.default
def card(
    run: Path,
    /,
    *,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
    opening: Opening = Opening(),  # noqa: B008  frozen
    output: Output = Output(),  # noqa: B008  frozen
) -> None:
    """Write a model card from the data of a run: task, training data by digest, network, training, metrics, baselines,
    how to load it. Licence, authors and intended use are left for the author.

    Parameters
    ----------
    run
        Run folder.
    out
        File to write; default: print it.
    """
    from recur.tasks import open_predictor
    from recur.tasks.common.model_card import card_markdown
    from recur.tasks.common.model_card import make_card as made_of
    from recur.utils.files import write_atomically

    screen = Screen(output)
    predictor = open_predictor([run], "cpu", opening.trust)
    found = made_of(predictor)
    text = card_markdown(found, predictor.task)
    if out is not None:
        write_atomically(out, text.encode())
        screen.note(f"written to {out}")
    else:
        screen.write(text.rstrip("\n"))
    screen.result(found)
