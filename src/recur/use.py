"""Use a trained model from Python: `recur.fit`, `recur.load`, and what they return."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from recur.decode import Choice, beam, encode_prompt, generate, read
from recur.errors import OptionError, TextError
from recur.text import Corpus
from recur.train.config import Config
from recur.train.data import first_input, load_data
from recur.train.loop import Listener, Trainer
from recur.train.machine import pick_device
from recur.train.measure import mean_loss, perplexity
from recur.train.run import Run


class Language:
    """A trained language model: its run, vocabulary and weights."""

    def __init__(self, run: Run, device: str = "cpu") -> None:
        self.run, self.vocab = run, run.vocab
        self.model = run.load_model(str(pick_device(device)))

    def __repr__(self) -> str:
        return f"Language({str(self.run.path)!r}, {self.run.config.cell}, {len(self.vocab)} tokens)"

    def stream(
        self, prompt: str = "", length: int = 200, stop: str = "", seed: int | None = None, **choice: Any
    ) -> Iterator[str]:
        """A continuation, piece by piece as it is drawn; ends before `stop`, if that is given and comes up."""
        whole = ""
        held = len(stop) - 1 if stop else 0  # this much may still turn out to begin the stop
        shown = 0
        ids: list[int] = []
        for (token,) in generate(self.model, self._lead(prompt), length, Choice(**choice), seed=seed):
            ids.append(token)
            whole = self._continued(prompt, ids)
            if stop and stop in whole:
                yield whole[shown : whole.index(stop)]
                return
            ready = max(len(whole) - held, shown)
            yield whole[shown:ready]
            shown = ready
        yield whole[shown:]

    def generate(
        self,
        prompt: str = "",
        length: int = 200,
        *,
        samples: int = 1,
        stop: str = "",
        seed: int | None = None,
        width: int = 0,
        **choice: Any,
    ) -> list[str]:
        """Continuations of a prompt, drawn as one batch; with `width`, the likeliest that beam search finds."""
        if width:
            found = beam(self.model, self._lead(prompt), length, width)
            return [self._continued(prompt, ids) for ids, _ in found]
        columns = list(generate(self.model, self._lead(prompt), length, Choice(**choice), samples, seed))
        texts = [self._continued(prompt, [tokens[k] for tokens in columns]) for k in range(samples)]
        return [text.partition(stop)[0] if stop else text for text in texts]

    def perplexity(self, text: str | Corpus) -> float:
        """Of all tokens of a text, the state carried through it."""
        ids = self.vocab.encode(text) if isinstance(text, str) else self.vocab.encode_corpus(text)
        if not len(ids):
            raise TextError("there is no token to measure on")
        return perplexity(mean_loss(self.model, ids, first_input(self.vocab)))

    def step(self, token: str | int, state: Any = None) -> tuple[dict[str, float], Any]:
        """One token in; the probability of every next one, and the state to hand back in with it."""
        k = token if isinstance(token, int) else self.vocab.ids.get(token, -1)
        if not 0 <= k < len(self.vocab):
            raise OptionError(f"token {token!r} is not in the vocabulary")
        logits, state = read(self.model, [k], state)
        return dict(zip(self.vocab.tokens, logits[0].softmax(-1).tolist(), strict=True)), state

    def _lead(self, prompt: str) -> list[int]:
        return [first_input(self.vocab), *encode_prompt(self.vocab, prompt)]

    def _continued(self, prompt: str, ids: list[int]) -> str:
        """The text of what follows a prompt; of words and subwords, with the space that belongs between."""
        if self.vocab.tokenizer.kind == "char":
            return self.vocab.decode(ids)
        before = [int(k) for k in self.vocab.encode(prompt)]
        return self.vocab.decode([*before, *ids])[len(self.vocab.decode(before)) :]


def fit(
    texts: str | Path | list[str], out: str | Path | None = None, listener: Listener | None = None, **fields: Any
) -> Language:
    """Train a language model on a text and return it. Fields are those of `recur.train.Config`."""
    config = Config.of(texts=texts, **fields)
    data = load_data(config)
    run = Run.create(out or tempfile.mkdtemp(prefix="recur-"), config, data.vocab)
    random = torch.get_rng_state()
    Trainer(run, data, listener).train()
    torch.set_rng_state(random)
    return Language(run, config.device)


def load(run: str | Path, device: str = "cpu") -> Language:
    """The model of a run, with its best weights."""
    return Language(Run.open(run), device)
