"""`recur`: the verbs, and what becomes of an error."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Sequence

from cyclopts import App, CycloptsError, Parameter, UnusedCliTokensError

from recur import __version__
from recur.errors import RankError, RecurError
from recur.launch import Launch, launch

app = App(
    name="recur",
    version=__version__,
    help="Recurrent networks as equations, and the n-gram models worth beating.",
    help_epilogue="Each verb has examples: recur ngram --help. Shell completion: recur --install-completion.",
    help_format="plaintext",
    default_parameter=Parameter(negative_iterable=()),
    suppress_keyboard_interrupt=False,
)
app.register_install_completion_command()

# A verb is named here by where it lives, and imported when it is called.
app.command("recur.cli.train:verb", name="train", help="Learn a model from a text or a table.")
app.command("recur.cli.sweep:verb", name="sweep", help="Search for good options: each trial a run, the best one said.")
app.command("recur.cli.resume:verb", name="resume", help="Go on with a run exactly where it stopped.")
app.command("recur.cli.sample:verb", name="sample", help="Write text with a trained model.")
app.command("recur.cli.predict:verb", name="predict", help="What a trained model makes of each line.")
app.command("recur.cli.eval:verb", name="eval", help="Measure trained models, and n-grams, on a text or a table.")
app.command("recur.cli.logprob:verb", name="logprob", help="How likely a language model or an n-gram finds a text.")
app.command("recur.cli.card:verb", name="card", help="A model card of a run, from its own numbers.")
app.command(
    "recur.cli.export:verb", name="export", help="A trained model as C, ONNX, a page, torch.export or torch.nn weights."
)
app.command("recur.cli.xray:verb", name="xray", help="What a trained network does with a text, and what is wrong.")
app.command(
    "recur.cli.cell:verb", name="cell", help="Check a cell of your own: gradients, backends, derivative, speed, flow."
)
app.command("recur.cli.lab:verb", name="lab", help="Short experiments: why gradients vanish, explode, and what helps.")
app.command(
    "recur.cli.studio:verb",
    name="studio",
    help="A local page over a folder of runs: curves, generated text, activations, gradients.",
)
app.command("recur.cli.serve:verb", name="serve", help="Serve models to many: completions, predictions, sessions.")
app.command("recur.cli.ngram:verb", name="ngram", help="Count n-grams, smooth them, and measure perplexity.")
app.command("recur.cli.stats:verb", name="stats", help="Frequencies, stop words, Zipf's law, coverage, novelty.")
app.command("recur.cli.doctor:verb", name="doctor", help="What this machine has, and which backends work on it.")


OUT_OF_MEMORY = "not enough memory; a smaller --batch, --window or --hidden needs less"

TEXT_FLAGS = ("--prompt", "--stop", "--label")
"""Flags whose value may be a hyphen."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, and leave: 0 done, 2 a user's mistake in one line, 130 interrupted."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    arguments = [
        "/dev/stdin" if argument == "-" and before not in TEXT_FLAGS else argument  # a text named -, not a value
        for before, argument in zip(["", *arguments], arguments, strict=False)
    ]
    try:
        app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
    except UnusedCliTokensError as error:
        verb = next((a for a in arguments if not a.startswith("-")), "")
        return _fail(f"{', '.join(error.unused_tokens or ())}: nothing is to be named here; see recur {verb} --help")
    except CycloptsError as error:
        return _fail(f"{error} See recur --help.")
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


def _fail(message: str, speaks: bool | None = None) -> int:
    _say(" ".join(message.split()), _place().local == 0 if speaks is None else speaks)
    return 2


def _say(message: str, speaks: bool) -> None:
    """Of several processes, what all of them would say, one says."""
    if speaks:
        line = f"recur: {message}"
        if sys.stderr.isatty():  # where a line that is too long is broken between words
            width = shutil.get_terminal_size().columns
            line = textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False)
        print(line, file=sys.stderr)


def _place() -> Launch:
    try:
        return launch()
    except RecurError:  # which is what is being said
        return Launch()
