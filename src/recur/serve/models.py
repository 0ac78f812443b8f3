"""Served runs by name, reloading of newer weights between two requests, and the inputs that a run takes.

A request or a session that started with older weights finishes with them. The two latest versions of each run are kept;
sessions of older versions end.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recur.data.text import Vocab
from recur.decoding import encode_prompt
from recur.decoding.sampling import forbidden_tokens
from recur.errors import OptionError, RunError
from recur.runs import Run
from recur.serve.http import SURROGATE, UnknownError
from recur.serve.schemas import Limits
from recur.serve.state_pool import LanguageNetwork, StatePool, StepNetwork, make_state_pool, make_step_network
from recur.tasks import predictor_of
from recur.tasks.common.classification import class_names
from recur.tasks.common.predictor import Predictor
from recur.tasks.language.data import first_input
from recur.tasks.language.predictor import Language
from recur.tasks.tag.signals import TranscriberPredictor
from recur.utils.types import JsonObject

VERSIONS = 2
"""Versions of a run in memory."""


class ServedModel:
    """One version of a run's model, ready for requests."""

    def __init__(self, run: Run, device: str, limits: Limits, products: str = "") -> None:
        self.name, self.path, self.digest = run.path.resolve().name, run.path, model_digest(run)
        self.created = int(time.time())
        self.predictor: Predictor[Any] = predictor_of([run], device)
        if products:
            self.predictor.use_products(products)
        self.no_sessions = ""
        """Reason why the model has no sessions; "" if it has."""
        self._network: StepNetwork | None = None
        try:
            with torch.no_grad():
                self._network = make_step_network(self.predictor)
        except OptionError as error:
            self.no_sessions = str(error)
        self._pool = None if self._network is None else make_state_pool(self._network, limits.sessions + limits.rows)
        self.over = False
        """Whether the version was dropped, and its sessions with it."""

    @property
    def task(self) -> str:
        return self.predictor.task.name

    @property
    def network(self) -> StepNetwork:
        if self._network is None:
            raise OptionError(self.no_sessions)
        return self._network

    @property
    def pool(self) -> StatePool:
        if self._pool is None:
            raise OptionError(self.no_sessions)
        return self._pool

    @property
    def writes(self) -> bool:
        """Whether it is a language model that generates text."""
        return isinstance(self._network, LanguageNetwork)

    @property
    def language(self) -> Language:
        if not isinstance(self.predictor, Language) or not self.writes:
            why = (
                self.no_sessions if isinstance(self.predictor, Language) else f"{self.name} is of the task {self.task}"
            )
            raise OptionError(f"{why}; it has no completions; use /v1/predict")
        return self.predictor

    @property
    def vocab(self) -> Vocab:
        return self.predictor.run.vocab

    @cached_property
    def lead(self) -> int:
        """Token that a language model reads before every text."""
        return first_input(self.vocab)

    @cached_property
    def token_texts(self) -> Sequence[str]:
        """Texts of the tokens."""
        return ["\n" if token == "<eos>" and self.vocab.tokenizer.lines else token for token in self.vocab.tokens]

    @cached_property
    def labels(self) -> Sequence[str]:
        """Texts of the labels of a step."""
        if self.writes:
            return self.token_texts
        found = class_names(self.predictor.run.vocabs["labels"])
        return (*found, "") if isinstance(self.predictor, TranscriberPredictor) else found  # the blank of CTC

    def writable(self, scores: Tensor) -> Tensor:
        """Return scores in which tokens that are never generated are −∞."""
        return scores + self._never if self.writes else scores

    @cached_property
    def _never(self) -> Tensor:
        """−∞ for each token that is never generated, else 0."""
        found = torch.zeros(self.network.width, device=self.network.device)
        found[forbidden_tokens(self.language.model)] = -torch.inf
        return found

    def describe(self) -> JsonObject:
        """Describe the model as OpenAI's API lists models, with its task and abilities."""
        about: JsonObject = {"id": self.name, "object": "model", "created": self.created, "owned_by": "recur"}
        about |= {"task": self.task, "digest": self.digest, "completions": self.writes}
        about |= {"sessions": self._network is not None}
        if self._network is not None:
            kind = {"numbers": self._network.width} if self._network.numbers else {"tokens": self._network.width}
            about |= {"input": kind, "state_bytes": self.pool.bytes_each}
        return about


def model_digest(run: Run) -> str:
    """Return the digest of weights, vocabularies and configuration, which ties a state to its model."""
    files = {name: digests[-1] for name, digests in run.manifest.files.items() if not name.endswith(".jsonl")}
    files.pop("baselines.json", None)
    return hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()[:32]


class ModelVersions:
    """Versions of the served models, the newest first."""

    def __init__(
        self, paths: Sequence[Path], limits: Limits, device: str = "auto", trust: bool = False, products: str = ""
    ) -> None:
        self.limits, self.device, self.trust, self.products = limits, device, trust, products
        self.paths = {Path(path).resolve().name: Path(path) for path in paths}
        if len(self.paths) < len(paths):
            raise OptionError(
                f"two runs have the same name; requests select a model by its name: {', '.join(map(str, paths))}"
            )
        self.versions = {name: [self._load(name)] for name in self.paths}
        """The newest first."""
        self.reloads = 0

    def _load(self, name: str) -> ServedModel:
        return ServedModel(Run.open(self.paths[name], trust=self.trust), self.device, self.limits, self.products)

    def __iter__(self) -> Iterator[ServedModel]:
        return (versions[0] for versions in self.versions.values())

    def get(self, name: str | None) -> ServedModel:
        """Return the newest version of a name; the first run if no name is given."""
        if name is None:
            return next(iter(self))
        if name not in self.versions:
            raise UnknownError(f"the model {name[:100]!r} does not exist; there are {', '.join(self.versions)}")
        return self.versions[name][0]

    def of(self, name: str, digest: str) -> ServedModel:
        """Return the version that a state belongs to."""
        found = next((served for served in self.versions.get(name, []) if served.digest == digest), None)
        if found is None:
            raise UnknownError(f"the state belongs to older weights of {name[:100]!r}; create a new session")
        return found

    # Newer weights ------------------------------------------------------------------------------------------------

    def newer(self, name: str) -> ServedModel | None:
        """Load a run if its files have changed; return None if not. This takes long."""
        digest = model_digest(Run.open(self.paths[name], trust=self.trust))
        if digest == self.versions[name][0].digest:
            return None
        served = self._load(name)
        if model_digest(Run.open(self.paths[name], trust=self.trust)) != served.digest:
            raise RunError(f"{name} is being written; try again later")
        return served

    def replace(self, served: ServedModel) -> None:
        """Make a model the newest version of its name."""
        versions = self.versions[served.name]
        versions.insert(0, served)
        self.reloads += 1
        for old in versions[VERSIONS:]:
            old.over = True
        del versions[VERSIONS:]


def check_model(name: str | None, served: ServedModel) -> None:
    """Refuse a request that names another model than the one whose session or state it resumes."""
    if name is not None and name != served.name:
        raise OptionError(
            f"the session belongs to the model {served.name!r} and cannot be used with {name!r}; "
            f"name {served.name!r}, or leave model out"
        )


def text_ids(text: str, served: ServedModel) -> list[int]:
    """Return the token ids of a text."""
    if SURROGATE.search(text):
        raise OptionError("the text has half of a surrogate pair in it, which is no character")
    return encode_prompt(served.vocab, text)


def check_ids(ids: Sequence[int], served: ServedModel) -> None:
    """Refuse token ids that are not in the vocabulary of a model."""
    K = len(served.vocab)
    if not all(0 <= k < K for k in ids):
        raise OptionError(f"token ids of {served.name} must be 0 to {K - 1}")


def parse_inputs(value: object, served: ServedModel, limits: Limits) -> Any:
    """Return the inputs of a session as a list: token ids of tokens or of a text, or vectors of numbers."""
    network = served.network
    if network.numbers:
        return _parse_numbers(value, network.width, limits.steps)
    if isinstance(value, str):
        inputs = text_ids(value, served)
    else:
        inputs = [value] if type(value) is int else value  # type: ignore[assignment]
        if not isinstance(inputs, list) or not all(type(k) is int for k in inputs):
            raise OptionError("input must be a text, a token or a list of tokens")
        check_ids(inputs, served)
    if len(inputs) > limits.prompt_tokens:
        raise OptionError(f"{len(inputs):,} tokens are too many: at most {limits.prompt_tokens:,}")
    return inputs


def _parse_numbers(value: object, width: int, most: int) -> list[np.ndarray[Any, Any]]:
    expected = f"input must be {width} numbers, or a list of such steps" if width > 1 else "input must be numbers"
    try:
        values = np.asarray(value, dtype=np.float64)
    except (ValueError, TypeError, OverflowError):
        raise OptionError(expected) from None
    if not _all_numbers(value):
        raise OptionError(expected)
    if values.ndim < 2 and width == 1:
        values = values.reshape(-1, 1)
    elif values.ndim == 1:
        values = values[None]
    if values.ndim != 2 or (len(values) and values.shape[1] != width):
        raise OptionError(expected)
    if len(values) > most:
        raise OptionError(f"{len(values):,} steps are too many for one message: at most {most:,}")
    with np.errstate(over="ignore"):
        vectors = values.astype(np.float32)
    if not np.isfinite(vectors).all():
        raise OptionError("input must be numbers that float32 can hold")
    return list(vectors)


def _all_numbers(value: object) -> bool:
    if isinstance(value, list):
        return all(_all_numbers(each) for each in value)
    return isinstance(value, int | float) and not isinstance(value, bool)
