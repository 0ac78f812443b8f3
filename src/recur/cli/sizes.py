"""What `recur lab parameters` compares: a text, a run or plain numbers, each with its network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from recur.errors import OptionError
from recur.utils.types import JsonObject

if TYPE_CHECKING:
    from recur.data.text import Vocab
    from recur.diagnostics.labs import Experiment
    from recur.diagnostics.labs.parameters import Network


def sizes_by_numbers(k: int, tau: int, network: JsonObject) -> Experiment:
    """No text: k tokens, and the network of `recur train` for as many."""
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
    return int(vocab.predictable().sum())


def _network(options: object, K: int) -> Network:
    """The network of a language model's options, made and counted."""
    from recur.diagnostics.labs.parameters import Network
    from recur.models import LanguageModel
    from recur.tasks.language.options import LanguageOptions

    assert isinstance(options, LanguageOptions)
    size = LanguageModel(K, options).size
    deep = f" in {options.layers} layers" if options.layers > 1 else ""
    return Network(f"A language model of {options.hidden} {options.cell} units{deep}", size)
