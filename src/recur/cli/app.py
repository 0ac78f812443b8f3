"""Entry point `recur`: table of commands, and conversion of errors to exit codes."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from cyclopts import (
    App,
    CycloptsError,
    MissingArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from recur import __version__
from recur.cli.options import PLAIN
from recur.cli.screen import escape_messages, visible
from recur.errors import RankError, RecurError
from recur.i18n import map_text, printed
from recur.options.suggestions import unknown_option
from recur.utils.processes import Launch, launch

app = App(
    name="recur",
    version=__version__,
    help="Recurrent networks from equations: train, evaluate, diagnose, serve and export them.",
    help_epilogue="Every command has examples: recur train --help. Shell completion: recur --install-completion.",
    help_format="plaintext",
    default_parameter=PLAIN,
    suppress_keyboard_interrupt=False,
)
app.register_install_completion_command()

COMMANDS = {
    "train": "Train a model from a text or a table.",
    "sweep": "Search for good options; each trial is a run.",
    "submit": "Submit a training or a sweep to Slurm.",
    "resume": "Resume a stopped run from its checkpoint.",
    "sample": "Generate text with a trained model.",
    "predict": "Predict with a trained model, line by line.",
    "eval": "Evaluate trained models and n-grams on a text or a table.",
    "logprob": "Log-probability of a text under a language model or an n-gram.",
    "card": "Write a model card for a run.",
    "import": "Import the weights of a torch.nn or Keras model.",
    "export": "Export a trained model to C, ONNX, HTML, torch.export or torch.nn weights.",
    "xray": "Diagnose a trained network while it reads.",
    "cell": "Check a custom cell: gradients, backends, derivative, speed, gradient flow.",
    "lab": "Short experiments on vanishing and exploding gradients.",
    "studio": "Local web page for a folder of runs: curves, text, activations, gradients.",
    "serve": "Serve models over HTTP: completions, predictions, sessions.",
    "ngram": "Train an n-gram model and evaluate its perplexity.",
    "stats": "Text statistics: frequencies, Zipf's law, coverage, novelty.",
    "doctor": "Report the hardware, the packages and the backends that work.",
}
"""Commands with their help; each is the module of that name in this package (`import`: import_weights), with the `App`
`verb`."""

for _name, _help in COMMANDS.items():
    # A command is imported when it is called, so that --help needs no torch.
    _module = {"import": "import_weights"}.get(_name, _name)
    app.command(f"recur.cli.{_module}:verb", name=_name, help=_help)

OUT_OF_MEMORY = "out of memory; try a smaller --batch-size, --window or --hidden-size"

TEXT_FLAGS = ("--prompt", "--stop", "--label")
"""Flags whose value may be `-`; elsewhere `-` is standard input."""


SHORT = {"-": "/dev/stdin", "-o": "--out"}
"""Short arguments of all commands."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit: 0 success, 2 user error (one line), 130 interrupted."""
    escape_messages()
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    arguments = [
        argument if before in TEXT_FLAGS else SHORT.get(argument, argument)  # a text named -, not a value
        for before, argument in zip(["", *arguments], arguments, strict=False)
    ]
    with _threads_restored():
        return _run(arguments)


@contextmanager
def _threads_restored() -> Iterator[None]:
    """Restore torch's number of threads, for a process that calls several commands."""
    before = sys.modules["torch"].get_num_threads() if "torch" in sys.modules else None
    try:
        yield
    finally:
        if before is not None:
            sys.modules["torch"].set_num_threads(before)


def _missing(error: MissingArgumentError) -> str:
    """Return which argument or which value of an option is missing."""
    argument = error.argument
    if error.keyword is not None or argument is None:
        return f"option {error.keyword} needs a value"
    if argument.field_info.is_positional:
        return f"missing argument {argument.name.lstrip('-').upper()}"
    return f"missing option {argument.name}"


def _run(arguments: Sequence[str]) -> int:
    try:
        app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
    except UnusedCliTokensError as error:
        unused = ", ".join(error.unused_tokens or ())
        return _fail(f"unexpected argument {unused}; see recur {_verb(arguments)} --help")
    except UnknownOptionError as error:
        return _fail(f"{_unknown_flag(error)} See recur {_verb(arguments)} --help.")
    except UnknownCommandError as error:
        return _fail(f"{error} See recur --help.")
    except MissingArgumentError as error:
        return _fail(f"{_missing(error)}; see recur {_verb(arguments)} --help")
    except CycloptsError as error:
        return _fail(f"{error} See recur {_verb(arguments)} --help.")
    except RankError as error:
        return _fail(str(error), speaks=error.mine)
    except RecurError as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        _say("stopped", speaks=_place().rank == 0)
        return 130
    except BrokenPipeError:  # the reader of our output left, as head does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except UnicodeEncodeError:
        return _fail("an argument is not UTF-8")
    except MemoryError:
        return _fail(OUT_OF_MEMORY)
    except RuntimeError as error:  # torch's own, where no memory is left
        if "can't allocate memory" not in str(error) and "out of memory" not in str(error):
            raise
        return _fail(OUT_OF_MEMORY)
    except OSError as error:  # no space left, no permission: the user's machine, not our bug
        return _fail(f"{error.strerror or error}: {error.filename}" if error.filename else str(error))
    return 0


def _verb(arguments: Sequence[str]) -> str:
    return next((argument for argument in arguments if not argument.startswith("-")), "")


def _unknown_flag(error: UnknownOptionError) -> str:
    """Return the message for a flag that the command does not have, with the nearest one that it has."""
    name = (error.token.keyword or error.token.value).partition("=")[0]
    flags = {flag for argument in error.argument_collection if argument.parse for flag in argument.names}
    return unknown_option(name, (flag for flag in flags if flag.startswith("--")))


def _fail(message: str, speaks: bool | None = None) -> int:
    _say(map_text(message, lambda part: " ".join(part.split())), _place().local == 0 if speaks is None else speaks)
    return 2


def _say(message: str, speaks: bool) -> None:
    """Print a line on standard error; of several processes only one prints it."""
    if speaks:
        line = f"recur: {visible(printed(message))}"
        if sys.stderr.isatty():  # where a line that is too long is broken between words
            width = shutil.get_terminal_size().columns
            line = textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False)
        print(line, file=sys.stderr)


def _place() -> Launch:
    try:
        return launch()
    except RecurError:  # which is what is being said
        return Launch()
