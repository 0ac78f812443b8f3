"""Served runs by name, and reloading of newer weights between two requests.

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

import torch
from torch import Tensor

from recur.data.text import Vocab
from recur.decoding.sampling import FORBIDDEN_TOKENS
from recur.errors import OptionError, RunError
from recur.runs import Run
from recur.serve.http.responses import UnknownError
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
        found[list(FORBIDDEN_TOKENS)] = -torch.inf
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
        self.versions: dict[str, list[ServedModel]] = {}
        """The newest first."""
        self.reloads = 0
        for name in self.paths:
            self.versions[name] = [self._load(name)]

    def _load(self, name: str) -> ServedModel:
        return ServedModel(Run.open(self.paths[name], trust=self.trust), self.device, self.limits, self.products)

    def __iter__(self) -> Iterator[ServedModel]:
        return (versions[0] for versions in self.versions.values())

    @property
    def all(self) -> list[ServedModel]:
        return [served for versions in self.versions.values() for served in versions]

    def get(self, name: str | None) -> ServedModel:
        """Return the newest version of a name; the first run if no name is given."""
        if name is None:
            return next(iter(self))
        if name not in self.versions:
            raise UnknownError(f"the model {name[:100]!r} does not exist; there are {', '.join(self.versions)}")
        return self.versions[name][0]

    def of(self, name: str, digest: str) -> ServedModel:
        """Return the version that a state belongs to."""
        for served in self.versions.get(name, []):
            if served.digest == digest:
                return served
        raise UnknownError(f"the state belongs to older weights of {name[:100]!r}; create a new session")

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
