"""recur sample: generate text with a trained model."""

from __future__ import annotations

import shlex
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from recur.cli.options import Opening, Output, open_model
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
    threads: int = 0,
    opening: Opening = Opening(),  # noqa: B008  frozen
    output: Output = Output(),  # noqa: B008  frozen
) -> None:
    """Generate text with a trained model.

    Parameters
    ----------
    run
        Run folder.
    prompt
        Prompt to continue; a model trained with --direction backward generates the text before it.
    label
        Conditional models: label of the generated line.
    length
        Number of tokens; default 200. Lines of conditional models end by themselves.
    temperature
        Sampling temperature: below 1 more likely text, above 1 more varied text.
    top_k
        Sample from the k most likely tokens; 0: all, 1: always the most likely.
    top_p
        Nucleus sampling: sample from the most likely tokens with this total probability.
    min_p
        Sample from tokens with at least this fraction of the highest probability.
    beam
        Beam search with this width instead of sampling.
    samples
        Number of texts, generated as one batch.
    stop
        Stop before this text.
    interactive
        Read prompts interactively.
    seed
        Random seed; default: a new one each time.
    weights
        Precision of the recurrent weights; `recur eval --weights` evaluates the loss of quality.
    device
        cpu, cuda, cuda:N or auto.
    threads
        CPU threads; 0: as many as the run was trained with.
    """
    from recur.tasks.conditional.predictor import ConditionalWriter
    from recur.tasks.language.predictor import Language

    screen = Screen(output)
    if length is not None and length < 0:
        raise OptionError(f"--length must not be negative, got {length}")
    model = open_model([run], device, opening.trust, threads)
    if weights != "float32":
        model.use_products(weights)
    choice: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
    drawn = (samples, stop, temperature, top_k, top_p, min_p) != (1, "", 1.0, 0, 1.0, 0.0)
    if beam and drawn:
        raise OptionError("--beam is a search: it cannot be combined with --samples, --stop or sampling options")
    if isinstance(model, ConditionalWriter):
        if prompt or length is not None or stop or interactive:
            raise OptionError(
                "a conditional model generates whole lines: --prompt, --length, --stop and --interactive do not apply"
            )
        if label is None:
            raise OptionError(f"which label? --label, one of: {', '.join(sorted(model.labels))}")
        texts = model.generate(label, samples=samples, seed=seed, width=beam, **choice)
        screen.write("\n".join(texts))
        screen.result({"run": str(run), "label": label, "samples": texts})
        return
    if not isinstance(model, Language):
        raise OptionError(f"{run} is no language model: try recur {model.task.verb} {shlex.quote(str(run))}")
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
    _stream(screen, model, prompt, length, stop, seed, choice)


def _stream(
    screen: Screen, model: Language, prompt: str, length: int, stop: str, seed: int | None, choice: dict[str, Any]
) -> None:
    if model.backward:  # its first piece is the last of the text
        screen.write(model.generate(prompt, length, stop=stop, seed=seed, **choice)[0] + prompt)
        return
    pieces = model.stream(prompt, length, stop, seed, **choice)
    first = next(pieces, "")  # a prompt that cannot be read is refused before anything is written
    screen.write(prompt + first, end="")
    for piece in pieces:
        screen.write(piece, end="")
        sys.stdout.flush()
    screen.write("")


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
            _stream(screen, model, prompt, length, stop, seed, choice)
        except RecurError as error:
            screen.note(str(error))
