"""recur sample: write text with a trained model."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from recur.cli.options import Opening, Output
from recur.cli.screen import Screen
from recur.errors import OptionError

if TYPE_CHECKING:
    from recur.tasks.language.predictor import Language

verb = App(
    help_epilogue="""Examples:
  recur sample runs/book --prompt "The " --length 400 --temperature 0.8
  recur sample runs/book --samples 5 --top-p 0.9 --seed 1 --json
  recur sample runs/book --beam 8 --length 60
  recur sample runs/book --interactive
  recur sample runs/names --label Greek --samples 10"""
)


@verb.default
def sample(
    run: Path,
    /,
    *,
    prompt: str = "",
    label: str | None = None,
    length: int | None = None,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    beam: int = 0,
    samples: int = 1,
    stop: str = "",
    interactive: Annotated[bool, Parameter(negative="")] = False,
    seed: int | None = None,
    weights: Literal["float32", "bfloat16", "int8"] = "float32",
    device: str = "auto",
    opening: Opening = Opening(),  # noqa: B008  frozen
    output: Output = Output(),  # noqa: B008  frozen
) -> None:
    """Write text with a trained model, one step a token.

    Parameters
    ----------
    run
        The run's folder.
    prompt
        What to go on from; of a model trained with --direction backward, the end of the text: it writes what leads
        up to it.
    label
        Models of lines with labels: write one of this label.
    length
        How many tokens; 200, if not given. Lines end by themselves.
    temperature
        Below 1 it is safer, above 1 wilder.
    top_k
        Choose among the k likeliest tokens only; 0 is all, 1 always the likeliest.
    top_p
        Choose among the likeliest that together have this probability.
    min_p
        Choose among those with at least this share of the likeliest one's probability.
    beam
        Search for the likeliest text with a beam of this width instead of drawing one.
    samples
        How many texts, as one batch.
    stop
        End before this text comes up.
    interactive
        Ask for prompts, one after the other.
    seed
        The same seed, the same text; another each time, if not given.
    weights
        Keep the weights of the recurrent layers in fewer bits; what that costs is measured by `recur eval --weights`.
    device
        cpu, cuda, cuda:N or auto.
    """
    from recur.tasks import open_predictor
    from recur.tasks.conditional.predictor import ConditionalWriter
    from recur.tasks.language.predictor import Language

    screen = Screen(output)
    if length is not None and length < 0:
        raise OptionError(f"--length must not be negative, got {length}")
    model = open_predictor([run], device, opening.trust)
    if weights != "float32":
        model.use_products(weights)
    choice: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
    drawn = (samples, stop, temperature, top_k, top_p, min_p) != (1, "", 1.0, 0, 1.0, 0.0)
    if beam and drawn:
        raise OptionError(
            "a beam searches for the likeliest text: --samples, --stop and what draws have no use with it"
        )
    if isinstance(model, ConditionalWriter):
        if prompt or length is not None or stop or interactive:
            raise OptionError(
                "lines of a label begin and end by themselves: no --prompt, --length, --stop, --interactive"
            )
        if label is None:
            raise OptionError(f"which label? --label, one of: {', '.join(sorted(model.labels))}")
        texts = model.generate(label, samples=samples, seed=seed, width=beam, **choice)
        screen.write("\n".join(texts))
        screen.result({"run": str(run), "label": label, "samples": texts})
        return
    if not isinstance(model, Language):
        raise OptionError(f"{run} is no language model: try recur {model.task.verb} {run}")
    if label is not None:
        raise OptionError(f"{run} was not trained with --task conditional, so --label has no use")
    length = 200 if length is None else length
    if model.backward:
        what = "what leads up to the prompt" if prompt or interactive else "the last token first"
        screen.note(f"this model writes from the end: {what}")
    if interactive:
        _converse(screen, model, length, stop, seed, choice)
        return
    if beam or samples > 1 or screen.json:
        texts = model.generate(prompt, length, samples=samples, stop=stop, seed=seed, width=beam, **choice)
        for text in texts:
            screen.write(text + prompt if model.backward else prompt + text)
        screen.result({"run": str(run), "prompt": prompt, "direction": model.options.direction, "samples": texts})
        return
    _stream(model, prompt, length, stop, seed, choice)


def _stream(model: Language, prompt: str, length: int, stop: str, seed: int | None, choice: dict[str, Any]) -> None:
    if model.backward:  # its first piece is the last of the text
        sys.stdout.write(model.generate(prompt, length, stop=stop, seed=seed, **choice)[0] + prompt + "\n")
        return
    pieces = model.stream(prompt, length, stop, seed, **choice)
    first = next(pieces, "")  # a prompt that cannot be read is refused before anything is written
    sys.stdout.write(prompt + first)
    for piece in pieces:
        sys.stdout.write(piece)
        sys.stdout.flush()
    sys.stdout.write("\n")


def _converse(
    screen: Screen, model: Language, length: int, stop: str, seed: int | None, choice: dict[str, Any]
) -> None:
    from recur.errors import RecurError

    with suppress(ImportError):  # Windows has none
        import readline  # noqa: F401  with it, input() has a history and can be edited

    screen.note(
        f"write how it {'ends' if model.backward else 'begins'}; an empty line ends, ↑ brings earlier ones back"
    )
    while True:
        try:
            prompt = input("> ")
        except EOFError:
            return
        if not prompt:
            return
        try:
            _stream(model, prompt, length, stop, seed, choice)
        except RecurError as error:
            screen.note(str(error))
