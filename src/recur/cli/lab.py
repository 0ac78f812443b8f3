"""recur lab: short experiments that reproduce arguments of the textbook, with one figure and one paragraph each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from recur.cli.options import Common, Opening
from recur.cli.screen import Screen, table
from recur.errors import OptionError
from recur.utils.types import JsonObject

if TYPE_CHECKING:
    from recur.data.text import Vocab
    from recur.diagnostics.labs import Experiment
    from recur.diagnostics.labs.parameters import Network
    from recur.utils.types import JsonObject


def sizes_by_numbers(k: int, tau: int, network: JsonObject) -> Experiment:
    """Compare sizes for k tokens without a text, with the network that `recur train` would use."""
    from recur.data.text.tokenizers import SPECIALS
    from recur.diagnostics.labs import parameters
    from recur.tasks import make_options

    if k < 1:
        raise OptionError(f"--k must be at least 1, got {k}")
    return parameters(k, _network(make_options("language", network), k + len(SPECIALS)), tau)


def sizes_of_text(sources: Sequence[str], token: str, tau: int, network: JsonObject) -> Experiment:
    from recur.data.text import Corpus, fit_vocab
    from recur.diagnostics.labs import parameters
    from recur.diagnostics.labs.parameters import count_text
    from recur.tasks import make_options, task_class

    corpus = Corpus.of(*sources)
    vocab = fit_vocab(corpus, token)
    made = make_options("language", {"texts": list(sources), "token": token, **network})
    settled = task_class("language").settle(made)
    return parameters(_types(vocab), _network(settled, len(vocab)), tau, count_text(corpus, vocab, tau))


def sizes_of_run(run: Path, sources: Sequence[str] | None, tau: int, trust: bool) -> Experiment:
    from recur.data.text import Corpus
    from recur.diagnostics.labs import parameters
    from recur.diagnostics.labs.parameters import Network, count_text
    from recur.tasks import open_predictor
    from recur.tasks.language.data import corpora
    from recur.tasks.language.predictor import Language

    language = open_predictor([run], "cpu", trust)
    if not isinstance(language, Language):
        raise OptionError(f"{run} is a run of the task {language.task.name}, and --run takes one of the task language")
    if not sources:
        language.find_texts("texts", "valid")
    corpus = Corpus.of(*sources) if sources else corpora(language.options)[0]
    network = Network(f"the network of {run}", language.model.size)
    return parameters(_types(language.vocab), network, tau, count_text(corpus, language.vocab, tau))


def _types(vocab: Vocab) -> int:
    return int(vocab.writable().sum())


def _network(options: object, K: int) -> Network:
    """Return the network of a language model's options with its number of parameters."""
    from recur.diagnostics.labs.parameters import Network
    from recur.models import LanguageModel
    from recur.tasks.language.options import LanguageOptions

    assert isinstance(options, LanguageOptions)
    size = LanguageModel(K, options).size
    deep = f" in {options.num_layers} layers" if options.num_layers > 1 else ""
    return Network(f"A language model of {options.hidden_size} {options.cell} units{deep}", size)


verb = App(
    name="lab",
    help_epilogue="""Examples:
  recur lab vanishing
  recur lab exploding --figure exploding.svg
  recur lab variance --steps 100 --target 1
  recur lab parameters book.txt --token word
  recur lab truncation --json""",
)

Figure = Annotated[Path | None, Parameter(help="Where the figure goes (.png, .svg or .pdf); EXPERIMENT.png.")]


def _run(name: str, figure: Path | None, common: Common, experiment: Callable[[], Experiment]) -> JsonObject:
    from recur.utils.files import save_figure

    screen = Screen(common)
    path = figure or Path(f"{name}.png")
    with screen.busy(name):
        found = experiment()
        save_figure(found.figure, path)
    if name == "parameters":
        _show_sizes(screen, found.numbers)
    screen.show(found.paragraph)
    screen.note(f"drawn to {path}")
    screen.result({"experiment": name, "paragraph": found.paragraph, "figure": str(path), "numbers": found.numbers})
    return found.numbers


@verb.command
def vanishing(*, figure: Figure = None, common: Common = Common()) -> None:  # noqa: B008  frozen
    """Gradient by lag: with σ, with tanh, and along the memory cell of an LSTM."""
    from recur.diagnostics import labs

    _run("vanishing", figure, common, lambda: labs.vanishing(common.seed))


@verb.command
def exploding(*, figure: Figure = None, common: Common = Common()) -> None:  # noqa: B008
    """Powers of W with eigenvalues inside, on and outside the unit circle."""
    from recur.diagnostics import labs

    _run("exploding", figure, common, lambda: labs.exploding(common.seed))


@verb.command
def variance(
    *,
    steps: int = 60,
    target: float = 0.1,
    figure: Figure = None,
    common: Common = Common(),  # noqa: B008
) -> None:
    """One shared weight for all steps, compared with one weight per step of a chosen variance.

    Parameters
    ----------
    steps
        Number n of weights that are multiplied.
    target
        Variance v* of the product; each weight has variance v*^(1/n).
    """
    from recur.diagnostics import labs

    _run("variance", figure, common, lambda: labs.variance(common.seed, steps, target))


@verb.command
def truncation(*, figure: Figure = None, common: Common = Common()) -> None:  # noqa: B008
    """Learning of a dependency that is longer than the window of backpropagation."""
    from recur.diagnostics import labs

    _run("truncation", figure, common, lambda: labs.truncation(common.seed))


@verb.command
def forget_gate(*, figure: Figure = None, common: Common = Common()) -> None:  # noqa: B008
    """Gradient along the memory cell of an LSTM, from closed to open forget gates."""
    from recur.diagnostics import labs

    _run("forget-gate", figure, common, lambda: labs.forget_gate(common.seed))


@verb.command
def clipping(*, figure: Figure = None, common: Common = Common()) -> None:  # noqa: B008
    """Gradient descent next to a cliff, with and without clipping."""
    from recur.diagnostics import labs

    _run("clipping", figure, common, lambda: labs.clipping(common.seed))


@verb.command
def parameters(
    *sources: str,
    token: Literal["char", "word"] = "char",
    k: Annotated[int | None, Parameter(name="--k")] = None,
    tau: int = 6,
    cell: str | None = None,
    hidden_size: int | None = None,
    num_layers: int | None = None,
    run: Path | None = None,
    figure: Figure = None,
    opening: Opening = Opening(),  # noqa: B008
    common: Common = Common(),  # noqa: B008
) -> None:
    """Number of parameters of a table, n-grams and a network, by context length.

    All of the text is counted, as in `recur ngram TEXT --eval TEXT`. The network is the one that `recur train` would
    build, or that of a run.

    Parameters
    ----------
    sources
        Files, folders, - for standard input, pydoc (the default) or stdlib.
    token
        Token.
    k
        Number of different tokens; no text is read.
    tau
        Maximum number of tokens in the context.
    cell
        Cell of the network; default: that of `recur train`.
    hidden_size
        Number of hidden units.
    num_layers
        Number of layers.
    run
        Use this trained language model and its vocabulary; without a text, its training text.
    """

    given = {"cell": cell, "hidden_size": hidden_size, "num_layers": num_layers}
    network = {name: value for name, value in given.items() if value is not None}
    if k is not None and (sources or run is not None):
        raise OptionError("--k takes the place of a text or a run; give one of them")
    if run is not None and network:
        raise OptionError(f"--{next(iter(network))} is of a network to be made, and {run} has one")
    if k is not None:
        _run("parameters", figure, common, lambda: sizes_by_numbers(k, tau, network))
    elif run is not None:
        _run("parameters", figure, common, lambda: sizes_of_run(run, sources, tau, opening.trust))
    else:
        _run("parameters", figure, common, lambda: sizes_of_text(sources or ["pydoc"], token, tau, network))


def _show_sizes(screen: Screen, numbers: JsonObject) -> None:
    from recur.diagnostics.labs.parameters import short

    ngrams = numbers.get("ngrams", [])
    columns = ("n-grams seen", "n-gram model") if ngrams else ()
    sizes = table("", "τ", "table k^τ", *columns, "network")
    for at, size in enumerate(numbers["table"]):
        seen = (f"{ngrams[at]:,}", f"{numbers['ngram_parameters'][at]:,}") if ngrams else ()
        sizes.add_row(str(at + 1), short(size), *seen, f"{numbers['network_parameters']:,}")
    screen.show(sizes, "")
